"""What the batcher was given, and what a device works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.batching.function import BatchFunction
from app.batching.lane import Lane
from app.batching.pending import PendingRequest
from app.errors import InferenceFailed


class Submission:
    """A request that was accepted. To be withdrawn on every way out; that it was answered does no harm."""

    __slots__ = ("_request", "_withdraw")

    def __init__(self, request: PendingRequest, withdraw: Callable[[PendingRequest], None]) -> None:
        self._request = request
        self._withdraw = withdraw

    def withdraw(self) -> None:
        """Nobody waits for the answer any more: what has not begun is never computed."""
        self._withdraw(self._request)


class Done:
    """Stands for one that was answered before it could be withdrawn."""

    def withdraw(self) -> None:
        pass


DONE = Done()


class StartedBatch:
    """Requests of one lane that are executed together, with guests of others, and why their batch was closed."""

    __slots__ = ("_guests", "costs", "function", "key", "lanes", "reason", "requests", "rows")

    def __init__(self, lane: Lane, requests: list[PendingRequest], reason: str) -> None:
        self.key = lane.key
        self.lanes = [lane.key]
        self.function = lane.function
        self.costs = lane.costs
        self.requests = requests
        self.reason = reason
        self.rows = sum([request.rows for request in requests])
        self._guests: tuple[tuple[BatchFunction, int, int], ...] = ()

    def add(self, lane: Lane, guests: Sequence[PendingRequest]) -> None:
        """Requests of another lane, whose function counts them."""
        rows = sum([request.rows for request in guests])
        self._guests += ((lane.function, len(guests), rows),)
        self.lanes.append(lane.key)
        self.requests += guests
        self.rows += rows

    @property
    def expected_s(self) -> float:
        """How long its call will take, as far as known."""
        curve = self.costs.curve
        return curve.call_s(self.rows) if curve is not None else 0.0

    @property
    def answered(self) -> bool:
        """Does nobody in it wait for an answer any more?"""
        return all(request.reply.done() for request in self.requests)

    def took(self, seconds: float) -> None:
        """All its requests succeeded, in that time. With guests, which may be longer, that says little of its lane."""
        if self._guests:
            return
        if self.function.batchable:
            self.costs.note(self.function.sizes.padded(self.rows), seconds)
        else:
            self.costs.note(1, seconds / len(self.requests))

    def fail(self, text: str) -> None:
        """It was not executed."""
        for request in self.requests:
            request.fail(InferenceFailed(text))
        self.left()

    def left(self) -> None:
        """Its requests are answered."""
        requests, rows = len(self.requests), self.rows
        for function, guests, guest_rows in self._guests:
            function.leave(guests, guest_rows)
            requests -= guests
            rows -= guest_rows
        self.function.leave(requests, rows)
