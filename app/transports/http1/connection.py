"""uvicorn's HTTP/1.1 connection, with a short cut: a whole inference request is answered without ASGI.

ASGI's way costs a request three to four times as much as reading and answering it: a task, events, two messages
either way and a timer (docs/architecture.md, "The HTTP face"). Here a request that asks for a computation goes
from the parser to the batcher in one call, and its reply from the batcher to the socket in another. Whatever is
unusual about a request (chunks, compression, Expect, pipelining, HTTP/1.0 ...) leaves it to uvicorn and ASGI; the
protocols behind both ways are the same (`HttpProtocol.begin`).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from math import inf
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.transports.http.rejections import Rejection
from app.transports.http.replies import CLOSE, Sendable, is_large
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http1.direct_exchange import DirectExchange
from app.transports.http1.inference_paths import Found, InferencePaths, KnownHead

#: Requests with one of these are for ASGI.
_UNUSUAL = frozenset({b"content-encoding", b"expect", b"transfer-encoding", b"upgrade"})

_EMPTY_LINE = b"\r\n\r\n"
_END = b"\r\n"
_TIMING = SERVER_TIMING + b": "

#: Longer paths are no inference, and shall not fill caches.
_MAX_URL = 1024

_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class HttpConnection(HttpToolsProtocol):
    """Made by uvicorn for each connection."""

    def __init__(self, paths: InferencePaths, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._paths = paths
        self._direct: DirectExchange | None = None  # the one under way
        self._reading: DirectExchange | None = None  # the one whose body comes now; None while uvicorn's does
        self._idle_since_s = inf  # infinity while a request is read, or answered by ASGI
        self._idle_timer: asyncio.TimerHandle | None = None
        self._parsed: KnownHead | None = None  # the last head that was read, if it took the short cut
        self._usual = True
        self._length = 0
        self._between = True  # nothing of the next request was read yet

    def data_received(self, data: bytes) -> None:
        """A head that was read before, with its whole body behind it, is not parsed again."""
        if not self._between:
            super().data_received(data)
            return
        end = data.find(_EMPTY_LINE) + len(_EMPTY_LINE)
        known = self._paths.known(data[:end])
        if known is not None and len(data) - end == known.length and not self._busy():
            if self.timeout_keep_alive_task is not None:
                self._unset_keepalive_if_required()
            body = data[end:]
            if known.head.rejection is None or not self._rejected_likewise(known, known.head.rejection, body):
                self._idle_since_s = inf
                self._paths.turn.add(self._start(known), body)
            return
        super().data_received(data)
        if self._between and self._parsed is not None and self._parsed.length == len(data) - end:
            self._paths.keep(data[:end], self._parsed)

    def _rejected_likewise(self, known: KnownHead, rejection: Rejection, body: bytes) -> bool:
        """Rejects it unread, and makes no exchange of it, where the rejection of one before it holds for it."""
        now = self._paths.clock()
        if not (known.keep_alive and rejection.holds(body, now)):
            return False
        status, common = _STATUS[rejection.reply.status], self._paths.common_lines(self.server_state.default_headers)
        self._paths.reply_buffer.write(self.transport, [b"".join((status, common, rejection.rest))], close=False)
        self._answered(now)
        known.protocol.rejected(rejection)
        self._paths.interrupt_moderation.rejected(now)
        return True

    # --- what the parser tells ---

    def on_message_begin(self) -> None:
        self._between = False
        self._parsed = None
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._usual = True
        self._length = 0
        self._idle_since_s = inf

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name == b"content-length":
            self._length = int(value)
        elif name in _UNUSUAL:
            self._usual = False
            if name == b"expect":
                self.expect_100_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        found = self._inference()
        if found is None:
            self._reading = None
            self._hand_to_asgi()
            return
        protocol, path, query = found
        head = self._paths.head(path, query, [header for header in self.headers if header[0] != b"content-length"])
        self._parsed = KnownHead(protocol, head, self._length, self.parser.should_keep_alive())
        self._reading = self._start(self._parsed)

    def on_body(self, body: bytes) -> None:
        if self._reading is None:
            super().on_body(body)
        else:
            self._reading.chunks.append(body)

    def on_message_complete(self) -> None:
        self._between = True
        if self._reading is None:
            super().on_message_complete()
        else:
            self._paths.turn.add(self._reading, self._reading.body())

    def _inference(self) -> Found | None:
        """What the request asks for, if it may take the short cut."""
        if not self._usual or len(self.url) > _MAX_URL or self.parser.get_method() != b"POST":
            return None
        if self._busy() or self.parser.get_http_version() != "1.1":
            return None
        found = self._paths.find(self.url)
        return None if found is None or self._length > found[0].limits.max_body_bytes else found

    def _busy(self) -> bool:
        """Is a request before this one not answered yet, or its answer not read?"""
        return (self.cycle is not None and not self.cycle.response_complete) or self.flow.write_paused

    def _start(self, known: KnownHead) -> DirectExchange:
        direct = self._direct = DirectExchange(self, known.protocol, known.head, keep_alive=known.keep_alive)
        self.cycle = cast(RequestResponseCycle, direct)  # it has what uvicorn looks at
        return direct

    def _hand_to_asgi(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    # --- what the socket tells ---

    def connection_lost(self, exc: Exception | None) -> None:
        direct = self._direct
        super().connection_lost(exc)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if direct is not None:
            direct.abandon()

    # --- what the exchange tells ---

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        """Writes the reply; the connection is free for the next request."""
        common = self._paths.common_lines(self.server_state.default_headers)
        lines = [_STATUS[reply.status], common, reply.head_lines()]
        if exchange.timing:
            lines += _TIMING, exchange.timing, _END
        if reply.status >= 400 and CLOSE in reply.head():
            exchange.keep_alive = False
        elif not exchange.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(_END)
        pieces = reply.pieces
        pieces = [b"".join(lines), *pieces] if is_large(pieces) else [b"".join([*lines, *pieces])]
        self._paths.reply_buffer.write(self.transport, pieces, close=not exchange.keep_alive)
        exchange.response_complete = True
        self._direct = None
        if self.pipeline:
            self.on_response_complete()
        else:
            self._answered(now)

    # --- an idle connection ---

    def _answered(self, now: float) -> None:
        self.server_state.total_requests += 1
        self._idle_since_s = now
        if self._idle_timer is None:
            self._watch_idleness(self.timeout_keep_alive)

    def _watch_idleness(self, seconds: float) -> None:
        """uvicorn sets and cancels a timer for each request; one that looks again when it is due costs nothing."""
        self._idle_timer = self.loop.call_later(seconds, self._look_for_idleness)

    def _look_for_idleness(self) -> None:
        idle_s = max(0.0, self._paths.clock() - self._idle_since_s)
        if idle_s < self.timeout_keep_alive:
            self._watch_idleness(self.timeout_keep_alive - idle_s)
        else:
            self.timeout_keep_alive_handler()
