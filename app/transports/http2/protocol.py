"""An HTTP/2 connection on a socket: what is read in one turn is dispatched together, what is answered leaves together.

It holds what a connection may hold, and for how long. Messages, open requests and data that wait for the client are
counted with those of all connections (client_memory.py) from 8 KiB on; while the client does not read, nothing is read
of it. One timer looks after a silent client, an idle or old connection, one that takes nothing of its replies, and
requests that are open for long. A connection that ends lingers (lingering.py): its client, which opens windows while it
reads, gets to read all that was sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from random import uniform
from typing import Protocol, cast

from app.transports.client_memory import ClientMemory
from app.transports.http2.connection import Connection
from app.transports.http2.events import Data, Event, PingAnswered, Request, Reset
from app.transports.http2.frames import DEFAULT_FRAME_BYTES, ErrorCode
from app.transports.http2.hpack import HeaderList
from app.transports.http2.limits import Http2Limits
from app.transports.http2.sending import DRAIN, KEEPALIVE
from app.transports.http2.stream import Stream
from app.transports.lingering import Lingering
from app.transports.tls.connection import TlsConnection

logger = logging.getLogger(__name__)

#: What a connection may hold uncounted, of messages and of all else. Chosen: two usual requests.
_FREE_BYTES = 2**13

#: Bytes that wait for the socket before no more are taken, and nothing is read; so many are not counted. Chosen: two
#: frames.
_HIGH_WATER = 2**15

#: A client of whose replies so much waits is watched: is it slow? Chosen.
_MUCH_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds.

    Attributes:
        handshake_s: for the client's preface and settings.
        keepalive_s: of silence until the client is asked; keepalive_timeout_s: until it is given up without an answer.
        keepalive_without_calls: also asks where no request is under way.
        idle_s: without a request, until the connection ends; at most twice as long.
        age_s: until it ends in any case, a tenth more or less by chance, so that those that began together do not end
            together; age_grace_s: for the requests that are under way then.
        slow_s: a client that takes less than `min_bytes_per_s` of what waits for it within this is cut, where half of
            the memory for clients is held, and a reply ends of which it takes nothing. A message that comes more slowly
            and a request of which nothing comes end in any case.
    """

    handshake_s: float = 20.0
    keepalive_s: float = 60.0
    keepalive_timeout_s: float = 20.0
    keepalive_without_calls: bool = True
    idle_s: float = inf
    age_s: float = inf
    age_grace_s: float = inf
    slow_s: float = 60.0
    min_bytes_per_s: float = 16 * 1024


class Owner(Protocol):
    """What answers one request: `Stream.owner`."""

    def data(self, content: bytes, ended: bool) -> None:
        """More of the request's content, and whether it is all."""

    def gone(self) -> None:
        """The stream was reset, or the connection lost: nothing can be answered any more."""

    def sent(self) -> None:
        """All data that were given to be sent are on their way."""

    def waits(self) -> None:
        """It is open for `Times.slow_s` at least, or again as long. Nothing waits to be sent."""


class Application(Protocol):
    """What answers the requests of a server's connections."""

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        """A request, which gets its owner here unless it is answered at once. Must not raise."""


def _a_tenth_more_or_less() -> float:
    return uniform(0.9, 1.1)  # noqa: S311 - nobody gains by guessing it


class Http2Connections:
    """What the connections of a server share.

    Args:
        most: open at the same time, those within the handshake of TLS included; see `make_room`.
        jitter: the age of a connection is multiplied by it.

    Attributes:
        arriving: those within the handshake of TLS.
        unused: these, and those open of which no request has come yet, the oldest first.
    """

    def __init__(
        self,
        application: Application,
        *,
        limits: Http2Limits,
        times: Times,
        memory: ClientMemory,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = _a_tenth_more_or_less,
    ) -> None:
        self.application = application
        self.limits = limits
        self.times = times
        self.memory = memory
        self.most = most
        self.clock = clock
        self.jitter = jitter
        self.open: set[Http2Protocol] = set()
        self.arriving: set[TlsConnection] = set()
        self.unused: OrderedDict[TlsConnection | Http2Protocol, None] = OrderedDict()

    def make_room(self) -> bool:
        """For one more. Without room the oldest that has had no request gives way; False if all have had one.

        To be silent costs a client nothing, before its handshake or after it; so who has just come may stay for as
        long as others need to make `most` connections, and those that are used stay in any case.
        """
        if len(self.open) + len(self.arriving) < self.most:
            return True
        if not self.unused:
            return False
        oldest, _ = self.unused.popitem(last=False)
        if isinstance(oldest, TlsConnection):
            self.arriving.discard(oldest)
        else:
            self.open.discard(oldest)
        oldest.give_way()
        return True

    @property
    def under_way(self) -> int:
        """Requests that are not answered, or not sent."""
        return sum(len(each.connection.streams) for each in self.open)

    @property
    def drained(self) -> bool:
        """Whether no client can begin a request."""
        return all(each.ends or each.connection.drained for each in self.open)

    def __repr__(self) -> str:
        return f"<Http2Connections {len(self.open)} open, {self.under_way} requests>"


class Http2Protocol(asyncio.Protocol):
    """One connection.

    Attributes:
        transport: the socket's; closed once the connection ends.
        peer: the client's address and port; ('', 0) for a Unix socket.
        asks_who_drains: the client is asked by a ping whether it has read that it is to open no more streams.
    """

    asks_who_drains = True

    def __init__(self, shared: Http2Connections) -> None:
        self._shared = shared
        self.connection = Connection(shared.limits, shared.clock)
        self.transport: asyncio.Transport
        self.peer: tuple[str, int] = ("", 0)
        # What it holds of the memory for clients.
        self._held = self._counted_held = 0  # bytes of messages of requests that are not answered
        self._counted = 0  # of all else
        # For the timer.
        self._began_s = shared.clock()
        self._times = shared.times
        self._old_s = self._began_s + shared.times.age_s * shared.jitter()
        self._heard = True  # since the timer looked last
        self._asked_s = inf  # since when a ping waits for its answer
        self._silent_since_s = self._idle_since_s = self._began_s
        self._opened_then = 0
        self._received = 0  # bytes
        self._compared_s, self._received_then, self._within_then = self._began_s, 0, False
        self._slow_since_s, self._taken_then = inf, 0
        self._looked_s, self._looked_to = self._began_s, 0  # at requests, up to this stream
        self._waited: dict[int, int] = {}  # bytes of theirs that were not taken then
        self._unused = False  # no request has come yet
        self._draining = False
        self._drain_until_s = self._last_call_s = inf
        self._lingering: Lingering | None = None  # all was sent; what still comes is thrown away
        self._hastens = False
        self._timer: asyncio.Handle | None = None
        self._timer_s = inf  # when it is due, by the event loop's clock

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's has no such base
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":  # RFC 9113, section 3.2
            transport.abort()
            return
        if not self._shared.make_room():
            transport.abort()
            return
        self._shared.open.add(self)
        self._shared.unused[self] = None
        self._unused = True
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = peer[:2]
        transport.set_write_buffer_limits(_HIGH_WATER)
        self._look()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._received += len(data)
        for event in self.connection.receive(data):
            self._dispatch(event)
        if self._unused and self.connection.last_stream:
            self._leave_unused()
        self.flush()

    def eof_received(self) -> bool:
        return False  # a client that closes its side reads no answers

    def pause_writing(self) -> None:
        self.connection.blocked = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.connection.blocked = False
        self._heard = True
        if not self.transport.is_closing():
            self.transport.resume_reading()
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._shared.open.discard(self)
        self._leave_unused()
        if self._timer is not None:
            self._timer.cancel()
        self.connection.fail(ErrorCode.NO_ERROR, "the connection is lost")
        for event in self.connection.take_events():
            self._dispatch(event)
        self.release(self._held)
        self.connection.blocked = False  # uvloop's transport still has its buffer
        self._count()

    def _leave_unused(self) -> None:
        self._unused = False
        self._shared.unused.pop(self, None)

    # --- dispatch ---

    def _dispatch(self, event: Event) -> None:
        kind = type(event)
        if kind is Data:
            stream, content, ended = event  # type: ignore[misc] # the kind says what it is
            if stream.owner is not None:
                stream.owner.data(content, ended)
        elif kind is Request:
            self._shared.application.begin(self, *event)
        elif isinstance(event, PingAnswered):
            self._asked_s = inf
            if event.content == DRAIN and self._draining:
                self.connection.end_drain()
        elif (owner := event.stream.owner) is not None:
            if isinstance(event, Reset):
                event.stream.owner = None
                owner.gone()
            else:
                owner.sent()

    # --- to answer ---

    def flush(self) -> None:
        """Sends what was answered, as far as the socket takes it."""
        connection = self.connection
        if self.ends:
            return
        while out := connection.take():
            if self.transport.is_closing():
                return
            if connection.large:
                connection.large = False
                self.transport.writelines(out)
            else:
                self.transport.write(b"".join(out))
            for event in connection.take_events():
                self._dispatch(event)
        self._count()
        if (connection.failure or (self._draining and self._is_drained())) and not self.transport.is_closing():
            self._linger()

    @property
    def memory(self) -> ClientMemory:
        return self._shared.memory

    @property
    def times(self) -> Times:
        return self._times

    def change_times(self, times: Times) -> None:
        """It has these from now on. Its age counts from its beginning."""
        self._times = times
        self._old_s = self._began_s + times.age_s * self._shared.jitter()
        self._look_in(0.0)

    def hold(self, size: int) -> bool:
        """Holds this many bytes more of a message; False if there is no memory for them. They are to be released."""
        self._held += size
        more = self._held - self._counted_held
        if more > _FREE_BYTES:
            if not self._shared.memory.take_body(more):
                return False
            self._counted_held += more
        return True

    def release(self, size: int) -> None:
        self._held -= size
        if self._counted_held > self._held:
            self._shared.memory.give_body(self._counted_held - self._held)
            self._counted_held = self._held

    def _count(self) -> None:
        """Counts what no message is: open requests, data that wait, what was read and is not whole."""
        connection = self.connection
        held, waits = connection.held, connection.unsent
        if connection.blocked:
            left = self.transport.get_write_buffer_size()
            held, waits = held + left, waits + left
        if held <= _FREE_BYTES:
            held = 0
        if held != self._counted:
            self._shared.memory.change_unread(held - self._counted)
            self._counted = held
        if waits <= _MUCH_BYTES:
            self._slow_since_s = inf
        elif self._slow_since_s == inf:
            self._slow_since_s, self._taken_then = self._shared.clock(), self._taken
            self._look_in(self._times.slow_s)

    @property
    def _taken(self) -> int:
        """Bytes of data that the socket has taken."""
        return self.connection.sent - self.transport.get_write_buffer_size()

    # --- the end ---

    @property
    def ends(self) -> bool:
        """Whether all was sent, and nothing is read any more."""
        return self._lingering is not None

    def drain(self, grace_s: float = inf) -> None:
        """Takes no more requests, and ends when those that it has are answered, or after `grace_s` seconds."""
        now = self._shared.clock()
        self._drain_until_s = min(self._drain_until_s, now + grace_s)
        if not self._draining:
            self._draining = True
            self._last_call_s = now + self._times.keepalive_timeout_s
            self.connection.begin_drain(ask=self.asks_who_drains)
            self.flush()
        self._look_in(0.0)

    def end(self) -> None:
        """Ends at once; the client sees its calls as not answered, and reads what was sent before."""
        self.connection.fail(ErrorCode.NO_ERROR, "the server ends")
        for event in self.connection.take_events():
            self._dispatch(event)
        self.flush()

    def give_way(self) -> None:
        """Ends for another one, and lingers no longer, or not at all. It has no request."""
        if self.ends:
            self.transport.abort()
        else:
            self.end()
            self.transport.close()

    def hasten(self) -> None:
        """Once it ends, now or later, its client is waited for only until its kernel has all that was sent."""
        self._hastens = True
        if self._lingering is not None:
            self._lingering.hasten()

    def _linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._lingering = Lingering(self.transport, self.connection_lost)
        if self._hastens:
            self._lingering.hasten()

    def _is_drained(self) -> bool:
        return self.connection.drained and not self.connection.streams

    # --- the timer ---

    def _look_in(self, seconds: float) -> None:
        if self.ends:
            return
        loop = asyncio.get_running_loop()
        due_s = loop.time() + seconds
        if self._timer is not None:
            if self._timer_s <= due_s and not self._timer.cancelled():
                return
            self._timer.cancel()
        if seconds < inf:
            # uvloop's for no time at all does not know when it is due.
            self._timer, self._timer_s = loop.call_later(seconds, self._look), due_s

    def _look(self) -> None:
        self._timer = None
        now = self._shared.clock()
        due_s = min(self._handshake_due(), self._idle_due(now), self._drain_due(now), self._slow_due(now))
        due_s = min(due_s, self._keepalive_due(now), self._requests_due(now))
        if self.ends:
            return
        if due_s <= now:
            self.transport.abort()
        else:
            self._look_in(due_s - now)

    def _handshake_due(self) -> float:
        return inf if self.connection.settings_came else self._began_s + self._times.handshake_s

    def _keepalive_due(self, now: float) -> float:
        """Asks a client that is silent; when it is to be given up, or looked at again."""
        times = self._times
        if self._heard or not (times.keepalive_without_calls or self.connection.streams):
            if self._is_stuck(now):
                return now
            self._heard, self._asked_s, self._silent_since_s = False, inf, now
        elif self._asked_s == inf and now >= self._silent_since_s + times.keepalive_s:
            self._asked_s = now
            self.connection.ping(KEEPALIVE)
            self.flush()
        if self._asked_s < inf:
            return self._asked_s + times.keepalive_timeout_s
        return self._silent_since_s + times.keepalive_s

    def _is_stuck(self, now: float) -> bool:
        """Whether it is within a frame or a field list, as at a look long ago, and sent less than a frame since."""
        if now < self._compared_s + self._times.keepalive_s:
            return False
        within, came = self.connection.is_within_frame, self._received - self._received_then
        stuck = within and self._within_then and came < DEFAULT_FRAME_BYTES
        self._compared_s, self._received_then, self._within_then = now, self._received, within
        return stuck

    def _idle_due(self, now: float) -> float:
        if self.connection.streams or self.connection.last_stream > self._opened_then:
            self._idle_since_s, self._opened_then = now, self.connection.last_stream
        elif now >= self._idle_since_s + self._times.idle_s and not self._draining:
            self.drain()
        return inf if self._draining else self._idle_since_s + self._times.idle_s

    def _drain_due(self, now: float) -> float:
        """Ends a connection that is old. A client that does not answer the last call is not waited for."""
        times = self._times
        if not self._draining:
            if now < self._old_s:
                return self._old_s
            self.drain(times.age_grace_s)
        if not self.connection.drained:
            if now < self._last_call_s:
                return min(self._drain_until_s, self._last_call_s)
            self.connection.end_drain()
            self.flush()
        return self._drain_until_s

    def _slow_due(self, now: float) -> float:
        times = self._times
        if self._slow_since_s == inf:
            return inf
        if now >= self._slow_since_s + times.slow_s:
            taken = self._taken
            if taken - self._taken_then < times.slow_s * times.min_bytes_per_s and self._shared.memory.half_held:
                logger.info("The client %s reads too little of its reply; its connection ends", self.peer)
                return now
            self._slow_since_s, self._taken_then = now, taken
        return self._slow_since_s + times.slow_s

    def _requests_due(self, now: float) -> float:
        """Looks at the requests that were open at the look before: first at the oldest, and at no young one."""
        slow_s = self._times.slow_s
        if now >= self._looked_s + slow_s:
            streams = self.connection.streams
            old = list(takewhile(lambda each: each.id <= self._looked_to, streams.values()))
            for each in old:
                if each.unsent:
                    self._look_at_unsent(each)
                elif each.owner is not None:
                    each.owner.waits()
            self._waited = {each.id: each.unsent for each in old if each.id in streams and each.unsent}
            self._looked_s, self._looked_to = now, self.connection.last_stream
            self.flush()
        return self._looked_s + slow_s

    def _look_at_unsent(self, stream: Stream) -> None:
        """Where memory is scarce, a reply ends of which nothing was taken since the look before."""
        if stream.unsent >= self._waited.get(stream.id, inf) and self._shared.memory.half_held:
            self.connection.reset(stream, ErrorCode.ENHANCE_YOUR_CALM)
            self._dispatch(Reset(stream, ErrorCode.ENHANCE_YOUR_CALM))

    def __repr__(self) -> str:
        return f"<Http2Protocol {self.peer[0]}:{self.peer[1]} {self.connection!r}>"
