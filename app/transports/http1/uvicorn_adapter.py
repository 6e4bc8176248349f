"""The one place that knows uvicorn: its configuration, its server, and the names that connections of ours need of it.

The names beyond `uvicorn.Config` and `uvicorn.Server.run`, and what happens if a version of uvicorn lacks them
(docs/dependencies.md, "Private APIs and their owners"):

1. `Config.loaded_app`. `ServerState`: `connections`, `tasks`, `default_headers`, `total_requests` (AcceptingServer has
   them). Else: `Config.http_protocol_class`, which is called with `config`, `server_state` and `app_state`: plain
   uvicorn answers every request by ASGI.
2. `Server`: `handle_exit`, `on_tick`, `startup`, `shutdown`, `should_exit`, `force_exit`, `server_state`; once it runs,
   `servers` and `lifespan`, whose `state` connections get. Else: requests are not drained before the end.

`missing_names` checks 1 at start, as far as names tell.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from socket import socket
from types import FrameType
from typing import Any, NamedTuple, Protocol, cast

import uvicorn

from app.transports import CLOSE_TIMEOUT_S
from app.transports.closing_listener import accept_the_last
from app.transports.http.asgi import Application
from app.transports.http.connections.accepting_server import AcceptingServer, Http2
from app.transports.http.connections.connection_limits import Connections
from app.transports.http.connections.http_handshakes import HttpHandshakes
from app.transports.http.connections.served_connection import ServedConnection
from app.transports.http.direct.fast_path import FastPath
from app.transports.http1.http1_connection import Http1Connection
from app.transports.http1.known_heads import KnownHeads
from app.transports.tls.tls_connection import TlsConnection
from app.transports.waiting import wait_while

#: None in a version of uvicorn without it.
ServerState: Any = getattr(uvicorn.server, "ServerState", None)

logger = logging.getLogger(__name__)

#: The clients of the last answers may send one more request: it is answered with 503 (chosen). Before, requests that
#: are arriving when the grace ends have as long to be accepted.
_LINGER_S = 0.5


# --- the check at start ---


def missing_names() -> list[str]:
    """The names that connections need of uvicorn (1 above) and this version lacks."""
    if ServerState is None:
        return ["uvicorn.server.ServerState"]
    return _missing(ServerState(), ("connections", "tasks", "default_headers", "total_requests"))


def _missing(owner: object, names: Sequence[str]) -> list[str]:
    kind = owner if isinstance(owner, type) else type(owner)
    return [f"{kind.__name__}.{name}" for name in names if not hasattr(owner, name)]


# --- the server ---


class Drainable(Protocol):
    """A server that can be drained. `failure` says why it could not start; empty if it could."""

    failure: str

    @property
    def grace_s(self) -> float:
        """Seconds for which it still serves after it was told to end; 0: it drains at once."""

    def begin_grace(self) -> None:
        """Says that it is not ready, and tells clients of gRPC to go elsewhere; it serves as before."""

    async def end_grace(self) -> None:
        """Waits until clients of gRPC know, so that none of their calls is rejected by the drain."""

    async def drain(self) -> bool:
        """Waits until everything accepted is answered; False if the time for that ran out or `abandon` was called."""

    def abandon(self) -> None:
        """The drain ends at once: requests that are not answered yet are dropped."""


class HttpPort(NamedTuple):
    """A port of the server.

    sockets: bound, not yet listening.
    fast_path: the fast path of its connections; http2: serves connections of HTTP/2.
    handshakes: the handshakes of a port with TLS.
    """

    sockets: Sequence[socket]
    fast_path: FastPath
    http2: Http2 | None = None
    handshakes: HttpHandshakes | None = None


class DrainingServer(uvicorn.Server):
    """A server that drains after SIGTERM or SIGINT: until it stops it still answers, with 503.

    app/server/http_server.py lists the steps of stopping.

    Args:
        server: is drained before the end.
        connections: the connections of all its ports.
        ports: where it listens.
        at_once: the signal that ends the server without a drain; None: a second one of any kind.

    Attributes:
        exit_code: 0 if every request that was accepted is answered.
    """

    def __init__(
        self,
        application: Application,
        server: Drainable,
        connections: Connections,
        ports: Sequence[HttpPort],
        at_once: signal.Signals | None = None,
    ) -> None:
        config = uvicorn.Config(
            cast(Any, application),
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # no part of the server asks for the client's address before a proxy
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            server_header=False,
        )
        super().__init__(config)
        self._server = server
        self._among = connections
        self._ports = ports
        self._at_once = at_once
        self._told = False  # to end
        self._drain: asyncio.Task[None] | None = None
        self._dropped: set[ServedConnection] = set()
        self.exit_code = 0
        names = ("handle_exit", "on_tick", "startup", "shutdown")
        if missing := _missing(uvicorn.Server, names) + _missing(self, ("should_exit", "force_exit", "server_state")):
            logger.warning("uvicorn %s has no %s; nothing is drained", uvicorn.__version__, ", ".join(missing))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """The first signal begins the end, a second one ends at once, unless there is a signal for that."""
        if self._told and self._at_once is not None:
            return
        begin = partial(self._begin_to_end, grace=sig != signal.SIGINT)
        act = self._drop_the_rest if self._told else begin
        self._told = True
        asyncio.get_running_loop().call_soon_threadsafe(act)  # thread safe: wakes the loop at once

    def _begin_to_end(self, *, grace: bool) -> None:
        if self._at_once is not None:
            asyncio.get_running_loop().add_signal_handler(self._at_once, self._drop_the_rest)
        self._drain = asyncio.create_task(self._drain_and_exit(self._server.grace_s if grace else 0.0), name="drain")

    def _drop_the_rest(self) -> None:
        if self.force_exit:
            return
        self.force_exit = self.should_exit = True
        self._server.abandon()
        self._tell_dropped([each for each in self._connections() if each.awaits_answer])

    def _tell_dropped(self, dropped: Sequence[ServedConnection]) -> None:
        self._dropped |= set(dropped)
        if dropped:
            logger.error("Told to end at once: %d connections close before their answer is sent", len(dropped))
            self.exit_code = 1

    def _connections(self) -> list[ServedConnection]:
        return [each for each in self.server_state.connections if isinstance(each, ServedConnection)]

    async def _drain_and_exit(self, grace_s: float) -> None:
        try:
            if grace_s:
                await self._serve_on(grace_s)
            logger.info("Draining")
            for each in self._connections():
                each.leave()
        except Exception:  # nothing may keep the server from ending
            logger.exception("A bug: not all clients are told that the server ends")
        if not await self._server.drain():
            self.exit_code = 1
        await asyncio.sleep(_LINGER_S)
        self.should_exit = True

    async def _serve_on(self, grace_s: float) -> None:
        """The grace: load balancers learn that this server is not ready, and clients go elsewhere."""
        # 1. Every reply closes its connection, and says so.
        logger.info("Told to end: not ready; requests are still served for %g s", grace_s)
        self._server.begin_grace()
        for port in self._ports:
            port.fast_path.leaving = True
        for each in self._connections():
            each.leave()
        await asyncio.sleep(grace_s)

        # 2. Idle connections end, whose clients may send a request at any time; a new client does so now.
        await self._server.end_grace()
        for each in self._connections():
            each.close_if_idle(min(grace_s, _LINGER_S))

        # 3. Requests that have begun to arrive are accepted before others are rejected.
        connections, handshakes = self._connections(), self._handshakes()

        def arriving() -> bool:
            made = [above for each in handshakes if isinstance(above := each.get_protocol(), ServedConnection)]
            requests = any(each.may_bring_more or each.is_unread for each in (*connections, *made))
            return requests or any(each.in_handshake for each in handshakes)

        await wait_while(arriving, asyncio.get_running_loop().time() + _LINGER_S)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listens on each port, with the port's own factory of connections."""
        await super().startup(sockets)
        if missing := missing_names():
            names = ", ".join(missing)
            logger.warning("uvicorn %s has no %s; all requests go through ASGI", uvicorn.__version__, names)
        for port in self._ports:
            await self._listen(port)

    async def _listen(self, port: HttpPort) -> None:
        """Listens on all sockets of a port, whose connections share what is kept of heads."""
        make, handshakes = self._protocols_of(port), port.handshakes
        of_port = make if handshakes is None else partial(TlsConnection, make, handshakes)
        for bound in port.sockets:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_server(of_port, sock=bound, backlog=self.config.backlog))

    def _protocols_of(self, port: HttpPort) -> Callable[[], asyncio.Protocol]:
        """The factory of a port's connections: Ferry's, or uvicorn's if it lacks a name that Ferry's need."""
        if missing_names():
            protocol = cast(Any, self.config.http_protocol_class)
            return partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        application, state = cast(Application, self.config.loaded_app), cast(Any, self.server_state)
        server = AcceptingServer(self._among, port.http2, application, state, self.lifespan.state)
        return partial(Http1Connection, KnownHeads(port.fast_path), server)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Ends the server without a reset for clients that come now, unless a second signal came.

        Connections that still wait for an answer at the end are aborted: uvicorn would leave them open.
        """
        # 1. No client connects any more, and clients that have connected are answered.
        listening = [each.fileno() for server in self.servers for each in server.sockets]
        await accept_the_last(listening)
        for server in self.servers:
            server.close()
        await self._answer_the_last()
        for each in self._handshakes():
            each.abort()
        if self.force_exit:  # connections made since then
            waiting = [each for each in self._connections() if each.awaits_answer or each.is_unread]
            self._tell_dropped([each for each in waiting if each not in self._dropped])

        # 2. uvicorn closes the connections.
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

        # 3. After a second signal it leaves the application as it is, whose tasks would then be cancelled.
        if self.force_exit:
            await self.lifespan.shutdown()

    async def _answer_the_last(self) -> None:
        """Waits until no request is under way and every new connection has had one, or its time is over."""

        def busy() -> bool:
            waits = self._handshakes() or any(each.may_bring_more for each in self._connections())
            return bool(waits) and not self.force_exit

        await wait_while(busy, asyncio.get_running_loop().time() + _LINGER_S)

    def _handshakes(self) -> list[TlsConnection]:
        """The handshakes under way."""
        return [each for port in self._ports if port.handshakes is not None for each in port.handshakes.under_way]

    async def on_tick(self, counter: int) -> bool:
        """Ends a process that could not start."""
        if self._server.failure:
            self.exit_code = 1
            return True
        return await super().on_tick(counter)
