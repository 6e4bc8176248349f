"""The one place that knows uvicorn: its configuration, its server, and its protocol for unusual requests.

What is used beyond `uvicorn.Config` and `uvicorn.Server.run`, and what happens if a version of uvicorn lacks it
(docs/dependencies.md, "Private APIs and their owners"):

1. `HttpToolsProtocol`: constructor arguments `config`, `server_state`, `app_state`; `shutdown`. It answers unusual
   requests. Else: plain uvicorn answers every request by ASGI. Its `cycle` is dropped when the connection is lost.
2. `ServerState`: `connections`, `tasks`, `default_headers`, `total_requests`. Else: as in 1.
3. `app_state` is copied to `scope["state"]`, by which a response finds its relay. Else: a connection stays with uvicorn
   after its first unusual request.
4. `Server`: `handle_exit`, `on_tick`, `shutdown`, `should_exit`, `force_exit`, `server_state`; once it runs, `servers`
   and `lifespan`. Else: requests are not drained before the end.

`missing_names` checks 1, 2 and 4 at start; the tests of this package check 3.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, cast

import uvicorn

from app.transports import CLOSE_TIMEOUT_S
from app.transports.http.asgi import Application, Header, Message, Receive, Scope, Send
from app.transports.http1.closing_listener import accept_the_last
from app.transports.http1.connection import HttpConnection, Relay
from app.transports.http1.fast_path import FastPath

try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState
except ImportError:  # pragma: no cover - a test takes the names away instead
    if not TYPE_CHECKING:
        httptools = HttpToolsProtocol = ServerState = None

logger = logging.getLogger(__name__)

#: The key of the relay in `scope["state"]`.
_RELAY = "ferry.relay"

#: The most bytes of a head, or of trailers (chosen: 16 times what the fast path reads). Parsers keep them all, and copy
#: them for each piece that arrives: a header of 60 MB stopped the event loop for 4.5 s.
_MAX_HEAD_BYTES = 1024 * 1024
_TOO_LONG = b'{"error":"The head of the request is longer than %d bytes"}' % _MAX_HEAD_BYTES
_HEAD_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LONG), _TOO_LONG)
)

#: The clients of the last answers may send one more request: it is answered with 503 (chosen).
_LINGER_S = 0.5

#: Chosen: how often it is checked whether the last clients have their answers.
_LOOK_AGAIN_S = 0.01


# --- the check at start ---


def missing_names() -> list[str]:
    """What connections need of uvicorn (1 and 2 above) and this version lacks."""
    if HttpToolsProtocol is None or ServerState is None:
        return ["uvicorn.protocols.http.httptools_impl.HttpToolsProtocol"]
    missing = _missing(HttpToolsProtocol, ("data_received", "eof_received", "connection_lost", "shutdown"))
    missing += _missing(ServerState(), ("connections", "tasks", "default_headers", "total_requests"))
    try:
        inspect.signature(HttpToolsProtocol).bind(config=None, server_state=None, app_state=None)
    except TypeError as error:
        missing.append(f"HttpToolsProtocol(config, server_state, app_state): {error}")
    return missing


def _missing(owner: object, names: Sequence[str]) -> list[str]:
    kind = owner if isinstance(owner, type) else type(owner)
    return [f"{kind.__name__}.{name}" for name in names if not hasattr(owner, name)]


# --- configuration ---


def uvicorn_config(application: Application, fast_path: FastPath, host: str, port: int) -> uvicorn.Config:
    """How uvicorn serves the application: with connections of ours if this version of uvicorn has what they need."""
    http: Any = partial(_connect, fast_path)
    if missing := missing_names():
        logger.warning("uvicorn %s has no %s; all requests go through ASGI", uvicorn.__version__, ", ".join(missing))
        http = "auto"
    return uvicorn.Config(
        cast(Any, ReportsResponses(application)),
        http=http,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing here asks who the client was
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        server_header=False,
    )


def _connect(
    fast_path: FastPath,
    config: uvicorn.Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> HttpConnection:
    """uvicorn calls this for each connection."""
    return HttpConnection(fast_path, UvicornState(config, server_state, app_state))


class UvicornState:
    """uvicorn's state of the server, for one connection."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._config = config
        self._state = server_state
        self._app_state = app_state
        self.keep_alive_s: float = config.timeout_keep_alive
        self.tasks = server_state.tasks

    @property
    def headers(self) -> Sequence[Header]:
        """Date and the like; uvicorn makes a new list each second."""
        return self._state.default_headers

    def opened(self, connection: HttpConnection) -> None:
        self._state.connections.add(cast(Any, connection))

    def closed(self, connection: HttpConnection) -> None:
        self._state.connections.discard(cast(Any, connection))

    def count_reply(self) -> None:
        self._state.total_requests += 1

    def relay(self, connection: HttpConnection) -> Relay:
        relay = UvicornRelay(connection.transport, connection.take_back)
        app_state = {**self._app_state, _RELAY: relay}
        relay.start(HttpToolsProtocol(config=self._config, server_state=self._state, app_state=app_state))
        return relay


# --- unusual requests ---


class ReportsResponses:
    """An ASGI application that tells the relay of a request when its response is complete."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        relay: UvicornRelay | None = scope.get("state", {}).get(_RELAY)
        if relay is None:
            await self._application(scope, receive, send)
            return

        async def reporting(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                relay.response_complete()

        await self._application(scope, receive, reporting)


def _nothing() -> None:
    pass


class UvicornRelay(asyncio.Transport):
    """Gives the bytes of a connection to uvicorn's protocol, and is the transport that this protocol sees.

    It parses what it gives, only to count requests. When as many responses are complete as requests were read to
    their end, and no other one has begun, it gives the connection back. Until the next `feed` uvicorn's protocol then
    sees a transport that is closed, so its timer for idle connections has no effect. After a parse error or an upgrade
    the connection stays with uvicorn.

    Args:
        take_back: called when uvicorn has nothing left to answer.
    """

    def __init__(self, transport: asyncio.Transport, take_back: Callable[[], None]) -> None:
        super().__init__()
        # Of the connection.
        self._transport = transport
        self._take_back = take_back
        self._protocol: Any = None  # uvicorn's, or the one that it switched to
        self._active = False  # from `feed` until everything is answered

        # Of the requests that were given.
        self._parser: Any = httptools.HttpRequestParser(self)
        self._begun = 0
        self._heads = 0
        self._read = 0
        self._responses = 0
        self._head_bytes = 0  # since a head, or a piece of a body, was complete
        self._for_good = False

    # --- the connection calls these ---

    def start(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    @property
    def in_head(self) -> bool:
        return self._head_bytes > 0 and self._begun > self._heads and not self._for_good

    def feed(self, data: bytes) -> None:
        self._active = True
        self._head_bytes += len(data)
        if not self._for_good:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                self._for_good = True
        if self._head_bytes > _MAX_HEAD_BYTES and not self._for_good:
            self._reject_head()
            return
        self._protocol.data_received(data)
        self._end_if_complete()

    def eof_received(self) -> bool | None:
        closes: bool | None = self._protocol.eof_received()
        return closes

    def connection_lost(self, exc: Exception | None) -> None:
        self._for_good = True
        self._protocol.connection_lost(exc)

        # uvicorn's request and its protocol name each other, and so do they and the relay: all is freed now.
        self._protocol.cycle = None
        self._protocol = self._parser = None
        self._take_back = _nothing

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def shutdown(self) -> None:
        self._protocol.shutdown()

    # --- the application calls this ---

    def response_complete(self) -> None:
        self._responses += 1
        self._end_if_complete()

    # --- httptools calls these ---

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_headers_complete(self) -> None:
        self._heads += 1
        self._head_bytes = 0

    def on_body(self, data: bytes) -> None:  # noqa: ARG002 - httptools' signature
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._read += 1

    # --- uvicorn's protocol calls these ---

    def write(self, data: Any) -> None:
        if self._active and not self._transport.is_closing():  # of pipelined requests uvicorn cancels the last only
            self._transport.write(data)

    def close(self) -> None:
        if self._active:
            self._transport.close()

    def abort(self) -> None:
        if self._active:
            self._transport.abort()

    def is_closing(self) -> bool:
        return not self._active or self._transport.is_closing()

    def pause_reading(self) -> None:
        if self._active:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._active:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """An upgrade: the connection keeps its transport, and another protocol gets its bytes."""
        self._for_good = True
        self._protocol = protocol

    # --- the end ---

    def _reject_head(self) -> None:
        """Closes the connection; the client is told why if it waits for no other response."""
        self._for_good = True
        if self._begun == self._responses + 1:
            self.write(_HEAD_TOO_LONG)
        self.close()

    def _end_if_complete(self) -> None:
        complete = self._begun == self._read == self._responses
        if complete and self._active and not (self._for_good or self._transport.is_closing()):
            self._active = False
            self._take_back()

    def __repr__(self) -> str:
        stays = ", for good" if self._for_good else ""
        return f"<UvicornRelay {self._begun} requests, {self._read} read, {self._responses} answered{stays}>"


# --- the server ---


class Drainable(Protocol):
    """What is served, and how it ends. `failure` says why it could not start; empty if it could."""

    failure: str

    async def drain(self) -> bool:
        """Waits until everything accepted is answered; False if the time for that ran out or `abandon` was called."""

    def abandon(self) -> None:
        """The drain ends at once: what is not answered yet is dropped."""


class DrainingServer(uvicorn.Server):
    """A server that drains at SIGTERM or SIGINT: until it stops it still answers, with 503.

    app/server/http_server.py lists the steps of stopping.

    Attributes:
        exit_code: 0 if every request that was accepted is answered.
    """

    def __init__(self, config: uvicorn.Config, server: Drainable) -> None:
        super().__init__(config)
        self._server = server
        self._told = False  # to end
        self._drain: asyncio.Task[None] | None = None
        self.exit_code = 0
        names = ("handle_exit", "on_tick", "shutdown")
        if missing := _missing(uvicorn.Server, names) + _missing(self, ("should_exit", "force_exit", "server_state")):
            logger.warning("uvicorn %s has no %s; nothing is drained", uvicorn.__version__, ", ".join(missing))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """The first signal begins the drain, a second one ends at once."""
        act = self._drop_the_rest if self._told else self._begin_drain
        self._told = True
        asyncio.get_running_loop().call_soon_threadsafe(act)  # thread safe: wakes the loop at once

    def _begin_drain(self) -> None:
        self._drain = asyncio.create_task(self._drain_and_exit(), name="drain")

    def _drop_the_rest(self) -> None:
        if self.force_exit:
            return
        self.force_exit = self.should_exit = True
        self._server.abandon()
        waiting = [each for each in self._connections() if each.awaits_answer]
        if waiting:
            logger.error("Told to end at once: %d connections close before their answer is sent", len(waiting))
            self.exit_code = 1

    def _connections(self) -> list[HttpConnection]:
        return [each for each in self.server_state.connections if isinstance(each, HttpConnection)]

    async def _drain_and_exit(self) -> None:
        logger.info("Draining")
        if not await self._server.drain():
            self.exit_code = 1
        await asyncio.sleep(_LINGER_S)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Without a reset for clients that come now, unless a second signal came.

        Connections that still wait for an answer at the end are aborted: uvicorn would leave them open.
        """
        # 1. Nobody connects any more, and who has connected is answered.
        listening = [each.fileno() for server in self.servers for each in server.sockets]
        await accept_the_last(listening)
        for server in self.servers:
            server.close()
        await self._answer_the_last()

        # 2. uvicorn closes the connections.
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

        # 3. After a second signal it leaves the application as it is, whose tasks would then be cancelled.
        if self.force_exit:
            await self.lifespan.shutdown()

    async def _answer_the_last(self) -> None:
        """Until no request is under way and every new connection has had one, or its time is over."""
        end_s = asyncio.get_running_loop().time() + _LINGER_S
        while asyncio.get_running_loop().time() < end_s and not self.force_exit:
            if not any(each.may_bring_more for each in self._connections()):
                break
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def on_tick(self, counter: int) -> bool:
        """Ends a process that could not start."""
        if self._server.failure:
            self.exit_code = 1
            return True
        return await super().on_tick(counter)
