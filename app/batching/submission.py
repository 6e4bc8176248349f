"""What the batcher was given, and what a device works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.batching.function import BatchFunction
from app.batching.lane import LaneKey
from app.batching.pending import PendingRequest


class Submission:
    """A request that was accepted. To be withdrawn on every way out; that it was answered does no harm."""

    __slots__ = ("_request", "_withdraw")

    def __init__(self, request: PendingRequest, withdraw: Callable[[PendingRequest], None]) -> None:
        self._request = request
        self._withdraw = withdraw

    def withdraw(self) -> None:
        """Nobody waits for the answer any more: what has not begun is never computed."""
        self._withdraw(self._request)


class StartedBatch:
    """Requests of one lane that are executed together, and why their batch was closed."""

    __slots__ = ("function", "key", "reason", "requests", "rows")

    def __init__(self, key: LaneKey, function: BatchFunction, requests: Sequence[PendingRequest], reason: str) -> None:
        self.key = key
        self.function = function
        self.requests = requests
        self.reason = reason
        self.rows = sum([request.rows for request in requests])

    def left(self) -> None:
        """Its requests are answered."""
        self.function.leave(len(self.requests), self.rows)
