"""Listens for gRPC, and ends in the order that loses no call which was begun."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from app.core.burst import Burst
from app.transports.grpc.held_messages import HeldMessages
from app.transports.grpc.options import GrpcOptions, address_of
from app.transports.grpc.own.application import GrpcApplication
from app.transports.grpc.own.arguments import limits_of, max_connections, max_message_bytes, times_of
from app.transports.http2.protocol import Connections, Http2Protocol, Times
from app.transports.ports import accepting_many, bind_port

#: Connections that wait to be accepted. Chosen, as for HTTP.
_BACKLOG = 2048

#: Of TLS. Chosen: no timer is longer.
_MOST_HANDSHAKE_S = 600.0

#: Chosen: how often it is checked whether the last calls have ended.
_LOOK_S = 0.01

#: asyncio tells a connection that it is lost some turns after it was closed. Chosen: twice as many.
_TURNS_TO_CLOSE = 4


class OwnEngine:
    """Serves handlers from `start` to `stop`.

    Args:
        held: of all services; the memory that its connections count with.
        burst: see CallsOfATurn.
    """

    def __init__(
        self, options: GrpcOptions, handlers: Sequence[grpc.GenericRpcHandler], held: HeldMessages, burst: Burst
    ) -> None:
        self._options = options
        limits = limits_of(options)
        application = GrpcApplication(handlers, max_message_bytes(options), limits.max_list_bytes, burst)
        times = Times()
        if held.slow_readers is not None:
            slow = held.slow_readers
            times = Times(slow_s=slow.time_s, min_bytes_per_s=slow.min_bytes_per_s)
        self._connections = Connections(
            application,
            limits=limits,
            times=times_of(options, times),
            memory=held.memory,
            most=max_connections(options),
        )
        self._servers: list[asyncio.Server] = []
        self._tls: dict[str, Any] = {}

    async def start(self) -> int:
        """The port. Raises OSError if it cannot listen; the text names the address."""
        options = self._options
        if options.tls is not None:
            handshake_s = self._connections.times.handshake_s
            self._tls = {"ssl": options.tls.context(), "ssl_handshake_timeout": min(handshake_s, _MOST_HANDSHAKE_S)}
        try:
            sockets = await self._bind()
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
        return int(sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """As GrpcServer.stop. A client learns from GOAWAY which of its calls were not begun (RFC 9113, section 6.8)."""
        self._close()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        for each in list(self._connections.open):
            each.drain(grace_s)
        while self._connections.under_way and loop.time() < end_s:  # noqa: ASYNC110 - calls that end set no event
            await asyncio.sleep(_LOOK_S)
        for each in list(self._connections.open):
            each.end()
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)
        while self._connections.open and loop.time() < end_s:  # noqa: ASYNC110 - the sockets have not taken all yet
            await asyncio.sleep(_LOOK_S)

    def calls_under_way(self) -> int:
        return self._connections.under_way

    def open_connections(self) -> int | None:
        return len(self._connections.open)

    async def _bind(self) -> list[socket.socket]:
        """One for each address of the host, all on one port."""
        host, port = self._options.host, self._options.port
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                sockets.append(bind_port(family, (address[0], port, *address[2:])))
                port = sockets[0].getsockname()[1]
        except OSError:
            for each in sockets:
                each.close()
            raise
        return sockets

    async def _listen(self, bound: socket.socket) -> None:
        make = partial(Http2Protocol, self._connections)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(make, sock=bound, backlog=_BACKLOG, **self._tls))

    async def _listen_on_unix_socket(self, path: str) -> None:
        make = partial(Http2Protocol, self._connections)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(make, path, backlog=_BACKLOG, **self._tls))

    def _close(self) -> None:
        servers, self._servers = self._servers, []
        for each in servers:
            each.close()
        if servers and self._options.unix_socket:
            with suppress(OSError):
                Path(self._options.unix_socket).unlink()

    def __repr__(self) -> str:
        return f"<OwnEngine {self._connections!r}>"


def _cannot_listen(address: str) -> OSError:
    return OSError(f"gRPC cannot listen on {address}: it is in use, or may not be used")
