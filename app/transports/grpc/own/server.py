"""Listens for gRPC, and ends in the order that loses no call which was begun."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc

from app.core.burst import Burst
from app.transports.closing_listener import accept_the_last
from app.transports.grpc.held_messages import HeldMessages
from app.transports.grpc.options import GrpcOptions, address_of
from app.transports.grpc.own.application import GrpcApplication
from app.transports.grpc.own.arguments import limits_of, max_connections, max_message_bytes, times_of
from app.transports.grpc.own.handshakes import GrpcHandshakes
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.http2.times import Times
from app.transports.ports import accepting_many, bind_addresses
from app.transports.tls.tls_connection import TlsConnection

#: Connections that wait to be accepted. Chosen, as for HTTP.
_BACKLOG = 2048

#: Chosen: how often it is checked whether the last calls have ended.
_LOOK_S = 0.01

#: Chosen: several times the way to a client and back, also of one that is busy.
_LAST_CALL_S = 3.0

#: asyncio tells a connection that it is lost some turns after it was closed. Chosen: twice as many.
_TURNS_TO_CLOSE = 4


class OwnEngine:
    """Serves handlers from `start` to `stop`.

    Args:
        held: of all services; the memory that its connections count with.
        burst: see CallCoalescer.

    Attributes:
        application: answers calls, also those that come by other connections, within `limits` and `times`.
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
        times = times_of(options, times)
        self._connections = Http2Connections(
            application,
            limits=limits,
            times=times,
            memory=held.memory,
            most=max_connections(options),
        )
        tls = options.tls
        self._handshakes = None if tls is None else GrpcHandshakes(self._connections, tls, times.handshake_s)
        self.application, self.limits, self.times = application, limits, times
        self._servers: list[asyncio.Server] = []

    async def start(self, shared: Sequence[socket.socket] = ()) -> int:
        """As grpc.server.CallEngine.start."""
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
        return int(sockets[0].getsockname()[1]) if sockets else 0

    def begin_grace(self) -> None:
        """As GrpcServer.begin_grace. Who has just connected is told at the end of the grace."""
        for each in list(self._connections.open):
            if each.connection.settings_came:
                each.drain()

    async def end_grace(self) -> None:
        """As GrpcServer.end_grace; a client that does not answer is not waited for."""
        await accept_the_last(each.fileno() for server in self._servers for each in server.sockets)
        self._close()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _LAST_CALL_S
        while self._connections.arriving and loop.time() < end_s:  # noqa: ASYNC110 - a handshake that ends sets no event
            await asyncio.sleep(_LOOK_S)
        for each in list(self._connections.open):
            each.drain()
        while not self._connections.drained and loop.time() < end_s:  # noqa: ASYNC110 - an answer sets no event
            await asyncio.sleep(_LOOK_S)

    async def stop(self, grace_s: float) -> None:
        """As GrpcServer.stop. A client learns from GOAWAY which of its calls were not begun (RFC 9113, section 6.8)."""
        self._close()
        for handshake in list(self._connections.arriving):
            handshake.abort()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        for each in list(self._connections.open):
            each.drain(grace_s)
        while self._connections.under_way and loop.time() < end_s:  # noqa: ASYNC110 - calls that end set no event
            await asyncio.sleep(_LOOK_S)
        for each in list(self._connections.open):
            each.hasten()
            each.end()
        await _turns_to_close()
        while self._connections.open and loop.time() < end_s:  # noqa: ASYNC110 - the sockets have not taken all yet
            await asyncio.sleep(_LOOK_S)
        for each in list(self._connections.open):
            each.transport.abort()  # a client that does not read, or does not take leave of TLS
        await _turns_to_close()

    def calls_under_way(self) -> int:
        return self._connections.under_way

    def open_connections(self) -> int | None:
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
        return f"<OwnEngine {self._connections!r}>"


def _bind_unix_socket(path: str) -> socket.socket:
    """In the place of one that a process has left there. Raises OSError."""
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
