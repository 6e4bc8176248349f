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
    """Requests of one lane that are executed together, with guests of others, and why their batch was closed."""

    __slots__ = ("_guests", "function", "key", "reason", "requests", "rows")

    def __init__(self, key: LaneKey, function: BatchFunction, requests: list[PendingRequest], reason: str) -> None:
        self.key = key
        self.function = function
        self.requests = requests
        self.reason = reason
        self.rows = sum([request.rows for request in requests])
        self._guests: tuple[tuple[BatchFunction, int, int], ...] = ()

    def add(self, function: BatchFunction, guests: Sequence[PendingRequest]) -> None:
        """Requests of another lane, whose function counts them."""
        rows = sum([request.rows for request in guests])
        self._guests += ((function, len(guests), rows),)
        self.requests += guests
        self.rows += rows

    def left(self) -> None:
        """Its requests are answered."""
        requests, rows = len(self.requests), self.rows
        for function, guests, guest_rows in self._guests:
            function.leave(guests, guest_rows)
            requests -= guests
            rows -= guest_rows
        self.function.leave(requests, rows)
