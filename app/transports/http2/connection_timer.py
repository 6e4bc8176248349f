"""The one timer of an HTTP/2 connection.

It watches a client that sends no preface, is silent or does not read its replies; a connection that is idle or old; a
drain; and requests that are open for long. Each of these has a function. It does what is due now, and returns the
monotonic second of its next look; the connection is aborted if that is not later than now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import takewhile
from math import inf
from typing import Protocol

from app.transports.http2.frames import DEFAULT_FRAME_BYTES
from app.transports.http2.sans_io_connection import SansIoConnection
from app.transports.http2.sending import KEEPALIVE
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.memory.client_memory import ClientMemory

logger = logging.getLogger(__name__)


class TimedConnection(Protocol):
    """The connection (Http2Protocol) as its timer sees it."""

    connection: SansIoConnection
    transport: asyncio.Transport
    peer: tuple[str, int]
    heard: bool
    received: int
    draining: bool

    @property
    def ends(self) -> bool: ...

    @property
    def taken(self) -> int: ...

    def flush(self) -> None: ...

    def drain(self, grace_s: float = inf) -> None: ...

    def leave(self) -> None: ...

    def cut_reply(self, stream: Stream) -> None: ...


class ConnectionTimer:
    """Looks at one connection when something may be due. Refers to it only by the scheduled look, so there is no
    circle.

    Args:
        clock: gives monotonic seconds.
        jitter: the age of a connection is multiplied by it.

    Attributes:
        times: in force now.
        began_s: when the connection began.
        idle_since_s: as of the last look, or set by the connection.
    """

    def __init__(
        self,
        times: Times,
        memory: ClientMemory,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._jitter = jitter
        self._handle: asyncio.Handle | None = None
        self._handle_s = inf  # when it is due, by the event loop's clock
        self.times = times
        self.began_s = began_s = clock()
        self._old_s = began_s + times.age_s * jitter()
        # Silence.
        self._silent_since_s = began_s
        self._asked_s = inf  # since when a ping waits for its answer
        self._compared_s, self._received_then, self._within_then = began_s, 0, False
        # Idleness.
        self.idle_since_s = began_s
        self._opened_then = 0
        # Drain.
        self._drain_until_s = self._last_call_s = inf
        # Replies that are not read.
        self._slow_since_s, self._taken_then = inf, 0
        # Requests.
        self._looked_s, self._looked_to = began_s, 0  # at requests, up to this stream
        self._waited: dict[int, int] = {}  # bytes of theirs that were not taken then

    # --- what the connection tells ---

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def change(self, timed: TimedConnection, times: Times) -> None:
        """Puts other times in force. The age counts from the beginning of the connection."""
        self.times = times
        self._old_s = self.began_s + times.age_s * self._jitter()
        self.look_in(timed, 0.0)

    def ping_answered(self) -> None:
        self._asked_s = inf

    def watch_reader(self, timed: TimedConnection, *, slow: bool) -> None:
        """`slow`: so many bytes wait for the client from now on that it may be slow; false: it is not."""
        if slow:
            self._slow_since_s, self._taken_then = self._clock(), timed.taken
            self.look_in(timed, self.times.slow_s)
        else:
            self._slow_since_s = inf

    def drain_within(self, timed: TimedConnection, grace_s: float) -> None:
        """The connection drains, for so many seconds at most; the first time begins the last call."""
        now = self._clock()
        self._drain_until_s = min(self._drain_until_s, now + grace_s)
        if not timed.draining:
            self._last_call_s = now + self.times.keepalive_timeout_s

    def last_call_within(self, timed: TimedConnection, seconds: float) -> None:
        """A client that was told to open no more streams is waited for so long at most."""
        self._last_call_s = min(self._last_call_s, self._clock() + seconds)
        self.look_in(timed, seconds)

    def look_in(self, timed: TimedConnection, seconds: float) -> None:
        """Looks after so many seconds at the latest."""
        if timed.ends:
            return
        loop = asyncio.get_running_loop()
        due_s = loop.time() + seconds
        if self._handle is not None:
            if self._handle_s <= due_s and not self._handle.cancelled():
                return
            self._handle.cancel()
        if seconds < inf:
            # uvloop's for no time at all does not know when it is due.
            self._handle, self._handle_s = loop.call_later(seconds, self.look, timed), due_s

    # --- what may be due ---

    def look(self, timed: TimedConnection) -> None:
        self._handle = None
        now = self._clock()
        due_s = min(
            self._handshake_due(timed),
            self._idle_due(timed, now),
            self._drain_due(timed, now),
            self._slow_due(timed, now),
        )
        due_s = min(due_s, self._keepalive_due(timed, now), self._requests_due(timed, now))
        if timed.ends:
            return
        if due_s <= now:
            timed.transport.abort()
        else:
            self.look_in(timed, due_s - now)

    def _handshake_due(self, timed: TimedConnection) -> float:
        return inf if timed.connection.settings_came else self.began_s + self.times.handshake_s

    def _keepalive_due(self, timed: TimedConnection, now: float) -> float:
        """Asks a client that is silent; when it is to be given up, or looked at again."""
        times = self.times
        if timed.heard or not (times.keepalive_without_calls or timed.connection.streams):
            if self._is_stuck(timed, now):
                return now
            timed.heard, self._asked_s, self._silent_since_s = False, inf, now
        elif self._asked_s == inf and now >= self._silent_since_s + times.keepalive_s:
            self._asked_s = now
            timed.connection.ping(KEEPALIVE)
            timed.flush()
        if self._asked_s < inf:
            return self._asked_s + times.keepalive_timeout_s
        return self._silent_since_s + times.keepalive_s

    def _is_stuck(self, timed: TimedConnection, now: float) -> bool:
        """Whether it is within a frame or a field list, as at a look long ago, and sent less than a frame since."""
        if now < self._compared_s + self.times.keepalive_s:
            return False
        within, came = timed.connection.is_within_frame, timed.received - self._received_then
        stuck = within and self._within_then and came < DEFAULT_FRAME_BYTES
        self._compared_s, self._received_then, self._within_then = now, timed.received, within
        return stuck

    def _idle_due(self, timed: TimedConnection, now: float) -> float:
        if timed.connection.streams or timed.connection.last_stream > self._opened_then:
            self.idle_since_s, self._opened_then = now, timed.connection.last_stream
        elif now >= self.idle_since_s + self.times.idle_s and not timed.draining:
            timed.drain()
        return inf if timed.draining else self.idle_since_s + self.times.idle_s

    def _drain_due(self, timed: TimedConnection, now: float) -> float:
        """Ends a connection that is old. A client that does not answer the last call is not waited for."""
        times = self.times
        if not timed.draining:
            if now < self._old_s:
                return self._old_s
            if times.age_awaits_requests:
                timed.leave()
                return self._drain_until_s
            timed.drain(times.age_grace_s)
        if not timed.connection.drained:
            if now < self._last_call_s:
                return min(self._drain_until_s, self._last_call_s)
            timed.connection.end_drain()
            timed.flush()
        return self._drain_until_s

    def _slow_due(self, timed: TimedConnection, now: float) -> float:
        times = self.times
        if self._slow_since_s == inf:
            return inf
        if now >= self._slow_since_s + times.slow_s:
            taken = timed.taken
            if taken - self._taken_then < times.slow_s * times.min_bytes_per_s and self._memory.half_held:
                logger.info("The client %s reads too little of its reply; its connection ends", timed.peer)
                return now
            self._slow_since_s, self._taken_then = now, taken
        return self._slow_since_s + times.slow_s

    def _requests_due(self, timed: TimedConnection, now: float) -> float:
        """Looks at the requests that were already open at the last look, the oldest first."""
        slow_s = self.times.slow_s
        if now >= self._looked_s + slow_s:
            streams = timed.connection.streams
            old = list(takewhile(lambda each: each.id <= self._looked_to, streams.values()))
            for each in old:
                if each.unsent:
                    self._look_at_unsent(timed, each)
                elif each.owner is not None:
                    each.owner.waits()
            self._waited = {each.id: each.unsent for each in old if each.id in streams and each.unsent}
            self._looked_s, self._looked_to = now, timed.connection.last_stream
            timed.flush()
        return self._looked_s + slow_s

    def _look_at_unsent(self, timed: TimedConnection, stream: Stream) -> None:
        """While half of the memory is held, resets a reply of which the client took nothing since the last look."""
        if stream.unsent >= self._waited.get(stream.id, inf) and self._memory.half_held:
            timed.cut_reply(stream)
