"""An HTTP/1.1 connection that answers inference requests itself and lets an ASGI application answer all others.

ASGI costs a request three to four times as much as reading and answering it: a task, events, two messages in either
direction and a timer (docs/architecture.md, "HTTP"). On the fast path (fast_path.py) the whole requests of one
turn of the event loop are collected (coalescing.py), and the next callback submits them to the batcher; a reply goes
from the batcher to the socket in one call. The protocols behind both ways are the same (`HttpProtocol.begin`), and so
are the replies.

What it does is told by its state; each transition is made by the method that is named:

    IDLE -> HEAD -> BODY -> ANSWERING -> IDLE   by the fast path: _read_request, _begin, _read_body, reply
    IDLE -> HEAD -> ASGI -> IDLE                by the application: _begin_asgi, next_request
    any -> ENDING                               nothing is read as a request any more: reply, end, refuse
    HEAD -> ENDING                              HTTP/2 goes on with the socket: _became_http2

A head that is recognised skips HEAD, a body that comes with its head skips BODY. After a reply the next request may
be here already (pipelining): then ANSWERING lasts until it is read (`_read_on`).

Rules:

- Where a request ends is decided here alone (RFC 9112, section 6): `HeadParser` reads the head, a `Framing` the body.
  What cannot be read is answered with 400, 414, 431, 501 or 505, and nothing behind it is read as a request.
- One request at a time is answered. Bytes that arrive meanwhile are kept and reading is paused (pipelined.py).
- The body of a request on the fast path is as long as Content-Length says (section 6.3); it is not parsed.
- After a reply with `Connection: close` no request is read (section 9.6). While the server is about to drain, every
  last reply says so, and a connection whose client was not told stays open: it may send a request at any time.
- A connection is closed `keep_alive_s` seconds after its last reply if no further byte arrives (arrival_timer.py).
- A head has `arrival_timeout_s` to arrive, counted from its first byte, or from the beginning of the connection. A body
  has as long, and one second more for each `min_body_bytes_per_s` that have arrived, but never more than that time
  ahead; once its response has begun (a stream), only silence counts. A request that is later gets 408.
- A body that does not come with its head needs room in the memory budget, or is rejected unread; while the budget is
  full, so is every request that has one. A reply that the client does not read is cut (held_memory.py).
- A connection that begins with HTTP/2's preface, or whose TLS says h2, is one of HTTP/2 (RFC 9113, section 3), and one
  whose request asks for it becomes one. Then all of this is another's (accepting_server.py: `Http2`).
- A client that stops sending gets the replies to its whole requests, and one that sends what nobody reads gets the last
  reply (half_closed.py, lingering.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from functools import partial
from http import HTTPStatus
from math import inf
from typing import cast

from app.core.inference import Buffer
from app.transports.http.rejections import Rejection
from app.transports.http.replies import CLOSE, Sendable, is_large
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http1.accepting_server import AcceptingServer
from app.transports.http1.arrival_timer import ArrivalTimer
from app.transports.http1.asgi.asgi_call import AsgiCall
from app.transports.http1.direct.alike_heads import AlikeHeads, ParsedHead, Recognised
from app.transports.http1.direct.direct_exchange import DirectExchange
from app.transports.http1.direct.fast_path import FastPath
from app.transports.http1.half_closed import HalfClosed
from app.transports.http1.head_parser import EMPTY_LINE, HTTP2, Fault, HeadParser
from app.transports.http1.held_memory import HeldMemory
from app.transports.http1.over_limit import OverLimit
from app.transports.http1.pipelined import Pipelined
from app.transports.http1.served_connection import ServedConnection
from app.transports.http1.status_lines import STATUS_LINES, closing_reply
from app.transports.lingering import Lingering, is_unread
from app.transports.request_id import id_line
from app.transports.trace_context import parent_in_head

_LINE_END = b"\r\n"
_TIMING = SERVER_TIMING + b": "
_OK_LINES = b"%b%bcontent-type: %b\r\n" + _TIMING + b"%b\r\ncontent-length: "

_LATE = Fault(408, "The request did not arrive in time")


class State(Enum):
    """What a connection does now."""

    IDLE = "idle"
    HEAD = "reading a head"
    BODY = "reading a body"
    ANSWERING = "answering"
    ASGI = "answering by ASGI"  # and reading the body
    ENDING = "ending"


#: Of each request. Measured: to look one up as an attribute of State takes 60 ns more (Python 3.11).
_IDLE, _ANSWERING = State.IDLE, State.ANSWERING

_AT_REST = frozenset({State.IDLE, State.ENDING})
_WITHOUT_REQUEST = frozenset({State.IDLE, State.HEAD})
_READING = frozenset({State.IDLE, State.HEAD, State.BODY})


class HttpConnection(ServedConnection):
    """One connection of a client."""

    http_version = "1.1"

    def __init__(self, fast_path: FastPath, server: AcceptingServer) -> None:
        # Of the server.
        self._fast_path = fast_path
        self._server = server
        self._limits = server.limits
        self._keep_alive_s = server.limits.keep_alive_s
        self.tasks = server.tasks

        # Of the connection.
        self.transport: asyncio.Transport
        self.pipelined: Pipelined
        self.arrival = ArrivalTimer(server.limits, fast_path.clock)
        self._memory: HeldMemory
        self._loop = asyncio.get_running_loop()
        self._state = State.IDLE
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None  # a response waits for it
        self._says_close = False  # the reply to the last request that is here has Connection: close
        self._must_close = False  # it closes then even if the head of that reply had left without it
        self._lingering: Lingering | None = None  # what comes after the last reply is thrown away
        self._half_closed: HalfClosed | None = None  # the client sends no more
        self._replies = 0
        self._expected: AlikeHeads | None = None  # what the next head may be like

        # Of the request that is read or answered now.
        self._head: HeadParser | None = None
        self._exchange: DirectExchange | None = None
        self._body: list[bytes] = []
        self._missing = 0  # bytes of the body that have not arrived; below 0 if bytes behind it have

        # Of the request that ASGI answers now.
        self._asgi: AsgiCall | None = None

    # --- the transport calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self.pipelined = Pipelined(self.transport)
        self._memory = HeldMemory(self._fast_path.memory, self.transport, self._limits)
        if rejected := self._server.opened(self, admit=True):
            OverLimit(self.transport, rejected, self._limits, self._common_lines, self._serve_last)
            return
        self.arrival.start(self._too_late)
        self._says_close = self._fast_path.leaving
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
        if state is _IDLE:
            self._read_request(data)
        elif state is State.BODY:
            self._read_body(data)
        elif state is State.HEAD:
            self._read_head(data)
        elif self._asgi is not None:
            if self._asgi.grows and not self._memory.take_body(len(data)):
                self._refuse_memory()
            else:
                self._asgi.data_received(data)
        elif state is not State.ENDING:
            self.pipelined.keep(data)

    def eof_received(self) -> bool:
        """The client sends no more. True keeps the connection open: a whole request is being answered."""
        self._says_close = self._must_close = True
        if self._state is not State.ANSWERING and (self._asgi is None or not self._asgi.body_complete):
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
        self.arrival.stop()
        self.resume_writing()

        # What they hold is freed now: they and the connection name each other.
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
        """Closes the connection, which has no request. One that lingers holds its descriptor no longer."""
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
                    recognised = self._fast_path.recognise(data[: end + len(EMPTY_LINE)])
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
        if head.asks_for_http2 and self._upgrade(head):
            return
        recognised = None if self._write_paused else self._fast_path.admit(head)
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
        self._became_http2()
        return True

    def _upgrade(self, head: HeadParser) -> bool:
        """Hands the connection over if the request may go on as one of HTTP/2; a server may ignore that it asks.

        So it is ignored where there is a body, or anything behind the request: where that ends must not depend on it.
        """
        http2 = self._server.http2
        alone = not (head.length or head.chunked or len(head.raw) > head.end or self.pipelined.pieces)
        if http2 is None or self._says_close or self._write_paused or not alone:
            return False
        if not http2.upgrade(self, self.transport, self._server, head):
            return False
        self._became_http2()
        return True

    def _became_http2(self) -> None:
        """The socket, and its place in the server, are another's."""
        self._state = State.ENDING
        self.arrival.stop()
        self._abandon(None)

    def _begin(self, recognised: Recognised, data: bytes) -> None:
        """Begins a request whose head `data` begins with."""
        parsed, length, request_id, has_parent, end, self._expected = recognised
        body = data[end:]
        missing = length - len(body)  # below 0 if the next request follows the body

        # 1. An earlier rejection applies: the request is answered without parsing its body.
        rejection = parsed.head.rejection
        if rejection is not None and not missing and self._reject(parsed, rejection, body, request_id):
            return

        protocol = parsed.protocol
        self._exchange = DirectExchange(
            self, protocol, parsed.head, keep_alive=parsed.keep_alive, request_id=request_id
        )
        if protocol.tracing is not None:
            self._exchange.trace = protocol.tracing.begin(parent_in_head(data[:end]) if has_parent else None)

        # 2. There is no memory for more.
        memory = self._memory
        if (missing > 0 or memory.budget.full) and not memory.take_body(length):
            self._missing = missing
            self._exchange.set_exception(memory.budget.rejection())
            return

        # 3. A part of the body is yet to come.
        if missing > 0:
            self._state = State.BODY
            self._body, self._missing = [body], missing
            self.arrival.expect()
            self._end_if_half_closed()
            return

        # 4. The body is here, perhaps with the next request behind it.
        self._state = _ANSWERING
        if missing:
            self.pipelined.keep_rest(body[length:])
            body = body[:length]
        self._fast_path.coalescer.add(self._exchange, body)

    def _read_body(self, data: bytes) -> None:
        self._body.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            self.expect_body(len(data), streaming=False)
            return

        self._state = State.ANSWERING
        self.arrival.due_s = inf
        if self._missing:  # below 0: this many bytes at the end of `data` are behind the body
            self._body[-1] = data[: self._missing]
            self.pipelined.keep_rest(data[self._missing :])
        body, self._body = b"".join(self._body), []
        assert self._exchange is not None  # noqa: S101 - it began with the head
        self._fast_path.coalescer.add(self._exchange, body)

    def _reject(self, parsed: ParsedHead, rejection: Rejection, body: bytes, request_id: bytes) -> bool:
        """Rejects the request without parsing its body, if an earlier rejection with the same head still applies."""
        now = self._fast_path.clock()
        if self._says_close or not (parsed.keep_alive and rejection.holds(body, now)):
            return False
        common = self._fast_path.common_lines(self._server.headers)
        own = id_line(request_id) if request_id else b""
        reply = b"".join((STATUS_LINES[rejection.reply.status], common, own, rejection.rest))
        self._fast_path.reply_buffer.write(self.transport, [reply], close=False)
        self._answered(now)
        exchange = partial(DirectExchange, self, parsed.protocol, parsed.head, keep_alive=True, request_id=request_id)
        parsed.protocol.rejected(rejection, self._fast_path.clock() - now, exchange)
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
            self._state = _IDLE

    def read_on(self) -> None:
        self._loop.call_soon(self._read_on)  # not at once: the reply may still be in the buffer

    def _read_on(self) -> None:
        if self._state is State.ANSWERING and self._exchange is None:
            self._state = State.IDLE
        self.pipelined.read(self.data_received, self._reads)
        if not self.pipelined.pieces and self._half_closed is None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _reads(self) -> bool:
        if self.transport.is_closing():
            return False
        return self._asgi.reads if self._asgi is not None else self._state in _READING

    # --- a request that ASGI answers ---

    def _begin_asgi(self, head: HeadParser) -> None:
        memory, missing = self._memory, head.length > len(head.raw) - head.end
        full = memory.budget.full and (head.chunked or head.length)  # who has no body is answered: probes, metrics
        if (missing or full) and not memory.take_body(head.length):
            self._refuse_memory()
            return
        self._state = State.ASGI
        self._asgi = AsgiCall(self, head, self._server.headers)
        self._asgi.start(self._server, head)

    def _refuse_memory(self) -> None:
        self.refuse(Fault(HTTPStatus.SERVICE_UNAVAILABLE, str(self._memory.budget.rejection())))

    @property
    def may_stay(self) -> bool:
        much = self._asgi is not None and self._asgi.much_missing
        return not much and (not self._says_close or bool(self.pipelined.pieces))

    def write(self, pieces: Sequence[Buffer]) -> None:
        if not self.transport.is_closing():
            joined = pieces if is_large(pieces) else [b"".join(pieces)]
            self._fast_path.reply_buffer.write(self.transport, joined, close=False)

    async def writable(self) -> None:
        if self._write_paused and self._state is State.ASGI:
            self._writable = self._loop.create_future()
            await self._writable

    def expect_body(self, size: int, *, streaming: bool) -> None:
        self.arrival.body_arrived(size, streaming=streaming)
        self._end_if_half_closed()

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
        unread = bool(self.pipelined.pieces) or (asgi is not None and not asgi.body_complete)
        self._end(unread=unread or self._fast_path.leaving)

    def refuse(self, fault: Fault) -> None:
        """Answers a request that cannot be read, if its response has not begun. Nothing behind it is read."""
        asgi, self._asgi = self._asgi, None
        if asgi is None or asgi.may_be_refused:
            self.write([closing_reply(fault.status, fault.text, self._common_lines())])
            self._server.count_reply()
        self._abandon(asgi)
        self._end(unread=True)

    # --- the exchange calls this ---

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        """Writes the reply; the connection is free for the next request."""
        lines = [STATUS_LINES[reply.status], self._common_lines(), reply.head_lines()]
        if exchange.timing:
            lines += _TIMING, exchange.timing, _LINE_END
        if exchange.request_id:
            lines.append(id_line(exchange.request_id))
        closes = reply.status >= 400 and CLOSE in reply.head()
        self._reply(exchange, lines, reply.pieces, now, closes=closes)

    def ok_lines(self, content_type: bytes, timing: bytes) -> bytes:
        """The lines that replies with status 200 begin with now, up to the value of Content-Length."""
        return _OK_LINES % (STATUS_LINES[200], self._common_lines(), content_type, timing)

    def reply_ok(self, exchange: DirectExchange, start: bytes, body: bytes, now: float) -> None:
        """As `reply`, with status 200; `start` is what `ok_lines` gave."""
        own = id_line(exchange.request_id) if exchange.request_id else b""
        if self._says_close or not exchange.keep_alive:
            self._reply(exchange, [start, b"%d\r\n" % len(body), own], (body,), now, closes=False)
            return
        whole = b"%b%d\r\n%b\r\n%b" % (start, len(body), own, body)
        self._fast_path.reply_buffer.write(self.transport, (whole,), close=False)
        self._answered_directly(now)

    def _reply(
        self, exchange: DirectExchange, lines: list[bytes], pieces: Sequence[Buffer], now: float, *, closes: bool
    ) -> None:
        """Writes a reply whose head has these lines; `closes`: they say that the connection closes."""
        # 1. Its head, which says whether another request may follow.
        keep_alive = exchange.keep_alive and (not self._says_close or bool(self.pipelined.pieces)) and not closes
        if not (keep_alive or closes):
            lines.append(b"connection: close\r\n")
        lines.append(_LINE_END)

        # 2. Head and body leave together. Who may still be sending reads the reply before the connection ends.
        pieces = [b"".join(lines), *pieces] if is_large(pieces) else [b"".join([*lines, *pieces])]
        told = exchange.keep_alive and self._fast_path.leaving  # it may have sent its next request before
        unread = not keep_alive and (told or bool(self.pipelined.pieces) or self._missing > 0)
        self._fast_path.reply_buffer.write(self.transport, pieces, close=not keep_alive and not unread)

        # 3. The request is over.
        if keep_alive:
            self._answered_directly(now)
            return
        self._exchange = None
        self._memory.give_body()
        self._server.count_reply()
        self._state = State.ENDING
        if unread:  # not at once: the reply may still be in the buffer
            self._loop.call_soon(partial(self._end, unread=True))

    def _answered_directly(self, now: float) -> None:
        """The reply to a request on the fast path was written, and another request may follow."""
        self._exchange = None
        if self._memory.body:
            self._memory.give_body()
        self._answered(now)

    def abort(self) -> None:
        """Closes the connection at once: its reply could not be written."""
        self._exchange = None
        self.transport.abort()

    def _common_lines(self) -> bytes:
        return self._fast_path.common_lines(self._server.headers)

    # --- the end ---

    def _end(self, *, unread: bool) -> None:
        """Closes the connection after what was written; the client gets to read it although it sends unread bytes."""
        self._state = State.ENDING
        self.arrival.stop()
        if unread and self._half_closed is None and not self.transport.is_closing():
            self._lingering = Lingering(self.transport, self.connection_lost)
        else:
            self.transport.close()

    def _too_late(self) -> None:
        """What was due of the client has not arrived."""
        if self._state is State.IDLE:
            self.transport.close()
        else:
            self.refuse(_LATE)

    def _abandon(self, asgi: AsgiCall | None) -> None:
        """Lets go of what was read, and of the request that is answered."""
        self._memory.give_body()
        self.pipelined.drop()
        self._body = []
        if self._head is not None:
            self._head.drop()
            self._head = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
        if asgi is not None:
            asgi.abandon()

    def _end_if_half_closed(self) -> None:
        """The rest of a request does not come."""
        if self._half_closed is not None and not self.pipelined.pieces:
            self.transport.close()

    def _may_interrupt(self) -> bool:
        return self._exchange is not None or (self._asgi is not None and self._asgi.may_interrupt)

    def __repr__(self) -> str:
        behind = f", {sum(map(len, self.pipelined.pieces))} bytes behind" if self.pipelined.pieces else ""
        return f"<HttpConnection {self._state.value}, {self._replies} replies{behind}>"
