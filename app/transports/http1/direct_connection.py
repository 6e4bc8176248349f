"""The fast path of one connection: requests that it answers itself, from their heads to their replies.

ASGI costs a request three to four times as much: a task, events, two messages in either direction and a timer
(docs/architecture/http.md, "HTTP"). Here whole requests of one turn of the event loop are collected
(request_coalescer.py), and the next callback submits them to the batcher; a reply goes from the batcher to the socket
in one call.

The body of a request on it is as long as Content-Length says (RFC 9112, section 6.3); it is not parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import inf

from app.core.inference import Buffer
from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.connections.served_connection import ServedConnection
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.direct.fast_path import FastPath
from app.transports.http.rejections import Rejection
from app.transports.http.replies import CLOSE, Sendable, is_large
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http1.alike_heads import AlikeHeads, ParsedHead, Recognised
from app.transports.http1.arrival_timer import ArrivalTimer
from app.transports.http1.connection_state import ANSWERING, State
from app.transports.http1.half_closed import HalfClosed
from app.transports.http1.held_memory import HeldMemory
from app.transports.http1.pipelined import Pipelined
from app.transports.http1.status_lines import STATUS_LINES
from app.transports.lingering import Lingering
from app.transports.memory.body_room import growth_of
from app.transports.request_id import id_line
from app.transports.trace_context import parent_in_head

_LINE_END = b"\r\n"
_TIMING = SERVER_TIMING + b": "
_OK_LINES = b"%b%bcontent-type: %b\r\n" + _TIMING + b"%b\r\ncontent-length: "


class DirectConnection(ServedConnection):
    """The fast-path half of a connection; the subclass that parses heads calls `_begin` and `_read_body`."""

    http_version = "1.1"

    def __init__(self, fast_path: FastPath, server: AcceptingServer) -> None:
        # Of the server.
        self._fast_path = fast_path
        self._server = server
        self._limits = server.limits
        self.tasks = server.tasks
        self.turns = Turns.of_loop(fast_path.clock)

        # Of the connection.
        self.transport: asyncio.Transport
        self.share = Share("")
        self.pipelined: Pipelined
        self.arrival = ArrivalTimer(server.limits, fast_path.clock)
        self._memory: HeldMemory
        self._loop = asyncio.get_running_loop()
        self._state = State.IDLE
        self._says_close = False  # the reply to the last request that is here has Connection: close
        self._old_s = inf  # the first reply after this monotonic second ends the connection
        self._lingering: Lingering | None = None  # bytes that come after the last reply are thrown away
        self._half_closed: HalfClosed | None = None  # the client sends no more
        self._expected: AlikeHeads | None = None  # what the next head may be like

        # Of the request that is read or answered now.
        self._exchange: DirectExchange | None = None
        self._body: list[bytes] = []
        self._missing = 0  # bytes of the body that have not arrived; below 0 if bytes behind it have

    def _answered(self, now: float) -> None:
        """A reply was written, and another request may follow, or be here already. The subclass reads it."""
        raise NotImplementedError

    # --- a request ---

    def _begin(self, recognised: Recognised, data: bytes) -> None:
        """Begins a request whose head `data` begins with."""
        parsed, length, request_id, has_parent, end, self._expected = recognised
        body = data[end:]
        missing = length - len(body)  # below 0 if the next request follows the body

        # 1. An earlier rejection applies: the request is answered without parsing its body. One with a credential is
        # counted for its caller first (request_coalescer.py).
        rejection = parsed.head.rejection if parsed.head.permit is None else None
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
        if (missing > 0 or memory.budget.full) and not memory.take_body(length, growth_of(parsed.head.headers)):
            self._missing = missing
            self._exchange.set_exception(memory.rejection())
            return

        # 3. A part of the body is yet to come.
        if missing > 0:
            self._state = State.BODY
            self._body, self._missing = [body], missing
            self.arrival.expect()
            self._end_if_half_closed()
            return

        # 4. The body is here, perhaps with the next request behind it.
        self._state = ANSWERING
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

        self._state = ANSWERING
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
        if self._says_close or self._is_old(now) or not (parsed.keep_alive and rejection.holds(body, now)):
            return False
        common = self._fast_path.lines.encoded(self._server.headers)
        own = id_line(request_id) if request_id else b""
        reply = b"".join((STATUS_LINES[rejection.reply.status], common, own, rejection.rest))
        self._fast_path.reply_buffer.write(self.transport, [reply], close=False)
        self._answered(now)
        exchange = partial(DirectExchange, self, parsed.protocol, parsed.head, keep_alive=True, request_id=request_id)
        parsed.protocol.rejected(rejection, self._fast_path.clock() - now, exchange)
        return True

    # --- the exchange calls these ---

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        """Writes the reply; the connection is free for the next request."""
        lines = [STATUS_LINES[reply.status], self._common_lines(), reply.head_lines()]
        if exchange.timing:
            lines += _TIMING, exchange.timing, _LINE_END
        if exchange.request_id:
            lines.append(id_line(exchange.request_id))
        closes = reply.status >= 400 and CLOSE in reply.head()
        self._reply(lines, reply.pieces, now, keep_alive=exchange.keep_alive, closes=closes)

    def ok_lines(self, content_type: bytes, timing: bytes) -> bytes:
        """The lines that replies with status 200 begin with now, up to the value of Content-Length."""
        return _OK_LINES % (STATUS_LINES[200], self._common_lines(), content_type, timing)

    def reply_ok(self, exchange: DirectExchange, start: bytes, body: bytes, now: float) -> None:
        """Writes a reply with status 200, as `reply` does; `start` is what `ok_lines` gave."""
        own = id_line(exchange.request_id) if exchange.request_id else b""
        if self._says_close or now >= self._old_s or not exchange.keep_alive:
            self._reply([start, b"%d\r\n" % len(body), own], (body,), now, keep_alive=exchange.keep_alive)
            return
        whole = b"%b%d\r\n%b\r\n%b" % (start, len(body), own, body)
        self._fast_path.reply_buffer.write(self.transport, (whole,), close=False)
        self._answered_directly(now)

    def _reply(
        self,
        lines: list[bytes],
        pieces: Sequence[Buffer],
        now: float,
        *,
        keep_alive: bool,
        closes: bool = False,
        http_1_0: bool = False,
    ) -> None:
        """Writes a reply whose head has these lines.

        Args:
            keep_alive: the client lets the connection stay.
            closes: the lines say that the connection closes.
            http_1_0: the client has to be told that the connection stays.
        """
        # 1. Its head, which says whether another request may follow.
        asked = keep_alive
        old = self._is_old(now)
        keep_alive = asked and (not self._says_close or bool(self.pipelined.pieces)) and not closes
        if not (keep_alive or closes):
            lines.append(b"connection: close\r\n")
        elif http_1_0:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(_LINE_END)

        # 2. Head and body leave together. A client that still sends reads the reply before the connection ends.
        pieces = [b"".join(lines), *pieces] if is_large(pieces) else [b"".join([*lines, *pieces])]
        told = asked and (old or self._fast_path.leaving)  # it may have sent its next request before
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
        if self._memory.body or self._memory.cost:
            self._memory.give_body()
        self._answered(now)

    def abort(self) -> None:
        """Closes the connection at once: its reply could not be written."""
        self._exchange = None
        self.transport.abort()

    def _is_old(self, now: float) -> bool:
        """Has the connection its age? Then the reply to the last request that is here ends it."""
        old = now >= self._old_s
        self._says_close |= old
        return old

    def _common_lines(self) -> bytes:
        return self._fast_path.lines.encoded(self._server.headers)

    # --- the end ---

    def expect_body(self, size: int, *, streaming: bool) -> None:
        """This many bytes of the body have arrived, and more are due; a stream has no least rate."""
        self.arrival.body_arrived(size, streaming=streaming)
        self._end_if_half_closed()

    def _end(self, *, unread: bool) -> None:
        """Closes the connection after what was written; the client gets to read it although it sends unread bytes."""
        self._state = State.ENDING
        self.arrival.stop()
        if unread and self._half_closed is None and not self.transport.is_closing():
            self._lingering = Lingering(self.transport, self.connection_lost)
        else:
            self.transport.close()

    def _end_if_half_closed(self) -> None:
        """Closes the connection if its client sends no more: the rest of a request does not come."""
        if self._half_closed is not None and not self.pipelined.pieces:
            self.transport.close()
