"""A request on the fast path, as the owner of its stream."""

from __future__ import annotations

from app.core.errors import ServingError
from app.transports.body_parts import keep_part
from app.transports.fairness.fair_queue import Share
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.head import RequestHead
from app.transports.http.http_api import HttpApi
from app.transports.http.replies import Sendable, body_too_large
from app.transports.http2.frames import ErrorCode
from app.transports.http2.hpack import literal
from app.transports.http2.stream import Stream
from app.transports.memory.body_room import growth_of
from app.transports.request_id import REQUEST_ID
from app.transports.rest_http2 import responses
from app.transports.rest_http2.request import RestRequest
from app.transports.rest_http2.request_head import RestHead
from app.transports.rest_http2.rest_connection import RestConnection


class DirectRequest(RestRequest):
    """One request: its body is collected, it begins with others of its turn of the event loop, its reply is written."""

    __slots__ = ("_exchange", "_parts", "tasks")

    http_version = "2"

    def __init__(
        self, connection: RestConnection, stream: Stream, head: RestHead, api: HttpApi, request_head: RequestHead
    ) -> None:
        """`api`, `request_head`: as `head.computes` has them."""
        super().__init__(connection, stream, head.long_bytes)
        self.tasks = connection.server.tasks
        self._parts: list[bytes | bytearray] = []
        exchange = DirectExchange(self, api, request_head, keep_alive=True, request_id=head.request_id)
        if api.tracing is not None:
            exchange.trace = api.tracing.begin(head.parent)
        self._exchange: DirectExchange | None = exchange

    # --- the stream's connection calls these ---

    def begin(self, ended: bool) -> None:
        exchange = self._exchange
        assert exchange is not None  # noqa: S101 - it begins
        most_bytes = exchange.protocol.options.max_body_bytes
        if self.stream.content_left > most_bytes:  # as announced
            exchange.set_exception(body_too_large(most_bytes))
        elif ended:
            self.data(b"", True)

    def data(self, content: bytes, ended: bool) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._came += len(content)

        # 1. There is too much of it, or no memory for it.
        most_bytes = exchange.protocol.options.max_body_bytes
        if self._came > most_bytes:
            exchange.set_exception(body_too_large(most_bytes))
            return
        left = max(0, self.stream.content_left)
        try:
            if self.memory.full and self._came:
                raise self.memory.rejection()
            self.hold_body(self._came + left)
        except ServingError as error:
            exchange.set_exception(error)
            return

        # 2. More is yet to come.
        if not ended:
            keep_part(self._parts, content)
            self.connection.connection.let_come(self.stream, missing=left)
            return

        # 3. It is whole.
        if self._parts:
            self._parts.append(content)
            content, self._parts = b"".join(self._parts), []
        self.connection.coalescer.add(exchange, content)

    def growth(self) -> float:
        return 0.0 if self._exchange is None else growth_of(self._exchange.head.headers)

    def abandon(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._parts = []
        if exchange is not None:
            exchange.abandon()

    # --- the exchange calls these ---

    @property
    def share(self) -> Share:
        return self.connection.share

    @property
    def address(self) -> str:
        return self.connection.address

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:  # noqa: ARG002 - ReplyWriter's
        self._let_go()
        self.send_reply(reply, exchange.timing, exchange.request_id)

    def ok_lines(self, content_type: bytes, timing: bytes) -> bytes:
        connection = self.connection
        return responses.ok_fields(connection.direct_fields.encoded(connection.server.headers), content_type, timing)

    def reply_ok(self, exchange: DirectExchange, start: bytes, body: bytes, now: float) -> None:  # noqa: ARG002 - likewise
        block = responses.with_length(start, len(body))
        if exchange.request_id:
            block += literal(REQUEST_ID, exchange.request_id)
        self._let_go()
        self.respond(block, (body,))

    def abort(self) -> None:
        """Ends a request whose reply could not be written."""
        self.connection.connection.reset(self.stream, ErrorCode.INTERNAL_ERROR)
        self.over()
        self.connection.flush_soon()

    def _let_go(self) -> None:
        self._exchange = None
        self._parts = []
