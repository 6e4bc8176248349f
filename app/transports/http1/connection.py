"""An HTTP/1.1 connection that answers inference requests itself and leaves every other request to uvicorn.

ASGI costs a request three to four times as much as reading and answering it: a task, events, two messages in either
direction and a timer (docs/architecture.md, "The HTTP face"). On the fast path (fast_path.py) the whole requests of one
turn of the event loop are collected (coalescing.py), and the next callback submits them to the batcher; a reply goes
from the batcher to the socket in one call. The protocols behind both ways are the same (`HttpProtocol.begin`), and so
are the replies.

Rules:

- One request at a time is answered. Bytes that arrive meanwhile (pipelining) are kept and reading is paused.
- A request that does not take the fast path is given to uvicorn with every byte since its beginning, through the
  methods of `asyncio.Protocol` (`Relay`). Bytes that arrive later also go to uvicorn, until it has read and answered
  every request in them; then the connection reads again itself. After a parse error or an upgrade uvicorn keeps it.
- The body of a request on the fast path is as long as Content-Length says (RFC 9112, section 6.3); it is not parsed.
- A connection is closed `keep_alive_s` seconds after its last reply if no further byte arrives. If the event loop was
  held up meanwhile, the bytes may wait in the socket: the loop reads once more before the connection is closed.
- A head has 60 s to arrive, counted from its first byte, or from the beginning of the connection; a body has 60 s, and
  one more for each 64 KiB. A connection whose request is later is closed: it would take memory for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from http import HTTPStatus
from math import inf
from typing import Protocol, cast

from app.transports.http.asgi import Header
from app.transports.http.rejections import Rejection
from app.transports.http.replies import CLOSE, Sendable, is_large
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http1.direct_exchange import DirectExchange
from app.transports.http1.fast_path import FastPath, ParsedHead
from app.transports.http1.head_parser import EMPTY_LINE, HeadParser

_LINE_END = b"\r\n"
_TIMING = SERVER_TIMING + b": "

#: Chosen: above 0, so that the event loop polls its sockets before this time is over.
_LAST_READ_S = 0.01

#: Seconds for a head or a body to arrive, as in nginx, and the bytes of a body for which it gets one more (chosen).
_ARRIVAL_S, _SLOW_BYTES_S = 60.0, 64 * 1024

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class State(Enum):
    """What a connection does now."""

    IDLE = "idle"
    HEAD = "reading a head"
    BODY = "reading a body"
    ANSWERING = "answering"
    RELAYING = "relaying to uvicorn"


class Relay(Protocol):
    """Gives a connection's bytes to uvicorn from `feed` until its responses are complete, then calls `take_back`."""

    @property
    def in_head(self) -> bool:
        """Has a part of a head arrived, and is the rest missing?"""

    def feed(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def shutdown(self) -> None: ...


class AcceptingServer(Protocol):
    """The server that accepted the connection: uvicorn's, see uvicorn_adapter.py."""

    keep_alive_s: float
    tasks: set[asyncio.Task[None]]

    @property
    def headers(self) -> Sequence[Header]:
        """Added to every reply. A new object when it changes."""

    def opened(self, connection: HttpConnection) -> None: ...
    def closed(self, connection: HttpConnection) -> None: ...
    def count_reply(self) -> None:
        """Counts one more reply."""

    def relay(self, connection: HttpConnection) -> Relay: ...


class HttpConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, fast_path: FastPath, server: AcceptingServer) -> None:
        # Of the server.
        self._fast_path = fast_path
        self._server = server
        self.tasks = server.tasks

        # Of the connection.
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._state = State.IDLE
        self._write_paused = False
        self._shutting_down = False
        self._closes_s = inf  # monotonic second at which the client is too late; never while a request is answered
        self._closing_timer: asyncio.TimerHandle
        self._replies = 0
        self._relay: Relay | None = None  # made for the first unusual request

        # Of the request that is read or answered now.
        self._head: HeadParser | None = None
        self._exchange: DirectExchange | None = None
        self._body: list[bytes] = []
        self._missing = 0  # bytes of the body that have not arrived; below 0 if bytes behind it have
        self._pipelined = b""  # bytes behind the request, kept until it is answered

    @property
    def address(self) -> str:
        """The client's, without the port; empty on a Unix socket."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    # --- the transport calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self._server.opened(self)
        self._closes_s = self._fast_path.clock() + _ARRIVAL_S
        self._closing_timer = self._loop.call_later(self._server.keep_alive_s, self._close_if_late)

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state is State.IDLE:
            self._read_request(data)
        elif state is State.BODY:
            self._read_body(data)
        elif state is State.HEAD:
            self._read_head(data)
        elif state is State.ANSWERING or self._relay is None:
            self._keep_pipelined(data)
        else:  # relaying, so there is a relay
            self._relay.feed(data)

    def eof_received(self) -> bool | None:
        if self._state is State.RELAYING and self._relay is not None:
            return self._relay.eof_received()
        return None

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._relay is not None:
            self._relay.pause_writing()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._relay is not None:
            self._relay.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._closing_timer.cancel()
        if self._relay is not None:
            self._relay.connection_lost(exc)
        if self._exchange is not None:
            self._exchange.abandon()

        # What they hold is freed now: they and the connection name each other.
        self._relay = self._exchange = self._head = None
        self._body, self._pipelined = [], b""

    # --- the server calls these ---

    @property
    def awaits_answer(self) -> bool:
        """Has the head of a request arrived, and not all of its reply been given?"""
        return self._exchange is not None or self._state is State.RELAYING

    @property
    def may_bring_more(self) -> bool:
        """Has a request begun, or has none come yet?"""
        return self._state is not State.IDLE or (not self._replies and self._relay is None)

    def shutdown(self) -> None:
        """Closes the connection after the replies to requests whose head was read. uvicorn tells its own protocol."""
        self._shutting_down = True
        if self._state is not State.RELAYING and self._exchange is None:
            self.transport.close()

    # --- reading a request ---

    def _read_request(self, data: bytes) -> None:
        self._closes_s = inf

        # 1. A head that was parsed before is not parsed again.
        end = data.find(EMPTY_LINE) + len(EMPTY_LINE)
        parsed = self._fast_path.parsed(data[:end])
        if parsed is not None and not self._write_paused:
            self._begin(parsed, data, end)
            return

        # 2. Every other one is.
        self._head = HeadParser()
        self._state = State.HEAD
        self._read_head(data)

    def _read_head(self, data: bytes) -> None:
        head = self._head
        assert head is not None  # noqa: S101 - this state has a parser
        if not head.feed(data):
            if self._closes_s == inf:
                self._closes_s = self._fast_path.clock() + _ARRIVAL_S
            return
        self._head = None
        self._closes_s = inf

        parsed = None if self._write_paused else self._fast_path.admit(head)
        if parsed is None:
            self._start_relay(head.raw)
        else:
            self._begin(parsed, head.raw, head.end)

    def _begin(self, parsed: ParsedHead, data: bytes, end: int) -> None:
        """Begins a request whose head is the first `end` bytes of `data`."""
        body = data[end:]
        missing = parsed.length - len(body)  # below 0 if the next request follows the body

        # 1. An earlier rejection applies: the request is answered without parsing its body.
        rejection = parsed.head.rejection
        if rejection is not None and not missing and self._reject(parsed, rejection, body):
            return

        self._exchange = DirectExchange(self, parsed.protocol, parsed.head, keep_alive=parsed.keep_alive)

        # 2. A part of the body is yet to come.
        if missing > 0:
            self._state = State.BODY
            self._body, self._missing = [body], missing
            self._closes_s = self._fast_path.clock() + _ARRIVAL_S + parsed.length / _SLOW_BYTES_S
            return

        # 3. The body is here, perhaps with the next request behind it.
        self._state = State.ANSWERING
        if missing:
            self._keep_pipelined(body[parsed.length :])
            body = body[: parsed.length]
        self._fast_path.coalescer.add(self._exchange, body)

    def _read_body(self, data: bytes) -> None:
        self._body.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return

        self._state = State.ANSWERING
        self._closes_s = inf
        if self._missing:  # below 0: so many bytes at the end of `data` are behind the body
            self._body[-1] = data[: self._missing]
            self._keep_pipelined(data[self._missing :])
        body, self._body = b"".join(self._body), []
        assert self._exchange is not None  # noqa: S101 - it began with the head
        self._fast_path.coalescer.add(self._exchange, body)

    def _reject(self, parsed: ParsedHead, rejection: Rejection, body: bytes) -> bool:
        """Rejects the request without parsing its body, if an earlier rejection with the same head still applies."""
        now = self._fast_path.clock()
        if not (parsed.keep_alive and rejection.holds(body, now)):
            return False
        self._state = State.IDLE
        common = self._fast_path.common_lines(self._server.headers)
        reply = b"".join((_STATUS_LINES[rejection.reply.status], common, rejection.rest))
        self._fast_path.reply_buffer.write(self.transport, [reply], close=False)
        self._count_reply(now)
        parsed.protocol.rejected(rejection)
        self._fast_path.interrupt_moderation.rejected(now)
        return True

    # --- bytes behind a request that is not answered yet ---

    def _keep_pipelined(self, data: bytes) -> None:
        if not self._pipelined:
            self.transport.pause_reading()
        self._pipelined += data

    def _read_pipelined(self) -> None:
        data, self._pipelined = self._pipelined, b""
        if data and not self.transport.is_closing():
            self._state = State.IDLE
            self.transport.resume_reading()
            self._read_request(data)

    # --- what uvicorn answers ---

    def _start_relay(self, data: bytes) -> None:
        """Leaves the request that begins with `data` to uvicorn."""
        self._state = State.RELAYING
        if self._relay is None:
            self._relay = self._server.relay(self)
            if self._write_paused:
                self._relay.pause_writing()
        self._relay.feed(data)
        if self._shutting_down:
            self._relay.shutdown()

    def take_back(self) -> None:
        """uvicorn has answered everything that it was given."""
        self._state = State.IDLE
        self._await_request(self._fast_path.clock())

    # --- the exchange calls this ---

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        """Writes the reply; the connection is free for the next request."""
        common = self._fast_path.common_lines(self._server.headers)
        lines = [_STATUS_LINES[reply.status], common, reply.head_lines()]
        if exchange.timing:
            lines += _TIMING, exchange.timing, _LINE_END
        keep_alive = exchange.keep_alive and (not self._shutting_down or bool(self._pipelined))
        if reply.status >= 400 and CLOSE in reply.head():
            keep_alive = False
        elif not keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(_LINE_END)
        pieces = reply.pieces
        pieces = [b"".join(lines), *pieces] if is_large(pieces) else [b"".join([*lines, *pieces])]
        self._fast_path.reply_buffer.write(self.transport, pieces, close=not keep_alive)

        self._exchange = None
        self._count_reply(now)
        if self._pipelined:
            self._loop.call_soon(self._read_pipelined)  # not at once: the reply may still be in the buffer
        else:
            self._state = State.IDLE

    def abort(self) -> None:
        """Closes the connection at once: its reply could not be written."""
        self._exchange = None
        self.transport.abort()

    # --- a client that is too late ---

    def _count_reply(self, now: float) -> None:
        self._replies += 1
        self._server.count_reply()
        self._await_request(now)

    def _await_request(self, now: float) -> None:
        self._closes_s = now + self._server.keep_alive_s

    def _close_if_late(self) -> None:
        """One timer that looks again when it is due: a timer for each request would cost more."""
        now = self._fast_path.clock()
        if self._state is State.RELAYING and self._relay is not None:  # only uvicorn knows what arrived
            self._closes_s = min(self._closes_s, now + _ARRIVAL_S) if self._relay.in_head else inf
        rest_s = self._closes_s - now
        if rest_s > 0:
            wait_s = min(rest_s, self._server.keep_alive_s)
            self._closing_timer = self._loop.call_later(wait_s, self._close_if_late)
        else:
            self._closing_timer = self._loop.call_later(_LAST_READ_S, self._close_unless_read, self._closes_s)

    def _close_unless_read(self, closes_s: float) -> None:
        if self._closes_s == closes_s:
            self.transport.close()
        else:
            self._close_if_late()

    def __repr__(self) -> str:
        pipelined = f", {len(self._pipelined)} bytes behind" if self._pipelined else ""
        return f"<HttpConnection {self._state.value}, {self._replies} replies{pipelined}>"
