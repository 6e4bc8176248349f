"""A request that the ASGI application answers: all that the fast path does not take.

As http1/asgi/asgi_call.py, but a stream frames its own body and ends by itself, and the client is held back by the
stream's window. Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from app.core.inference import Buffer
from app.transports.http.asgi import Message, Scope
from app.transports.http.replies import internal_error
from app.transports.http1.asgi.scope import address_of
from app.transports.http2.frames import ErrorCode
from app.transports.http2.stream import Stream, keep_part
from app.transports.memory.body_room import growth_of
from app.transports.rest_http2 import responses
from app.transports.rest_http2.connection import RestConnection
from app.transports.rest_http2.request import SHORT_BYTES, RestRequest, SharedByRequests
from app.transports.rest_http2.request_head import RestHead

logger = logging.getLogger(__name__)

#: The application waits while the client has not taken so many bytes of the response (chosen; as for HTTP/1.1).
_FULL_BYTES = 64 * 1024

_LINE_END = re.compile(rb"[\r\n\0]")

_WITHOUT_BODY = frozenset({204, 304})

#: Their content means nothing (RFC 9110, section 9.3), and their response ends the stream: so it comes after theirs.
_WITHOUT_CONTENT = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE"})


class AsgiRequest(RestRequest):
    """One request and its response.

    Attributes:
        left: nobody waits for the response.
    """

    __slots__ = (
        "_begun", "_block", "_body", "_body_bytes", "_expects", "_head", "_missing", "_news", "_refuses",
        "_started", "_taken", "_untold", "left",
    )  # fmt: skip

    def __init__(
        self, application: SharedByRequests, connection: RestConnection, stream: Stream, head: RestHead
    ) -> None:
        super().__init__(application, connection, stream, head.long_bytes)
        self._head = head
        self._started = False  # the application
        self.left = False
        # The body.
        self._body: list[bytes | bytearray] = []  # what the application has not taken
        self._body_bytes = 0
        self._untold = False  # there is something of the body that the application was not told
        self._expects = head.expects
        self._news = asyncio.Event()  # of the body, or the end
        self._refuses = False  # the application answers without what is still to come
        # The response. Its head leaves with the first piece of the body if that comes at once.
        self._block: bytes | None = None
        self._begun = False  # some of it was written
        self.head_only = head.method == b"HEAD"
        self._missing = -1  # bytes that Content-Length announced and the application has not sent; -1 without one
        self._taken = asyncio.Event()  # what was written is on its way

    # --- http2's Owner ---

    def begin(self, ended: bool) -> None:
        memory = self.connection.memory
        if ended:
            self.data(b"", True)
        elif memory.full or not self._hold_body():
            self.reject_memory()
        elif self._expects or self._head.method not in _WITHOUT_CONTENT:
            self._start_application()

    def _start_application(self) -> None:
        self._started = True
        server = self.connection.server
        task = asyncio.get_running_loop().create_task(self._run())
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)

    def data(self, content: bytes, ended: bool) -> None:
        self._came += len(content)
        keep_part(self._body, content)
        self._body_bytes += len(content)
        if content or ended:
            self._expects = False
            self._untold = True
            self._news.set()
        if not self._started and (ended or self._came > SHORT_BYTES):
            self._start_application()
        if ended:
            return
        if not self._hold_body():
            self._refuse_memory()
            return
        self.connection.connection.let_come(self.stream, self._body_bytes)

    def sent(self) -> None:
        self._taken.set()

    def abandon(self) -> None:
        self.left = True
        self._body.clear()
        self._news.set()
        self._taken.set()

    def waits(self) -> None:
        if self._refuses or not (self._started and self._body_bytes):  # else the application has not taken what came
            super().waits()

    def least_bytes(self, usual: float) -> float:
        return 1 if self._begun else usual  # of a stream, only silence counts

    def reject(self, status: int, text: str) -> None:
        if self._begun:
            self._reset(ErrorCode.CANCEL)
        else:
            super().reject(status, text)

    # --- memory ---

    def _hold_body(self) -> bool:
        """Of a stream only what waits for the application, else all of the body, which the application keeps."""
        if self._begun:
            return self.hold(self._body_bytes)
        whole = self._came + max(0, self.stream.content_left)
        return self.hold(min(whole, self.application.limits.max_body_bytes))

    def growth(self) -> float:
        return growth_of(self._head.headers(), self._head.path)

    def _refuse_memory(self) -> None:
        self.abandon()
        self.reject_memory()

    # --- the application ---

    async def _run(self) -> None:
        """Answers the request; an application that fails is answered for.

        While unread replies have their part of the memory, a client that has some gets no more of them: by one
        connection it may ask for any number of pages.
        """
        if self.connection.memory.full and self.connection.connection.unsent and not self.left:
            self._refuse_memory()
        await self.connection.turns.may_step(self.connection.share)
        if self.left:
            return
        scope = self._scope()
        try:
            await self.connection.server.application(scope, self.receive, self.send)
        except Exception:
            logger.exception("A bug ended %s %s", scope["method"], scope["path"])
        if self.left or self.answered:
            return
        if self._begun:
            self._reset(ErrorCode.INTERNAL_ERROR)  # so the client sees that the response is not complete
            return
        reply = internal_error()
        common = self.application.common_fields(self.connection, direct=False)
        self.respond(responses.head(reply.status, common, reply.head()), () if self.head_only else reply.pieces)

    def _scope(self) -> Scope:
        transport, head = self.connection.transport, self._head
        path, _, query = head.path.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": head.method.decode(),
            "scheme": "http" if transport.get_extra_info("ssl_object") is None else "https",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": head.headers(),
            "client": address_of(transport, "peername"),
            "server": address_of(transport, "sockname"),
            "state": self.connection.server.lifespan_state.copy(),
        }

    async def receive(self) -> Message:
        if self._expects and not (self.left or self._begun):
            self._expects = False
            self.connection.connection.send_headers(self.stream, responses.CONTINUE)
            self.application.flush_soon(self.connection)
        while not (self._untold or self.answered or self.left):
            self._news.clear()
            await self._news.wait()
        if self.left or self.answered:
            return {"type": "http.disconnect"}
        self._untold = False
        body = b"".join(self._body)  # which copies nothing where it is one object of bytes
        self._body, self._body_bytes = [], 0
        if not self.stream.remote_closed:
            self.connection.connection.let_come(self.stream)
            self._hold_body()
            self.application.flush_soon(self.connection)
        return {"type": "http.request", "body": body, "more_body": not self.stream.remote_closed}

    async def send(self, message: Message) -> None:
        """Raises RuntimeError: the application broke the rules of ASGI or of HTTP."""
        if message.get("status", 0) >= HTTPStatus.BAD_REQUEST:
            await self._short_body()
        while self.stream.unsent > _FULL_BYTES and not self.left:
            self._taken.clear()
            await self._taken.wait()
        if self._block is None:  # many may have waited for one page
            await self.connection.turns.may_step(self.connection.share)
        if self.left:
            return
        kind = message["type"]
        if kind == "http.response.start" and self._block is None and not self.answered:
            self._start(message)
        elif kind == "http.response.body" and self._block is not None and not self.answered:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The ASGI message {kind} came at the wrong time")

    # --- the response ---

    async def _short_body(self) -> None:
        """Lets a short body come before an error that needs none of it.

        The response would end the stream, and of a stream that ends while they send some clients read nothing.
        """
        stream = self.stream
        short = 0 <= stream.content_left <= SHORT_BYTES  # -1: who does not know its length may wait for the response
        while short and not (stream.remote_closed or self._expects or self.left or self.answered):
            self._refuses = True
            self._news.clear()
            await self._news.wait()

    def _start(self, message: Message) -> None:
        status = message["status"]
        headers = [(name.lower(), value) for name, value in message.get("headers", ())]
        if any(_LINE_END.search(value) for _, value in headers):
            raise RuntimeError("A header of a response has a line end")
        self.head_only |= status in _WITHOUT_BODY
        length: Any = dict(headers).get(b"content-length")
        self._missing = -1 if length is None or self.head_only else int(length)
        common = self.application.common_fields(self.connection, direct=False)
        self._block = responses.head(status, common, headers)
        asyncio.get_running_loop().call_soon(self._send_head)  # the application may wait for the client now

    def _send_head(self) -> None:
        if self._begun or self.left or self.answered or self._block is None:
            return
        self._begun = True
        self.connection.connection.send_headers(self.stream, self._block)
        self.application.flush_soon(self.connection)

    def _send_body(self, body: Buffer, *, more: bool) -> None:
        if self._missing >= 0:
            self._missing -= len(body)
            if self._missing < 0 or (self._missing and not more):
                raise RuntimeError("The body of a response is not as long as its Content-Length")
        if self.head_only:
            body = b""
        if not (self._begun or more):
            assert self._block is not None  # noqa: S101 - it has started
            self.respond(self._block, (body,))
            return
        self._send_head()
        sending = self.connection.connection
        if more:
            if body:
                sending.send_data(self.stream, body)
        else:
            sending.send_data(self.stream, *([body] if body else []), end=True)
            self.connection.server.count_reply()
            self.over()
        self.send_soon()

    def over(self) -> None:
        super().over()
        self._body.clear()
        self._news.set()

    def _reset(self, code: ErrorCode) -> None:
        self.connection.connection.reset(self.stream, code)
        self.abandon()
        self.over()
        self.application.flush_soon(self.connection)
