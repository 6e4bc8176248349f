"""The gRPC server: the services that it is given, with health and reflection, on one of two engines."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from app.codecs.protobuf.messages import new_pool
from app.core.burst import Burst
from app.transports.grpc.aio_engine import AioEngine
from app.transports.grpc.calls import Service
from app.transports.grpc.health import GrpcHealthService
from app.transports.grpc.held_messages import HeldMessages
from app.transports.grpc.options import GrpcEngine, GrpcOptions
from app.transports.grpc.own.arguments import unknown_arguments
from app.transports.grpc.own.server import OwnEngine
from app.transports.grpc.standard_services import Guarded, StandardServices

logger = logging.getLogger(__name__)

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class CallEngine(Protocol):
    """What carries calls to handlers."""

    async def start(self, shared: Sequence[socket.socket] = ()) -> int:
        """The port, 0 without one.

        Args:
            shared: bound sockets to take instead of host and port: of a port that other processes listen on, too.

        Raises:
            OSError: it cannot listen; the text names the address.
        """

    def begin_grace(self) -> None:
        """As GrpcServer.begin_grace."""

    async def end_grace(self) -> None:
        """As GrpcServer.end_grace."""

    async def stop(self, grace_s: float) -> None:
        """As GrpcServer.stop; does nothing if it was not started."""

    def calls_under_way(self) -> int:
        """How many calls have not sent all of their replies."""

    def open_connections(self) -> int | None:
        """None if it cannot tell."""


class GrpcServer:
    """Serves `services` from `start` to `stop`.

    While the owner drains, `ready` is false and the services reject new calls: the server reports NOT_SERVING and still
    answers.

    Args:
        burst: is told of calls that are left for the next turns of the event loop.

    Attributes:
        services: as given.
    """

    def __init__(
        self,
        options: GrpcOptions,
        services: Sequence[grpc.GenericRpcHandler],
        ready: Callable[[], bool],
        burst: Burst | None = None,
    ) -> None:
        self.services = services
        self._names = [name for service in services if (name := service.service_name())]
        self._health = GrpcHealthService(self._names, ready)
        handlers = [*services, *self._standard_services()]
        self._engine: CallEngine
        if engine_of(options) == "own":
            held = next((each.calls.held for each in services if isinstance(each, Service)), None)
            self._engine = OwnEngine(options, handlers, held or HeldMessages(), burst or Burst())
        else:
            self._engine = AioEngine(options, handlers)
        self._following: asyncio.Task[None] | None = None
        self._options = options
        self.port = 0

    def _standard_services(self) -> Sequence[grpc.GenericRpcHandler]:
        standard = StandardServices()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, standard)
        pool = new_pool(health_pb2.DESCRIPTOR.serialized_pb, reflection_pb2.DESCRIPTOR.serialized_pb)
        names = [*self._names, HEALTH, reflection.SERVICE_NAME]
        servicer = reflection.aio.ReflectionServicer(names, pool=pool)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, standard)
        calls = next((each.calls for each in self.services if isinstance(each, Service)), None)
        if calls is None or calls.allowed is None:
            return standard.handlers
        return [each if each.service_name() == HEALTH else Guarded(each, calls) for each in standard.handlers]

    async def start(self, shared: Sequence[socket.socket] = ()) -> None:
        """As CallEngine.start; the port is an attribute then."""
        self.port = await self._engine.start(shared)
        if self.port and not shared:  # else who opened them has told
            logger.info("gRPC on %s, port %d%s", self._options.host, self.port, ", TLS" if self._options.tls else "")
        self._following = asyncio.create_task(self._health.follow(), name="grpc health")

    def begin_grace(self) -> None:
        """Tells all clients that are connected to go elsewhere. Their calls are served, and so are new connections."""
        self._engine.begin_grace()

    async def end_grace(self) -> None:
        """Accepts no more connections, and ends when every client knows: none of them begins a call afterwards."""
        await self._engine.end_grace()

    async def stop(self, grace_s: float) -> None:
        """Ends when no call is under way, after `grace_s` seconds at most. Does nothing if it was not started.

        Calls that it does not answer any more are seen as UNAVAILABLE, which clients may try elsewhere.
        """
        if self._following is not None:
            self._following.cancel()
        await self._engine.stop(grace_s)

    @property
    def own_engine(self) -> OwnEngine | None:
        """None where grpc.aio serves."""
        return self._engine if isinstance(self._engine, OwnEngine) else None

    def calls_under_way(self) -> int:
        """How many calls have not sent all of their replies."""
        return self._engine.calls_under_way()

    def open_connections(self) -> int | None:
        """None if its engine cannot tell."""
        return self._engine.open_connections()


def engine_of(options: GrpcOptions) -> GrpcEngine:
    """grpc.aio also where an argument is its own."""
    unknown = unknown_arguments(options)
    if options.engine == "own" and unknown:
        logger.warning("grpc.aio serves gRPC: the channel arguments %s are its own", ", ".join(unknown))
    return "aio" if unknown else options.engine
