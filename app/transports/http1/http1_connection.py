"""An HTTP/1.1 connection that answers inference requests itself and lets an ASGI application answer all others.

It reads heads and decides which way a request takes; what it answers itself is the fast path (direct_connection.py).
The protocols behind both ways are the same (`HttpApi.begin`), and so are the replies. Its states are in
connection_state.py.

Rules:

- Where a request ends is decided here alone (RFC 9112, section 6): `HeadParser` reads the head, a `Framing` the body.
  What cannot be read is answered with 400, 414, 431, 501 or 505, and nothing behind it is read as a request.
- Requests are answered one at a time. Bytes that arrive meanwhile are kept and reading is paused (pipelined.py).
- After a reply with `Connection: close` no request is read (section 9.6). While the server is about to drain, every
  last reply says so, and a connection whose client was not told stays open: it may send a request at any time.
- A connection is closed `keep_alive_s` seconds after its last reply if no further byte arrives (arrival_timer.py).
- A head has `arrival_timeout_s` to arrive, counted from its first byte, or from the beginning of the connection. A body
  has `arrival_timeout_s`, too, and one second more for each `min_body_bytes_per_s` that have arrived; its deadline is
  never more than `arrival_timeout_s` ahead. Once its response has begun (a stream), only silence counts. A request that
  is later gets 408.
- A body that does not come with its head needs room in the memory budget, or is rejected unread; while the budget is
  full, so is every request that has one. A reply that the client does not read is cut (held_memory.py).
- A connection that begins with HTTP/2's preface, or whose TLS chose h2, is one of HTTP/2 (RFC 9113, section 3). Then an
  HTTP/2 connection takes over its socket (accepting_server.py: `Http2`).
- A client that stops sending gets the replies to its whole requests (half_closed.py). A client that sends more than is
  read gets the last reply (lingering.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import cast

from app.core.inference import Buffer
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.probes import Probes, probe_of
from app.transports.http.replies import LATE, Fault, fault_of, is_large
from app.transports.http1.connection_state import IDLE, State
from app.transports.http1.direct_connection import DirectConnection
from app.transports.http1.half_closed import HalfClosed
from app.transports.http1.head_parser import EMPTY_LINE, HTTP2, HeadParser
from app.transports.http1.held_memory import HeldMemory
from app.transports.http1.http1_asgi_request import Http1AsgiRequest
from app.transports.http1.known_heads import KnownHeads
from app.transports.http1.over_limit import OverLimit
from app.transports.http1.pipelined import Pipelined
from app.transports.http1.status_lines import STATUS_LINES, closing_reply
from app.transports.lingering import is_unread
from app.transports.memory.body_room import growth_of
from app.transports.request_id import id_in, id_line

_AT_REST = frozenset({State.IDLE, State.ENDING})
_WITHOUT_REQUEST = frozenset({State.IDLE, State.HEAD})
_READING = frozenset({State.IDLE, State.HEAD, State.BODY})


class Http1Connection(DirectConnection):
    """A client's HTTP/1.1 connection: it reads heads, and chooses the way of each request."""

    def __init__(self, known_heads: KnownHeads, server: AcceptingServer) -> None:
        super().__init__(known_heads.fast_path, server)
        self._known_heads = known_heads
        self._keep_alive_s = server.limits.keep_alive_s
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None  # a response waits for it
        self._must_close = False  # it closes even if the head of its last reply had left without saying so
        self._replies = 0

        # Of the request that is read now.
        self._head: HeadParser | None = None

        # Of the request that ASGI answers now.
        self._asgi: Http1AsgiRequest | None = None

    # --- the transport calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self.share.peer = self.address
        self.pipelined = Pipelined(self.transport)
        self._memory = HeldMemory(self._fast_path.memory, self.transport, self._limits)
        if rejected := self._server.opened(self, admit=True):
            OverLimit(self.transport, rejected, self._limits, self._common_lines, self._serve_last)
            return
        self.arrival.start(self._too_late)
        self._says_close = self._fast_path.leaving
        self._old_s = self._fast_path.clock() + self._limits.age_s()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._begin_http2(b"")

    def _serve_last(self, data: bytes) -> None:
        """Answers one request beyond the limit of connections."""
        self.transport.set_protocol(self)
        self._server.opened(self, admit=False)
        self.arrival.start(self._too_late)
        self._says_close = True
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state is IDLE:
            self._read_request(data)
        elif state is State.BODY:
            self._read_body(data)
        elif state is State.HEAD:
            self._read_head(data)
        elif self._asgi is not None:
            if self._asgi.grows and not self._memory.take_body(len(data), self._asgi.growth):
                self._refuse_memory()
            else:
                self._asgi.data_received(data)
        elif state is not State.ENDING:
            self.pipelined.keep(data)

    def eof_received(self) -> bool:
        """The client sends no more. True keeps the connection open: a whole request is being answered."""
        self._says_close = self._must_close = True
        if self._state is not State.ANSWERING and (self._asgi is None or self._asgi.more_comes):
            return False
        self._half_closed = HalfClosed(self.transport, self._may_interrupt)
        return True

    def pause_writing(self) -> None:
        self._write_paused = True
        self._memory.reply_waits()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._memory.reply_flows()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._state = State.ENDING
        self._server.closed(self)
        self.turns.forget(self.share)
        self.arrival.stop()
        self.resume_writing()

        # The request and the connection refer to each other: cut the circle, so that their memory is freed now.
        if self._half_closed is not None:
            self._half_closed.stop()
        asgi, self._asgi, self._half_closed = self._asgi, None, None
        self._abandon(asgi)

    # --- the server calls these ---

    @property
    def waits_since_s(self) -> float:
        """Monotonic second since which it waits for a whole head; inf if it has one, -inf after its last reply."""
        if self._lingering is not None:
            return -inf
        if self._state is State.IDLE and self._replies:
            return self.arrival.due_s - self._keep_alive_s
        return self.arrival.due_s - self._limits.arrival_timeout_s if self._state in _WITHOUT_REQUEST else inf

    def give_way(self) -> None:
        """Closes the connection, which has no request. If it lingers, its descriptor is freed at once."""
        if self._lingering is not None:
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def awaits_answer(self) -> bool:
        """Has the head of a request arrived, and not all of its reply been given?"""
        return self._exchange is not None or self._state is State.ASGI

    @property
    def is_unread(self) -> bool:
        """Has a request, or a part of one, arrived that the event loop has not seen?"""
        return self._state in _READING and is_unread(self.transport)

    @property
    def may_bring_more(self) -> bool:
        """Has a request begun, or has none come yet?"""
        return self._state not in _AT_REST or (self._state is State.IDLE and not self._replies)

    def leave(self) -> None:
        """The next reply tells the client to go elsewhere, and closes the connection; until then it is served."""
        self._says_close = True

    def close_if_idle(self, idle_s: float = 0.0) -> None:
        waited_s = self._fast_path.clock() - self.waits_since_s
        if self._state is State.IDLE and waited_s >= idle_s and not self.is_unread:
            self._end(unread=True)

    def shutdown(self) -> None:
        """Closes the connection after the replies to requests whose head was read."""
        if self._lingering is not None:
            self._lingering.hasten()
            return
        self._says_close = self._must_close = True
        if self._exchange is None and (self._asgi is None or self._asgi.answered):
            self.transport.close()

    # --- reading a request ---

    def _read_request(self, data: bytes) -> None:
        self.arrival.due_s = inf

        # 1. A head that means what one before it meant is not parsed.
        if not self._write_paused:
            expected = self._expected
            recognised = None if expected is None else expected.read(data)
            if recognised is None:
                end = data.find(EMPTY_LINE)
                if end >= 0:
                    recognised = self._known_heads.find(data[: end + len(EMPTY_LINE)])
            if recognised is not None:
                self._begin(recognised, data)
                return

        # 2. Every other one is.
        self._head = HeadParser(self._limits)
        self._state = State.HEAD
        self._read_head(data)

    def _read_head(self, data: bytes) -> None:
        head = self._head
        assert head is not None  # noqa: S101 - this state has a parser
        first = head.raw + data if len(head.raw) < len(HTTP2) and not self._replies else b""
        if first.startswith(HTTP2) and self._begin_http2(first):
            return
        if not head.feed(data):
            self.arrival.expect()
            self._end_if_half_closed()
            return
        self._head = None
        self.arrival.due_s = inf

        if head.fault is not None:
            self.refuse(head.fault)
            return
        probes, probe = self._fast_path.probes, probe_of(head.method, head.target)
        if probe and probes is not None and not (head.length or head.chunked or head.expects or self._write_paused):
            self._answer_probe(head, probes, probe)
            return
        recognised = None if self._write_paused else self._known_heads.admit(head)
        if recognised is None:
            self._begin_asgi(head)
        else:
            self._begin(recognised, head.raw)

    def _begin_http2(self, received: bytes) -> bool:
        """Hands the connection over, with the first bytes of its client."""
        http2 = self._server.http2
        if http2 is None or self._must_close or (self._says_close and not self._fast_path.leaving):
            return False
        http2.begin(self, self.transport, self._server, received)

        # The socket, and its place in the server, are another connection's.
        self._state = State.ENDING
        self.arrival.stop()
        self._abandon(None)
        return True

    # --- the next request ---

    def _answered(self, now: float) -> None:
        """A reply was written, and another request may follow, or be here already."""
        self._replies += 1
        self._server.count_reply()
        self.arrival.due_s = now + self._keep_alive_s
        if self.pipelined.pieces:
            self._state = State.ANSWERING
            self.read_on()
        else:
            self._state = IDLE

    def read_on(self) -> None:
        self._loop.call_soon(self._read_on)  # not at once: the reply may still be in the buffer

    def _read_on(self) -> None:
        if self._state is State.ANSWERING and self._exchange is None:
            self._state = State.IDLE
        while self.pipelined.pieces and self._reads():
            self.data_received(self.pipelined.pieces.pop(0))
        stays = self._state is not State.ENDING and not self.transport.is_closing()
        if stays and not self.pipelined.pieces and self._half_closed is None:
            self.transport.resume_reading()

    def _reads(self) -> bool:
        if self.transport.is_closing():
            return False
        return self._asgi.reads if self._asgi is not None else self._state in _READING

    # --- a request that asks how the server is ---

    def _answer_probe(self, head: HeadParser, probes: Probes, probe: str) -> None:
        if behind := head.raw[head.end :]:
            self.pipelined.keep_rest(behind)
        request_id = id_in(head.headers)
        reply = probes.answer(probe, client=self.address, method=head.method, target=head.target, request_id=request_id)
        lines = [STATUS_LINES[reply.status], self._common_lines(), reply.head_lines()]
        if request_id:
            lines.append(id_line(request_id))
        pieces, http_1_0 = () if head.method == b"HEAD" else reply.pieces, head.version == "1.0"
        self._reply(lines, pieces, self._fast_path.clock(), keep_alive=head.keep_alive, http_1_0=http_1_0)

    # --- a request that ASGI answers ---

    def _begin_asgi(self, head: HeadParser) -> None:
        memory, missing = self._memory, head.length > len(head.raw) - head.end
        full = memory.budget.full and (head.chunked or head.length)  # without a body it is answered: metrics
        if (missing or full) and not memory.take_body(head.length, growth_of(head.headers, head.target)):
            self._refuse_memory()
            return
        self._state = State.ASGI
        self._asgi = Http1AsgiRequest(self, self._server, head)
        behind, head.raw = head.raw[head.end :], b""  # the request holds the head, not its bytes
        self._asgi.begin(behind)

    def _refuse_memory(self) -> None:
        self.refuse(fault_of(self._memory.rejection()))

    @property
    def may_stay(self) -> bool:
        much = self._asgi is not None and self._asgi.much_missing
        self._is_old(self._fast_path.clock())
        return not much and (not self._says_close or bool(self.pipelined.pieces))

    def write(self, pieces: Sequence[Buffer]) -> None:
        if not self.transport.is_closing():
            joined = pieces if is_large(pieces) else [b"".join(pieces)]
            self._fast_path.reply_buffer.write(self.transport, joined, close=False)

    async def writable(self) -> None:
        if self._write_paused and self._state is State.ASGI:
            self._writable = self._loop.create_future()
            await self._writable

    def next_request(self) -> None:
        self._asgi = None
        self._memory.give_body()
        self._answered(self._fast_path.clock())
        if self._must_close and not self.pipelined.pieces:
            self.transport.close()

    def end(self) -> None:
        asgi, self._asgi = self._asgi, None
        self._memory.give_body()
        self._server.count_reply()
        unread = bool(self.pipelined.pieces) or (asgi is not None and asgi.more_comes)
        self._end(unread=unread or self._fast_path.leaving or self._fast_path.clock() >= self._old_s)

    def refuse(self, fault: Fault) -> None:
        """Answers a request that cannot be read, if its response has not begun. Nothing behind it is read."""
        asgi, self._asgi = self._asgi, None
        if asgi is None or not asgi.begun:
            self.write([closing_reply(fault, self._common_lines())])
            self._server.count_reply()
        self._abandon(asgi)
        self._end(unread=True)

    # --- the end ---

    def _too_late(self) -> None:
        """The client is late: with a head, a body or its next request."""
        if self._state is State.IDLE:
            self.transport.close()
        else:
            self.refuse(LATE)

    def _abandon(self, asgi: Http1AsgiRequest | None) -> None:
        """Lets go of what was read, and of the request that is answered."""
        self._memory.give_body()
        self.pipelined.pieces = []
        self._body = []
        if self._head is not None:
            self._head.drop()
            self._head = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
        if asgi is not None:
            asgi.abandon()

    def _may_interrupt(self) -> bool:
        return self._exchange is not None or (self._asgi is not None and self._asgi.may_interrupt)

    def __repr__(self) -> str:
        behind = f", {sum(map(len, self.pipelined.pieces))} bytes behind" if self.pipelined.pieces else ""
        return f"<Http1Connection {self._state.value}, {self._replies} replies{behind}>"
