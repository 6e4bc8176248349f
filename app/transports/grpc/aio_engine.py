"""gRPC served by grpc.aio, whose C core brings its own HTTP/2."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf

import grpc

from app.transports.closing_listener import accept_the_last
from app.transports.descriptors import grpc_connections
from app.transports.grpc.options import GrpcOptions, address_of
from app.transports.grpc.own_sockets import end_connections, has_connections, listening_at
from app.transports.tls.served_tls import ServedTls

#: Calls that wait until the event loop takes them. gRPC drops some of them from the first number on, and all from the
#: second: their callers see CANCELLED, which none retries. Its own numbers, 1,000 and 3,000, are less than one client
#: sends at once (of a burst of 1,500 calls 62 were cancelled). Chosen: those of a few connections.
_PENDING_CALLS, _MOST_PENDING_CALLS = 50_000, 100_000

#: Chosen: a connection has this long to begin as HTTP/2 does (gRPC's own number is 120 s).
_HANDSHAKE_MS = 20_000

#: Chosen: a client that vanished is asked after this long, and given up after this long without an answer. gRPC's own
#: number is 2 hours, for which its streams would stay.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 60_000, 20_000

#: Chosen: how often it is checked whether the last calls have ended.
_LOOK_S = 0.01

#: The library can send no GOAWAY before its end, but does so when a connection has an age: so where there is a grace
#: none gets much older than this, and its end waits for the last ones. Chosen: short for who waits, long beside a
#: handshake.
_AGE_S = 2.5

#: The library adds a tenth by chance; chosen: clients answer the ping behind GOAWAY within this.
_JITTER, _LAST_CALL_S = 1.1, 0.2

_AGE = "grpc.max_connection_age_ms"

#: Chosen: a look at all descriptors takes milliseconds.
_LOOK_AT_CONNECTIONS_S = 0.1

#: gRPC's coroutine of a call. Private: without it the last calls get no time.
_OF_A_CALL = "_schedule_rpc_coro"


#: grpc's logger, and how lines with a traceback begin that any stranger can cause without end: one shows metadata which
#: are no UTF-8, and may be a credential; the other says that a client left before its answer. Private.
_LOGGER = logging.getLogger("grpc._cython.cygrpc")
_BY_STRANGERS = ("Invalid encoding on", "ExecuteBatchError raised in core")


def _not_by_strangers(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_BY_STRANGERS)


class AioEngine:
    """Serves handlers from `start` to `stop`."""

    def __init__(self, options: GrpcOptions, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._options = options
        self._handlers = handlers
        self._server: grpc.aio.Server | None = None
        self._port = 0

    async def start(self, shared: Sequence[socket.socket] = ()) -> int:
        """As grpc.server.CallEngine.start. gRPC opens sockets of its own beside the shared ones."""
        _LOGGER.addFilter(_not_by_strangers)  # once, however often
        options = self._options
        if shared:
            options = replace(options, port=shared[0].getsockname()[1])
        server = grpc.aio.server(options=_arguments(options, share=bool(shared)))
        server.add_generic_rpc_handlers(tuple(self._handlers))
        self._port = self._listen(server, address_of(options))
        for each in shared:
            each.close()
        if self._options.unix_socket:
            self._listen(server, f"unix:{self._options.unix_socket}")
        await server.start()
        self._server = server
        return self._port

    def begin_grace(self) -> None:
        """Does nothing: connections end by their age, and clients connect anew."""

    async def end_grace(self) -> None:
        """As GrpcServer.end_grace: nobody connects any more, and every connection gets its GOAWAY within its age."""
        addresses: list[int | str] = [self._port, *filter(None, [self._options.unix_socket])]
        with ExitStack() as duplicates:
            listening = [duplicates.enter_context(each) for address in addresses for each in listening_at(address)]
            await accept_the_last(each.fileno() for each in listening)
            for each in listening:
                each.shutdown(socket.SHUT_RDWR)
        age_s = _age_s(self._options)
        rest_s = _JITTER * age_s + _LAST_CALL_S if age_s <= _AGE_S else 0.0
        end_s = asyncio.get_running_loop().time() + rest_s
        while asyncio.get_running_loop().time() < end_s:
            if not any(map(has_connections, addresses)):
                break
            await asyncio.sleep(_LOOK_AT_CONNECTIONS_S)

    async def stop(self, grace_s: float) -> None:
        """As GrpcServer.stop.

        gRPC's own stop answers what still comes meanwhile with CANCELLED, which no client tries again. So the
        connections end first, which clients see as UNAVAILABLE.
        """
        if self._server is not None:
            loop = asyncio.get_running_loop()
            end_s = loop.time() + grace_s
            while loop.time() < end_s:
                if not self.calls_under_way():
                    break
                await asyncio.sleep(_LOOK_S)
            end_connections(self._port)
            if self._options.unix_socket:
                end_connections(self._options.unix_socket)
            await self._server.stop(None)

    def calls_under_way(self) -> int:
        return sum(getattr(task.get_coro(), "__name__", "") == _OF_A_CALL for task in asyncio.all_tasks())

    def open_connections(self) -> int | None:
        """grpc.aio does not tell."""
        return None

    def _listen(self, server: grpc.aio.Server, address: str) -> int:
        tls = self._options.tls
        try:
            if tls is None:
                port: int = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, _credentials(tls))
        except RuntimeError:
            raise OSError(f"gRPC cannot listen on {address}: it is in use, or may not be used") from None
        return port


def _credentials(tls: ServedTls) -> grpc.ServerCredentials:
    """The library asks anew for each handshake, in a thread of its own."""

    def now() -> grpc.ServerCertificateConfiguration:
        texts = tls.texts
        return grpc.ssl_server_certificate_configuration([(texts.key, texts.certificate)], texts.client_ca or None)

    return grpc.dynamic_ssl_server_credentials(now(), now, bool(tls.texts.client_ca))


def _arguments(options: GrpcOptions, *, share: bool = False) -> list[tuple[str, int | str]]:
    """Ours, with the user's in their place: gRPC uses the first of two values of a name.

    Without `share` a port that is in use is an error, not a share of its connections.
    """
    arguments: dict[str, int | str] = {
        "grpc.max_receive_message_length": options.max_message_bytes,
        "grpc.max_send_message_length": -1,
        "grpc.max_concurrent_streams": options.max_concurrent_calls,
        "grpc.max_allowed_incoming_connections": max(1, grpc_connections() // (2 if options.unix_socket else 1)),
        "grpc.server.max_pending_requests": _PENDING_CALLS,
        "grpc.server.max_pending_requests_hard_limit": _MOST_PENDING_CALLS,
        "grpc.server_handshake_timeout_ms": _HANDSHAKE_MS,
        "grpc.keepalive_time_ms": _KEEPALIVE_MS,
        "grpc.keepalive_timeout_ms": _KEEPALIVE_TIMEOUT_MS,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.so_reuseport": int(share),
    }
    if (age_s := _age_s(options)) < inf:
        arguments[_AGE] = max(1, round(1e3 * age_s))
    return list({**arguments, **dict(options.arguments)}.items())


def _age_s(options: GrpcOptions) -> float:
    """After how many seconds a connection ends; inf for never."""
    users = dict(options.arguments).get(_AGE)
    if isinstance(users, int):
        return users / 1e3
    return min(options.max_age_s or inf, _AGE_S if options.drain_grace_s else inf)
