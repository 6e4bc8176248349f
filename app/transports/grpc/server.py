"""The gRPC server: listens for its services, with health and reflection, and ends in the order that loses no call."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

from app.core.burst import Burst
from app.core.events import ignore
from app.transports.closing_listener import accept_the_last
from app.transports.grpc.application import GrpcApplication
from app.transports.grpc.arguments import (
    limits_of,
    max_connections,
    max_message_bytes,
    max_reply_bytes,
    times_of,
)
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.health import HEALTH, GrpcHealth
from app.transports.grpc.options import GrpcOptions, address_of
from app.transports.grpc.reflection import VERSIONS, Reflection, reflection_names
from app.transports.grpc.services import Service
from app.transports.grpc.tls_handshakes import GrpcHandshakes
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.ports import accepting_many, bind_addresses
from app.transports.tls.tls_connection import TlsConnection
from app.transports.waiting import wait_while

logger = logging.getLogger(__name__)

#: Connections that wait to be accepted. Chosen, as for HTTP.
_BACKLOG = 2048

#: Chosen: several round trips, also to a busy client.
_LAST_CALL_S = 3.0

#: asyncio tells a connection that it is lost some turns after it was closed. Chosen: twice as many.
_TURNS_TO_CLOSE = 4


class GrpcServer:
    """Serves `services` from `start` to `stop`.

    While the owner drains, `ready` is false and the services reject new calls: the server reports NOT_SERVING and still
    answers.

    Args:
        services: connections count with the memory of the first one.
        burst: is told of calls that are left for the next turns of the event loop.

    Attributes:
        services: as given.
        application: answers calls, also those that come by other connections, within `limits` and `times`.
        port: 0 before the start, and without one.
    """

    def __init__(
        self,
        options: GrpcOptions,
        services: Sequence[Service],
        ready: Callable[[], bool],
        burst: Burst | None = None,
    ) -> None:
        self.services = services
        self.port = 0
        self._options = options
        calls = services[0].calls if services else GrpcCalls("grpc", ignore, inf)
        self._health = GrpcHealth([each.name for each in services], ready)
        self.limits, self.times = limits_of(options), times_of(options)
        self.application = GrpcApplication(
            [*services, *self._standard_services(calls)],
            max_message_bytes(options),
            self.limits.max_list_bytes,
            burst or Burst(),
            max_reply_bytes=max_reply_bytes(options),
        )
        self._connections = Http2Connections(
            self.application,
            limits=self.limits,
            times=self.times,
            memory=calls.memory,
            most=max_connections(options),
        )
        tls = options.tls
        self._handshakes = None if tls is None else GrpcHandshakes(self._connections, tls, self.times.handshake_s)
        self._servers: list[asyncio.Server] = []
        self._following: asyncio.Task[None] | None = None

    def _standard_services(self, calls: GrpcCalls) -> Sequence[Service]:
        """gRPC's own, whose calls last as long as the client wants."""
        standard = GrpcCalls(
            calls.protocol,
            calls.listener,
            inf,
            memory=calls.memory,
            allowed=calls.allowed,
            access=calls.access,
            standard=True,
        )
        names = [*(each.name for each in self.services), HEALTH, *reflection_names()]
        return [self._health.service(standard), *(Reflection(each, names).service(standard) for each in VERSIONS)]

    async def start(self, shared: Sequence[socket.socket] = ()) -> None:
        """The port is an attribute then.

        Args:
            shared: bound sockets to take instead of host and port: of a port that other processes listen on, too.

        Raises:
            OSError: it cannot listen; the text names the address.
        """
        options = self._options
        try:
            sockets = shared or await self._bind()
        except OSError as error:
            raise _cannot_listen(address_of(options)) from error
        for each in accepting_many(sockets):
            await self._listen(each)
        if options.unix_socket:
            try:
                await self._listen_on_unix_socket(options.unix_socket)
            except OSError as error:
                self._close()
                raise _cannot_listen(f"unix:{options.unix_socket}") from error
        if sockets:
            self.port = int(sockets[0].getsockname()[1])
            if not shared:  # else the process that opened them has told
                logger.info("gRPC on %s, port %d%s", options.host, self.port, ", TLS" if options.tls else "")
        self._following = asyncio.create_task(self._health.follow(), name="grpc health")

    def begin_grace(self) -> None:
        """Tells all clients that are connected to go elsewhere. Their calls are served, and so are new connections.

        A client that has just connected is told at the end of the grace.
        """
        for each in list(self._connections.open):
            if each.connection.settings_came:
                each.drain()

    async def end_grace(self) -> None:
        """Accepts no more connections, and ends when every client knows: none of them begins a call afterwards.

        A client that does not answer is not waited for.
        """
        await accept_the_last(each.fileno() for server in self._servers for each in server.sockets)
        self._close()
        end_s = asyncio.get_running_loop().time() + _LAST_CALL_S
        await wait_while(lambda: self._connections.arriving, end_s)
        for each in list(self._connections.open):
            each.drain()
        await wait_while(lambda: not self._connections.drained, end_s)

    async def stop(self, grace_s: float) -> None:
        """Ends when no call is under way, after `grace_s` seconds at most. Does nothing if it was not started.

        A client sees calls that are not answered any more as UNAVAILABLE, and may try them elsewhere: GOAWAY tells it
        which of its calls were not begun (RFC 9113, section 6.8).
        """
        if self._following is not None:
            self._following.cancel()
        self._close()
        for handshake in list(self._connections.arriving):
            handshake.abort()
        end_s = asyncio.get_running_loop().time() + grace_s
        for each in list(self._connections.open):
            each.drain(grace_s)
        await wait_while(lambda: self._connections.under_way, end_s)
        for each in list(self._connections.open):
            each.hasten()
            each.end()
        await _turns_to_close()
        await wait_while(lambda: self._connections.open, end_s)  # the sockets have not taken all yet
        for each in list(self._connections.open):
            each.transport.abort()  # a client that does not read, or does not take leave of TLS
        await _turns_to_close()

    def calls_under_way(self) -> int:
        """How many calls have not sent all of their replies."""
        return self._connections.under_way

    def open_connections(self) -> int:
        return len(self._connections.open)

    async def _bind(self) -> list[socket.socket]:
        options = self._options
        return await asyncio.to_thread(bind_addresses, options.host, options.port) if options.own_port else []

    async def _listen(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(self._connection, sock=bound, backlog=_BACKLOG))

    async def _listen_on_unix_socket(self, path: str) -> None:
        loop, bound = asyncio.get_running_loop(), _bind_unix_socket(path)
        self._servers.append(await loop.create_unix_server(self._connection, sock=bound, backlog=_BACKLOG))

    def _connection(self) -> asyncio.Protocol:
        make = partial(Http2Protocol, self._connections)
        return make() if self._handshakes is None else TlsConnection(make, self._handshakes)

    def _close(self) -> None:
        servers, self._servers = self._servers, []
        for each in servers:
            each.close()
        if servers and self._options.unix_socket:
            with suppress(OSError):
                Path(self._options.unix_socket).unlink()

    def __repr__(self) -> str:
        return f"<GrpcServer {self._connections!r}>"


def _bind_unix_socket(path: str) -> socket.socket:
    """Binds the socket, in the place of a file that an ended process has left there. Raises OSError."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        with suppress(FileNotFoundError):
            if Path(path).is_socket():
                Path(path).unlink()
        bound.bind(path)
    except OSError:
        bound.close()
        raise
    return bound


async def _turns_to_close() -> None:
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)


def _cannot_listen(address: str) -> OSError:
    return OSError(f"gRPC cannot listen on {address}: it is in use, or may not be used")
