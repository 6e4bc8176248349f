"""The timer of an HTTP/1.1 connection: a client may be too late with a head, a body, or its next request after a reply.

A connection has one timer, which looks again when something may be due; a timer for each request would cost more. If
the event loop was held up, bytes that came in time may still wait in the socket when the timer is due. So the loop
reads once more before the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from app.transports.http.connections.connection_limits import ConnectionLimits

#: Chosen: above 0, so that the event loop polls its sockets before this time is over.
LAST_READ_S = 0.01


class ArrivalTimer:
    """Calls back when a head, a body or a next request has not arrived in time.

    Attributes:
        due_s: monotonic second at which the client is too late; inf while nothing is due of it.
    """

    __slots__ = ("_clock", "_handle", "_keep_alive_s", "_least_body_rate", "_loop", "_timeout_s", "due_s")

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self.due_s = inf
        self._clock = clock
        self._timeout_s = limits.arrival_timeout_s
        self._keep_alive_s = limits.keep_alive_s
        self._least_body_rate = limits.min_body_bytes_per_s
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle

    def start(self, late: Callable[[], None]) -> None:
        """A head is due from now on. Calls `late` once the client is too late with that, or with what is due later."""
        self.expect()
        self._look_in(self._timeout_s, late)

    def stop(self) -> None:
        self._handle.cancel()

    def expect(self) -> None:
        """A head or a body is due, unless something is already."""
        if self.due_s == inf:
            self.due_s = self._clock() + self._timeout_s

    def body_arrived(self, size: int, *, streaming: bool) -> None:
        """This many bytes of a body have arrived, and more are due; a body that is streamed has no least rate."""
        latest_s = self._clock() + self._timeout_s
        self.due_s = latest_s if streaming else min(self.due_s + size / self._least_body_rate, latest_s)

    def _look_in(self, seconds: float, late: Callable[[], None]) -> None:
        seconds = min(seconds, self._keep_alive_s, self._timeout_s)
        self._handle = self._loop.call_later(seconds, self._look, late)

    def _look(self, late: Callable[[], None]) -> None:
        rest_s = self.due_s - self._clock()
        if rest_s > 0:
            self._look_in(rest_s, late)
        else:
            self._handle = self._loop.call_later(LAST_READ_S, self._look_for_the_last_time, late, self.due_s)

    def _look_for_the_last_time(self, late: Callable[[], None], due_s: float) -> None:
        if self.due_s == due_s:
            late()
        else:
            self._look(late)
