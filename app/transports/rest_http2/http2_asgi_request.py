"""A request of HTTP/2 that the ASGI application answers (http/asgi_request.py).

A stream frames its body itself and ends by itself, and the client is held back by the stream's window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from app.core.errors import ServingError
from app.core.inference import Buffer
from app.transports.http.asgi import Header
from app.transports.http.asgi_request import AsgiRequest
from app.transports.http.replies import Fault
from app.transports.http2.frames import ErrorCode
from app.transports.http2.stream import Stream
from app.transports.memory.body_room import growth_of
from app.transports.rest_http2 import responses
from app.transports.rest_http2.request import SHORT_BYTES, RestRequest
from app.transports.rest_http2.request_head import RestHead
from app.transports.rest_http2.rest_connection import RestConnection

#: The application waits while the client has not taken so many bytes of the response (chosen; as for HTTP/1.1).
_FULL_BYTES = 64 * 1024

#: Their content means nothing (RFC 9110, section 9.3), and their response ends the stream: so it comes after theirs.
_WITHOUT_CONTENT = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE"})


class Http2AsgiRequest(AsgiRequest, RestRequest):
    """A request on a stream, and its response by the application."""

    def __init__(self, connection: RestConnection, stream: Stream, head: RestHead) -> None:
        RestRequest.__init__(self, connection, stream, head.long_bytes)
        self.head_only = head.method == b"HEAD"
        AsgiRequest.__init__(self, connection.server, connection, head)
        self._refuses = False  # the application answers without the rest of the body
        self._taken = asyncio.Event()  # the response that was written is on its way

    # --- the stream's connection calls these ---

    def begin(self, ended: bool) -> None:
        if ended:
            self.data(b"", True)
        elif self.memory.full:
            self.fail(self.memory.rejection())
        elif self._hold_arrived() and (self.expects or self._head.method not in _WITHOUT_CONTENT):
            self.start()

    def data(self, content: bytes, ended: bool) -> None:
        self._came += len(content)
        self.feed(content, ended=ended)
        if not self.started and (ended or self._came > SHORT_BYTES):
            self.start()
        if not ended and self._hold_arrived():
            self.connection.connection.let_come(self.stream, self.body_bytes)

    def sent(self) -> None:
        self._taken.set()

    def abandon(self) -> None:
        super().abandon()
        self._taken.set()

    def waits(self) -> None:
        untaken = self.started and self.body_bytes  # by the application, which the client waits for
        if self._refuses or not untaken:
            super().waits()

    def least_bytes(self) -> float:
        return 1 if self.begun else super().least_bytes()  # of a stream, only silence counts

    def reject(self, fault: Fault) -> None:
        if self.begun:
            self._reset(ErrorCode.CANCEL)
        else:
            super().reject(fault)

    # --- memory ---

    def _hold_arrived(self) -> bool:
        """Holds, of a `:predictStream` body, the bytes that wait for the application; of any other, the whole body.

        False if the request was answered, since there is no memory for it.
        """
        whole = min(self._came + max(0, self.stream.content_left), self.server.limits.max_body_bytes)
        try:
            self.hold_body(self.body_bytes if self.begun else whole)
        except ServingError as error:
            self.fail(error)
            return False
        return True

    def growth(self) -> float:
        return growth_of(self._head.all_headers(), self._head.target)

    # --- the driver asks these ---

    @property
    def more_comes(self) -> bool:
        return not self.stream.remote_closed

    def begins(self) -> None:
        """While unread replies have their part of the memory, a client that has some gets no more of them.

        On one connection a client may ask for any number of pages.
        """
        if self.memory.full and self.connection.connection.unsent and not self.left:
            self.fail(self.memory.rejection())

    def send_continue(self) -> None:
        self.connection.connection.send_headers(self.stream, responses.CONTINUE)
        self.connection.flush_soon()

    def taken(self) -> None:
        self.connection.connection.let_come(self.stream)
        self._hold_arrived()
        self.connection.flush_soon()

    async def writable(self, status: int) -> None:
        if status >= HTTPStatus.BAD_REQUEST:
            await self._short_body()
        while self.stream.unsent > _FULL_BYTES and not self.left:
            self._taken.clear()
            await self._taken.wait()

    async def _short_body(self) -> None:
        """Lets a short body come before an error that needs none of it.

        The response would end the stream, and of a stream that ends while they send some clients read nothing.
        """
        stream = self.stream
        short = 0 <= stream.content_left <= SHORT_BYTES  # -1: a client that names no length may wait for the response
        while short and not (stream.remote_closed or self.expects or self.left or self.answered):
            self._refuses = True
            await self.news()

    def encode_head(self, status: int, headers: Sequence[Header], *, has_body: bool, sized: bool) -> bytes:  # noqa: ARG002 - of HTTP/1.1
        return responses.head(status, self.connection.plain_fields.encoded(self.server.headers), headers)

    def write(self, head: bytes, body: Buffer, *, ends: bool) -> None:
        sending = self.connection.connection
        if head and ends:
            self.respond(head, (body,))
            return
        if head:
            sending.send_headers(self.stream, head)
        if len(body) or ends:
            sending.send_data(self.stream, *([body] if len(body) else []), end=ends)
        if ends:
            self.server.count_reply()
            self.over()
        self.send_soon()

    def abort(self) -> None:
        self._reset(ErrorCode.INTERNAL_ERROR)

    # --- the end ---

    def over(self) -> None:
        super().over()
        self.end()

    def _reset(self, code: ErrorCode) -> None:
        self.connection.connection.reset(self.stream, code)
        self.abandon()
        self.over()
        self.connection.flush_soon()
