"""Deadlines: a heap of the requests in progress, and one timer that answers the expired ones.

Requests expire while they wait and while they are computed. Answered requests leave the heap lazily: when they come up,
or all at once as soon as they are the majority, so the heap holds at most about twice the requests in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from app.batching.request import PendingRequest
from app.batching.state import BatchingState
from app.core.errors import DeadlineExceeded
from app.core.events import RequestsRefused

#: A heap of fewer entries is not searched for answered requests. Chosen.
_SMALL = 64


class Deadlines:
    """The requests in progress, by deadline. No I/O, no clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PendingRequest]] = []
        self._sequence = count()
        self._compact_at = _SMALL

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The earliest deadline of an unanswered request; infinity if there is none."""
        heap = self._heap
        while heap and heap[0][2].reply.done():
            heappop(heap)
        return heap[0][0] if heap else inf

    def push(self, request: PendingRequest) -> None:
        if request.deadline_s == inf:
            return
        if len(self._heap) >= self._compact_at:
            self._compact()
        heappush(self._heap, (request.deadline_s, next(self._sequence), request))

    def pop_expired(self, now: float) -> list[PendingRequest]:
        """Removes and returns the unanswered requests whose deadline has come, earliest first."""
        expired = []
        while self.next_s <= now:
            expired.append(heappop(self._heap)[2])
        return expired

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].reply.done()]
        heapify(self._heap)
        self._compact_at = max(_SMALL, 2 * len(self._heap))


class Expiry:
    """The timer of the earliest deadline. Made on the event loop.

    Args:
        on_cancel: called after requests were answered because they expired.

    Attributes:
        at_s: the time when the timer fires, monotonic seconds; infinity if it is not set.
    """

    def __init__(self, state: BatchingState, on_cancel: Callable[[], None]) -> None:
        self._queue, self._clock, self._listener = state.queue, state.clock, state.listener
        self._on_cancel = on_cancel
        self._deadlines = Deadlines()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.at_s = inf

    def watch(self, request: PendingRequest) -> None:
        """Answers the request when its deadline has come, if it is not answered then."""
        self._deadlines.push(request)
        if request.deadline_s < self.at_s:
            self.arm(request.deadline_s)

    def arm(self, deadline_s: float) -> None:
        """Sets the timer to this time and to no other."""
        if self._timer is not None:
            self._timer.cancel()
        self.at_s = deadline_s
        if deadline_s != inf:
            self._timer = self._loop.call_later(max(0.0, deadline_s - self._clock()), self.expire)

    def expire(self) -> None:
        """Answers the expired requests; the waiting ones leave the queue."""
        expired = 0
        for request in self._deadlines.pop_expired(self._clock()):
            waited = self._queue.remove(request)
            expired += len(request.coalesced_s) or 1
            request.fail(DeadlineExceeded("The request's time ran out before its answer was ready"))
            if waited:
                request.release()  # else its call releases it
        if expired:
            self._listener(RequestsRefused("expired", expired))
        self.arm(self._deadlines.next_s)
        self._on_cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
