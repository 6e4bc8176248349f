"""The gRPC server: the services that it is given, with health and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from app.codecs.protobuf.messages import new_pool
from app.transports.descriptors import grpc_connections
from app.transports.grpc.health import GrpcHealthService
from app.transports.grpc.own_sockets import end_connections
from app.transports.grpc.standard_services import StandardServices

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

#: gRPC's coroutine of a call. Private: without it the last calls get no time.
_OF_A_CALL = "_schedule_rpc_coro"

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Where and how to listen.

    `port` 0 takes a free one. `max_message_bytes` limits requests; replies are as large as the model makes them.
    `max_concurrent_calls` holds for each connection.
    Each address takes its part of the connections that file descriptors allow; a further one is closed.
    `unix_socket` is a path that serves the same services. `arguments` are gRPC's own channel arguments, by name.
    `credentials` turn TLS on, for the socket too.
    """

    host: str = "0.0.0.0"  # noqa: S104 - a container serves its network
    port: int = 8500
    max_message_bytes: int = 64 * 1024**2
    unix_socket: str = ""
    max_concurrent_calls: int = 10_000
    arguments: Sequence[tuple[str, int | str]] = ()
    credentials: grpc.ServerCredentials | None = None


class GrpcServer:
    """Serves `services` from `start` to `stop`.

    While the owner drains, `ready` is false and the services reject new calls: the server reports NOT_SERVING and still
    answers.
    """

    def __init__(
        self, options: GrpcOptions, services: Sequence[grpc.GenericRpcHandler], ready: Callable[[], bool]
    ) -> None:
        self._options = options
        self._services = services
        self._names = [name for service in services if (name := service.service_name())]
        self._health = GrpcHealthService(self._names, ready)
        self._server: grpc.aio.Server | None = None
        self._following: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError if it cannot listen; the text names the address."""
        server = grpc.aio.server(options=_arguments(self._options))
        server.add_generic_rpc_handlers(tuple(self._services))
        standard = StandardServices(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, standard)
        pool = new_pool(health_pb2.DESCRIPTOR.serialized_pb, reflection_pb2.DESCRIPTOR.serialized_pb)
        names = [*self._names, HEALTH, reflection.SERVICE_NAME]
        servicer = reflection.aio.ReflectionServicer(names, pool=pool)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, standard)
        self.port = self._listen(server, _address(self._options))
        if self._options.unix_socket:
            self._listen(server, f"unix:{self._options.unix_socket}")
        await server.start()
        self._server = server
        self._following = asyncio.create_task(self._health.follow(), name="grpc health")

    async def stop(self, grace_s: float) -> None:
        """Ends when no call is under way, after `grace_s` seconds at most. Does nothing if it was not started.

        gRPC's own stop answers what still comes meanwhile with CANCELLED, which no client tries again. So the
        connections end first, which clients see as UNAVAILABLE.
        """
        if self._following is not None:
            self._following.cancel()
        if self._server is not None:
            loop = asyncio.get_running_loop()
            end_s = loop.time() + grace_s
            while loop.time() < end_s:
                if not calls_under_way():
                    break
                await asyncio.sleep(_LOOK_S)
            end_connections(self.port)
            if self._options.unix_socket:
                end_connections(self._options.unix_socket)
            await self._server.stop(None)

    def _listen(self, server: grpc.aio.Server, address: str) -> int:
        credentials = self._options.credentials
        try:
            if credentials is None:
                port: int = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            raise OSError(f"gRPC cannot listen on {address}: it is in use, or may not be used") from None
        return port


def calls_under_way() -> int:
    """How many calls of this event loop have not sent all of their replies."""
    return sum(getattr(task.get_coro(), "__name__", "") == _OF_A_CALL for task in asyncio.all_tasks())


def _arguments(options: GrpcOptions) -> list[tuple[str, int | str]]:
    """Ours, with the user's in their place: gRPC uses the first of two values of a name."""
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
        "grpc.so_reuseport": 0,  # a port that is in use is an error, not a share of its connections
    }
    return list({**arguments, **dict(options.arguments)}.items())


def _address(options: GrpcOptions) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"
