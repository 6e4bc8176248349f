"""An HTTP/2 connection on a socket: what is read in one turn is dispatched together, what is answered leaves together.

Frames are read in slices, for as long as the connection's peer has time in this turn (turns.py). The rest waits,
counted, and the socket is not read until it is the connection's turn again.

It holds what a connection may hold. From 8 KiB on, messages, open requests and unsent data count with those of all
connections (client_memory.py). While the client does not read, its socket is not read. The timer bounds how long that
lasts (connection_timer.py). A connection that ends lingers (lingering.py): its client, which opens windows while it
reads, gets to read all that was sent. The owners of its requests are told of their end in turns, too: each may end a
task.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from random import uniform
from typing import Protocol, cast

from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns
from app.transports.http2.connection_timer import ConnectionTimer
from app.transports.http2.events import Data, Event, PingAnswered, Request, Reset
from app.transports.http2.frames import ErrorCode
from app.transports.http2.hpack import HeaderList
from app.transports.http2.limits import Http2Limits
from app.transports.http2.sans_io_connection import SansIoConnection
from app.transports.http2.sending import DRAIN
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.lingering import Lingering
from app.transports.memory.client_memory import ClientMemory
from app.transports.tls.tls_connection import TlsConnection

#: What a connection may hold uncounted, of messages and of all else. Chosen: two usual requests.
_FREE_BYTES = 2**13

#: Bytes that wait for the socket before no more are taken, and nothing is read; so many are not counted. Chosen: two
#: frames.
_HIGH_WATER = 2**15

#: Frames that are read in any case, and between two looks at the clock. Chosen: several requests of an honest client.
_SLICE = 16

#: A client of whose replies so much waits is watched: is it slow? Chosen.
_MUCH_BYTES = 2**16


class Application(Protocol):
    """The application that answers the requests of a server's connections."""

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        """A request, which gets its owner here unless it is answered at once. Must not raise."""


_A_TENTH_MORE_OR_LESS = partial(uniform, 0.9, 1.1)


class Http2Connections:
    """The connections of a server, and the parts that they share.

    Args:
        most: open at the same time, those within the handshake of TLS included; see `make_room`.
        jitter: the age of a connection is multiplied by it.

    Attributes:
        arriving: those within the handshake of TLS.
        unused: these, and those open of which no request has come yet, the oldest first.
        answered: connections that are flushed at the end of this pass of the event loop.
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
        jitter: Callable[[], float] = _A_TENTH_MORE_OR_LESS,
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
        self.answered: set[Http2Protocol] = set()

    def make_room(self) -> bool:
        """Makes room for one more: the oldest connection without a request gives way. False if all have had a request.

        Silence costs a client nothing, before its handshake or after it. So a silent connection may stay until `most`
        further ones have come; connections with requests stay in any case.
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

    def flush_answered(self) -> None:
        answered, self.answered = self.answered, set()
        for each in answered:
            each.flush()

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
    """A client's HTTP/2 connection on its socket.

    Attributes:
        transport: the socket's; closed once the connection ends.
        peer: the client's address and port; ('', 0) for a Unix socket.
        heard: something has come since the timer looked; received: bytes that have come.
        draining: it takes no more requests.
        lasting: open requests each of which has a task for as long as it lasts, as their application counts them.
        asks_who_drains: the client is asked by a ping whether it has read that it is to open no more streams.
    """

    asks_who_drains = True

    def __init__(self, shared: Http2Connections) -> None:
        self._shared = shared
        self.connection = SansIoConnection(shared.limits, shared.clock)
        self.transport: asyncio.Transport
        self.peer: tuple[str, int] = ("", 0)
        # Its part of the time of the event loop.
        self.turns = Turns.of_loop(shared.clock)
        self.share = Share("")
        # What it holds of the memory for clients.
        self.memory = shared.memory
        self._held = self._counted_held = 0  # bytes of messages of requests that are not answered
        self._counted = 0  # of all else
        # For the timer.
        self.heard, self.received = True, 0
        self._much_waits = False
        self.timer = ConnectionTimer(shared.times, shared.memory, shared.clock, shared.jitter)
        # Its state.
        self._unused = False  # no request has come yet
        self.draining = False
        self.lasting = 0
        self._ending: deque[Event] = deque()  # requests that are gone, whose owners were not told yet
        self._ending_share = Share("")
        self._lost = False
        self._lingering: Lingering | None = None  # all was sent; what still comes is thrown away
        self._hastens = False

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
            self.share.peer = self._ending_share.peer = str(peer[0])
        transport.set_write_buffer_limits(_HIGH_WATER)
        self.timer.look(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self.received += len(data)
        if self.connection.more:  # the rest waits for the connection's share of the loop
            self.connection.keep(data)
            self._count()
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        """Reads frames while the connection has its share of the loop, and answers requests that need no wait."""
        connection, turns = self.connection, self.turns
        began_s = turns.clock()
        self._dispatch_all(connection.receive(data, _SLICE))
        if connection.more:
            self._read_more(turns.began(self.share, began_s))
        if self._unused and connection.last_stream:
            self._leave_unused()
        self.flush()
        turns.ended(self.share, began_s)

    def _read_more(self, end_s: float) -> None:
        connection, clock = self.connection, self.turns.clock
        while connection.more and clock() < end_s:
            self._dispatch_all(connection.receive(b"", _SLICE))
        if connection.more and not self.transport.is_closing():
            self.transport.pause_reading()
            self.turns.later(self.share, self._read_on, again=True)

    def _read_on(self) -> None:
        """The connection has its share of the loop again."""
        self._read(b"")
        self._read_socket()

    def _read_socket(self) -> None:
        if not (self.connection.more or self.connection.blocked or self.ends or self.transport.is_closing()):
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        return False  # a client that closes its side reads no answers

    def pause_writing(self) -> None:
        self.connection.blocked = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.connection.blocked = False
        self.heard = True
        self._read_socket()
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._shared.open.discard(self)
        self._leave_unused()
        self.timer.stop()
        self._lost = True
        self.connection.fail(ErrorCode.NO_ERROR, "the connection is lost")
        self._end_requests(self.connection.take_events())
        self.connection.blocked = False  # uvloop's transport still has its buffer
        self._count()

    def _leave_unused(self) -> None:
        self._unused = False
        self._shared.unused.pop(self, None)

    # --- dispatch ---

    def _dispatch_all(self, events: list[Event]) -> None:
        if self.connection.failure:
            self._end_requests(events)
            return
        for event in events:
            self._dispatch(event)

    def _dispatch(self, event: Event) -> None:
        kind = type(event)
        if kind is Data:
            stream, content, ended = event  # type: ignore[misc] # the kind says what it is
            if stream.owner is not None:
                stream.owner.data(content, ended)
        elif kind is Request:
            self._shared.application.begin(self, *event)
        elif isinstance(event, PingAnswered):
            self.timer.ping_answered()
            if event.content == DRAIN and self.draining:
                self.connection.end_drain()
        elif (owner := event.stream.owner) is not None:
            if isinstance(event, Reset):
                event.stream.owner = None
                owner.gone()
            else:
                owner.sent()

    # --- to answer ---

    def flush(self) -> None:
        """Sends the answers, as far as the socket takes them."""
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
        drained = self.draining and connection.drained and not connection.streams
        if (connection.failure or drained) and not self.transport.is_closing():
            self._linger()

    def flush_soon(self) -> None:
        """Sends the answers at the end of this turn of the event loop, with those of other connections."""
        shared = self._shared
        if not shared.answered:
            asyncio.get_running_loop().call_soon(shared.flush_answered)
        shared.answered.add(self)

    @property
    def times(self) -> Times:
        return self.timer.times

    def hold(self, size: int) -> bool:
        """Holds this many bytes more of a message; False if there is no memory for them. They are to be released."""
        self._held += size
        more = self._held - self._counted_held
        if more > _FREE_BYTES:
            if not self.memory.take_body(more):
                return False
            self._counted_held += more
        return True

    def release(self, size: int) -> None:
        self._held -= size
        if self._counted_held > self._held:
            self.memory.give_body(self._counted_held - self._held)
            self._counted_held = self._held

    def _count(self) -> None:
        """Counts all memory but messages: open requests, unsent data, and incomplete frames."""
        connection = self.connection
        held, waits = connection.held, connection.unsent
        if connection.blocked:
            left = self.transport.get_write_buffer_size()
            held, waits = held + left, waits + left
        if held <= _FREE_BYTES:
            held = 0
        if held != self._counted:
            self.memory.change_unread(held - self._counted)
            self._counted = held
        if (waits > _MUCH_BYTES) is not self._much_waits:
            self._much_waits = not self._much_waits
            self.timer.watch_reader(self, slow=self._much_waits)

    @property
    def taken(self) -> int:
        """Bytes of data that the socket has taken."""
        return self.connection.sent - self.transport.get_write_buffer_size()

    # --- the end ---

    @property
    def ends(self) -> bool:
        """Whether all was sent, and nothing is read any more."""
        return self._lingering is not None

    def drain(self, grace_s: float = inf) -> None:
        """Takes no more requests, and ends when those that it has are answered, or after `grace_s` seconds."""
        self.timer.drain_within(self, grace_s)
        if not self.draining:
            self.draining = True
            self.connection.begin_drain(ask=self.asks_who_drains)
            self.flush()
        self.timer.look_in(self, 0.0)

    def leave(self) -> None:
        """Ends without an error, when it is time: it is old, or the server drains."""
        self.drain()

    def cut_reply(self, stream: Stream) -> None:
        """Ends a reply that its client does not take."""
        self.connection.reset(stream, ErrorCode.ENHANCE_YOUR_CALM)
        self._dispatch(Reset(stream, ErrorCode.ENHANCE_YOUR_CALM))

    def end(self) -> None:
        """Ends at once; the client sees its calls as not answered, and reads what was sent before."""
        self.connection.fail(ErrorCode.NO_ERROR, "the server ends")
        self._end_requests(self.connection.take_events())
        self.flush()

    def _end_requests(self, events: Iterable[Event]) -> None:
        """Dispatches the last events: a few at once, the others in turns."""
        ends = bool(self._ending)
        self._ending.extend(events)
        if not ends:
            self._end_some()

    def _end_some(self) -> None:
        for _ in range(min(_SLICE, len(self._ending))):
            self._dispatch(self._ending.popleft())
        if self._ending:
            self.turns.later(self._ending_share, self._end_some, again=True)
        else:
            self._all_ended()

    def _all_ended(self) -> None:
        """Takes no share of the loop any more. Not before: tasks that wait for it would all go on together."""
        self.turns.forget(self.share)
        if self._lost:
            self.release(self._held)

    def give_way(self) -> None:
        """Ends for another connection, and lingers no longer, or not at all. It has no request."""
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
        self.timer.stop()
        if not self._ending:
            self.turns.forget(self.share)
        self._lingering = Lingering(self.transport, self.connection_lost)
        if self._hastens:
            self._lingering.hasten()

    def __repr__(self) -> str:
        return f"<Http2Protocol {self.peer[0]}:{self.peer[1]} {self.connection!r}>"
