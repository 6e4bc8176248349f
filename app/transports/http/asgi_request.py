"""The driver of the ASGI application, which answers the requests that the fast path does not take.

`AsgiRequest` is the application's side, and the same for each version of HTTP: the scope, `receive` and `send`, the
task, the answer where the application fails. Its two subclasses are the transport's side: a request of HTTP/1.1
(http1/http1_asgi_request.py) and a stream of HTTP/2 (rest_http2/http2_asgi_request.py). They frame the body and the
response, hold the client back, and say when the request is over.
Source: https://asgi.readthedocs.io/en/latest/specs/www.html

Rules:

- The application runs in a task, which the server awaits when it stops. The task begins, and begins its response, in
  the share of the loop that its connection has.
- A client that waits for `100 Continue` gets it when the application asks for the body, unless the body or the response
  has begun (RFC 9110, section 10.1.1).
- The head of a response leaves with the first piece of its body, or in the next pass of the event loop: the application
  may wait for the client then.
- An application that fails is answered for with 500, or, where its response has begun, with an abort: so the client
  sees that the response is not complete.
- After the response, or once the client has gone, `receive` gives `http.disconnect`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Protocol
from urllib.parse import unquote

from app.core.inference import Buffer
from app.transports.body_parts import keep_part
from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns
from app.transports.http.asgi import Header, Message, Scope
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.replies import internal_error

logger = logging.getLogger(__name__)

_WITHOUT_BODY = frozenset({204, 304})

#: What no field of a response may have in it (RFC 9110, section 5.5).
_LINE_END = re.compile(rb"[\r\n\0]")

#: The path and the query of a target, behind a scheme and an authority if it has the absolute form (RFC 9112, 3.2).
_TARGET = re.compile(rb"(?:[A-Za-z]+://[^/?#]*)?([^?#]*)(?:\?([^#]*))?")


class ApplicationHead(Protocol):
    """The head of a request as the application is told of it.

    version: HTTP's. target: path and query, as sent. expects: the client waits for a 100 before it sends the body.
    """

    version: str
    method: bytes
    target: bytes
    expects: bool

    def all_headers(self) -> Sequence[Header]:
        """Names in lower case."""


class SharingConnection(Protocol):
    """The connection that a request came by, which has its share of the event loop."""

    transport: asyncio.Transport
    turns: Turns
    share: Share


class AsgiRequest:
    """One request that the application answers, and its response.

    Attributes:
        turns, share: the loop's, by which the application's steps are shared out to connections.
        started: the application has its task.
        expects: the client waits for a 100 before it sends the body.
        body_bytes: bytes of the body that wait for the application.
        begun: a part of the response was written.
        answered: the response is complete, or the transport has given another one.
        left: the client has gone, or its request was rejected.
    """

    def __init__(self, server: AcceptingServer, connection: SharingConnection, head: ApplicationHead) -> None:
        self.server = server
        self.turns, self.share = connection.turns, connection.share
        self._transport = connection.transport
        self._head = head
        self.started = self.begun = self.answered = self.left = False
        # The body of the request.
        self.expects = head.expects
        self._body: list[bytes | bytearray] = []
        self.body_bytes = 0
        self._untold = False  # the application was not told of a part of the body, or of its end
        self._news = asyncio.Event()
        # The response.
        self._encoded_head: bytes | None = None
        self._has_body = True
        self._missing = -1  # bytes that Content-Length announced and the application has not sent; -1 without one

    # --- a version of HTTP defines these ---

    @property
    def more_comes(self) -> bool:
        """Whether more of the body is to come."""
        raise NotImplementedError

    def begins(self) -> None:
        """The application is about to be called; the request may be rejected instead."""

    def send_continue(self) -> None:
        """Writes `100 Continue`."""
        raise NotImplementedError

    def wanted(self) -> None:
        """The application waits for more of the body."""

    def taken(self) -> None:
        """The application has taken the body that came, and more is to come."""

    async def writable(self, status: int) -> None:
        """Returns when more of the response may be written. `status`: of a response that is about to begin, or 0."""
        raise NotImplementedError

    def encode_head(self, status: int, headers: Sequence[Header], *, has_body: bool, sized: bool) -> bytes:
        """The head of the response. `headers`: the application's. `sized`: Content-Length is among them."""
        raise NotImplementedError

    def write(self, head: bytes, body: Buffer, *, ends: bool) -> None:
        """Writes a piece of the response: `head` goes before it, or is empty; `ends`: nothing follows."""
        raise NotImplementedError

    def abort(self) -> None:
        """Ends the response so that the client sees that it is not complete."""
        raise NotImplementedError

    # --- the transport calls these ---

    def start(self) -> None:
        """Starts the application in a task."""
        self.started = True
        tasks = self.server.tasks
        task = asyncio.get_running_loop().create_task(self._run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def feed(self, content: bytes, *, ended: bool) -> None:
        """More of the body has come; `ended`: no more will."""
        keep_part(self._body, content)
        self.body_bytes += len(content)
        if content or ended:
            self.expects = False
            self._untold = True
            self._news.set()

    def abandon(self) -> None:
        """The client has gone, or its request is rejected."""
        self.left = True
        self._let_go()

    def end(self) -> None:
        """The response is decided: nothing of the application is sent behind it."""
        self.answered = True
        self._let_go()

    def _let_go(self) -> None:
        self._body.clear()
        self._news.set()

    async def news(self) -> None:
        """Returns when more of the body has come, or the call is over."""
        self._news.clear()
        await self._news.wait()

    # --- the task ---

    async def _run(self) -> None:
        # 1. The task waits for its share of the loop.
        self.begins()
        await self._its_turn()
        if self.left:
            return

        # 2. The application answers.
        scope = self._scope()
        try:
            await self.server.application(scope, self.receive, self.send)
        except Exception:
            logger.exception("A bug ended %s %s", scope["method"], scope["path"])

        # 3. The driver answers for an application that has not.
        if self.left or self.answered:
            return
        if self.begun:
            self.abort()
            return
        reply = internal_error()
        self._start_response(reply.status, reply.head())
        self._send_body(reply.body, more=False)

    def _scope(self) -> Scope:
        """The scope of ASGI: all that the application is told of the request before its body."""
        head, transport = self._head, self._transport
        found = _TARGET.match(head.target)
        assert found is not None  # noqa: S101 - the pattern matches anything
        path, query = found.groups(b"")
        path = path or b"/"
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method.decode(),
            "scheme": "http" if transport.get_extra_info("ssl_object") is None else "https",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": head.all_headers(),
            "client": _address(transport, "peername"),
            "server": _address(transport, "sockname"),
            "state": self.server.lifespan_state.copy(),
        }

    async def _its_turn(self) -> None:
        await self.turns.may_step(self.share)

    async def receive(self) -> Message:
        if self.expects and not (self.left or self.begun):
            self.expects = False
            self.send_continue()
        while not (self._untold or self.answered or self.left):
            self._news.clear()
            if self.more_comes:
                self.wanted()  # more may come before this returns
            await self._news.wait()
        if self.left or self.answered:
            return {"type": "http.disconnect"}
        self._untold = False
        body = b"".join(self._body)  # no copy if the pieces are one bytes object
        self._body, self.body_bytes = [], 0
        if more := self.more_comes:
            self.taken()
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Message) -> None:
        """Raises RuntimeError: the application broke the rules of ASGI or of HTTP."""
        await self.writable(message.get("status", 0))
        if self._encoded_head is None:  # many requests may have waited for one page
            await self._its_turn()
        if self.left:
            return
        kind = message["type"]
        if kind == "http.response.start" and self._encoded_head is None and not self.answered:
            self._start_response(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self._encoded_head is not None and not self.answered:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The ASGI message {kind} came at the wrong time")

    # --- the response ---

    def _start_response(self, status: int, fields: Iterable[Header]) -> None:
        headers = [(name.lower(), value) for name, value in fields]
        if any(_LINE_END.search(name) or _LINE_END.search(value) for name, value in headers):
            raise RuntimeError("A header of a response has a line end")
        length = dict(headers).get(b"content-length")
        self._has_body = self._head.method != b"HEAD" and status not in _WITHOUT_BODY
        self._missing = int(length) if length is not None and self._has_body else -1
        self._encoded_head = self.encode_head(status, headers, has_body=self._has_body, sized=length is not None)
        asyncio.get_running_loop().call_soon(self._send_head)

    def _send_head(self) -> None:
        if not (self.begun or self.left or self.answered):
            self._write(b"", ends=False)

    def _send_body(self, body: Buffer, *, more: bool) -> None:
        if self._missing >= 0:
            self._missing -= len(body)
            if self._missing < 0 or (self._missing and not more):
                raise RuntimeError("The body of a response is not as long as its Content-Length")
        self._write(body if self._has_body else b"", ends=not more)

    def _write(self, body: Buffer, *, ends: bool) -> None:
        head = b"" if self.begun or self._encoded_head is None else self._encoded_head
        self.begun = True
        if ends:
            self.end()
        self.write(head, body, ends=ends)


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """The address and the port of the client ("peername") or of the server ("sockname"); None on a Unix socket."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
