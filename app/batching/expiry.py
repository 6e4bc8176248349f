"""Whoever's time runs out is answered at once, by one timer, whether it waits or is being computed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from app.batching.deadlines import Deadlines
from app.batching.queue import RequestQueue
from app.errors import DeadlineExceeded


class Expiry:
    """The timer of the earliest deadline. Made on the event loop.

    Args:
        told: called after requests were answered.

    Attributes:
        at_s: when the timer fires, monotonic seconds; infinity where it is not set.
    """

    def __init__(
        self, deadlines: Deadlines, queue: RequestQueue, clock: Callable[[], float], told: Callable[[], None]
    ) -> None:
        self._deadlines = deadlines
        self._queue = queue
        self._clock = clock
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.at_s = inf

    def arm(self, deadline_s: float) -> None:
        """Fires at this time, and at no other."""
        if self._timer is not None:
            self._timer.cancel()
        self.at_s = deadline_s
        self._timer = None
        if deadline_s != inf:
            self._timer = self._loop.call_later(max(0.0, deadline_s - self._clock()), self.expire)

    def expire(self) -> None:
        """Answers those whose time is over; what waits leaves the queue."""
        for request in self._deadlines.pop_expired(self._clock()):
            self._queue.remove(request)
            request.fail(DeadlineExceeded("The request's time ran out before its answer was ready"))
        self.arm(self._deadlines.next_s)
        self._told()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
