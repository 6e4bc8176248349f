"""gRPC of one process: the services of all protocols on a port, and on a second one for administration."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from app.access.access import Access
from app.config.settings import Settings
from app.core.burst import Burst
from app.core.events import Listener
from app.core.interfaces import ServedRepository, ServerHealth
from app.protocols.open_inference import grpc as open_inference
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.grpc import OpenInferenceGrpc
from app.protocols.tensorflow_serving import grpc as tensorflow_serving
from app.protocols.tensorflow_serving.grpc import Reload, TensorFlowGrpc
from app.transports.access_log import AccessLog
from app.transports.administration import Administration
from app.transports.grpc.arguments import warn_of_others
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule
from app.transports.request_trace import Tracing
from app.transports.rest_http2.application import GrpcOnRestPort
from app.transports.tls.served_tls import ServedTls

_OPERATORS_METHODS = frozenset({*tensorflow_serving.OPERATORS_METHODS, *open_inference.OPERATORS_METHODS})


class GrpcBackend(ServerHealth, Protocol):
    """What is served: Server, or frontends/frontend/frontend_server.py."""

    settings: Settings
    open_inference: OpenInference
    memory: ClientMemory
    burst: Burst
    listener: Listener
    readers: ReadingProcesses
    reload: Reload | None
    tracing: Tracing | None
    access: Access | None

    @property
    def repository(self) -> ServedRepository: ...


class GrpcServers:
    """The servers of one or two ports, from `start` to `stop`.

    Args:
        options: of the first port, the only one that also has the Unix socket.
    """

    def __init__(self, backend: GrpcBackend, options: GrpcOptions) -> None:
        settings = backend.settings
        administration = Administration.of(settings)
        warn_of_others(options)

        def ready() -> bool:
            return not (backend.dead() or backend.unready())

        def server(options: GrpcOptions, administration: Administration, left_out: Collection[str] = ()) -> GrpcServer:
            services = _services(backend, administration)
            for each in services:
                each.leave_out(left_out)
            return GrpcServer(options, services, ready, backend.burst)

        self._servers = [server(options, administration, _OPERATORS_METHODS if settings.operator_port else ())]
        if settings.admin_grpc_port:
            there = replace(options, port=settings.admin_grpc_port, unix_socket="", own_port=True)
            self._servers.append(server(there, administration.on_its_grpc_port()))

        self._options = options

    @property
    def services(self) -> Sequence[Service]:
        """Of the first port."""
        return self._servers[0].services

    @property
    def port(self) -> int:
        """The first one; 0 before the start, and where calls come by the port of REST."""
        return self._servers[0].port

    def on_rest_port(self) -> GrpcOnRestPort | None:
        """What answers calls that come by the port of REST; None if they have a port of their own."""
        if self._options.own_port:
            return None
        server = self._servers[0]
        return GrpcOnRestPort(server.application, server.limits, server.times)

    def open_connections(self) -> int:
        return sum([each.open_connections() for each in self._servers])

    async def start(self, shared: Sequence[Sequence[socket.socket]] = ()) -> None:
        """Raises OSError if one cannot listen; the text names the address.

        Args:
            shared: of each port, the sockets to take instead of the options' host and port.
        """
        for place, each in enumerate(self._servers):
            await each.start(shared[place] if shared else ())

    def begin_grace(self) -> None:
        """As GrpcServer.begin_grace."""
        for each in self._servers:
            each.begin_grace()

    async def end_grace(self) -> None:
        """As GrpcServer.end_grace: of all at once."""
        await asyncio.gather(*(each.end_grace() for each in self._servers))

    async def stop(self, grace_s: float) -> None:
        """As GrpcServer.stop."""
        await asyncio.gather(*(each.stop(grace_s) for each in self._servers))


def _services(backend: GrpcBackend, administration: Administration) -> list[Service]:
    """The services of all protocols on one port."""
    settings = backend.settings
    callers, access = CallerRule.of(settings.fair_callers), AccessLog.of(settings.access_log)

    def calls(protocol: str, *, peers: bool = False) -> GrpcCalls:
        return GrpcCalls(
            protocol,
            backend.listener,
            settings.request_timeout_ms,
            callers,
            peers=peers,
            readers=backend.readers,
            memory=backend.memory,
            tracing=backend.tracing,
            allowed=backend.access,
            access=access,
        )

    tensorflow = TensorFlowGrpc(
        backend.repository,
        calls(tensorflow_serving.PROTOCOL),
        max_message_bytes=settings.grpc_max_message_bytes,
        tensor_content=settings.tensor_content,
        reload=backend.reload,
        administration=administration,
    )
    v2 = OpenInferenceGrpc(
        backend.open_inference,
        calls(open_inference.PROTOCOL, peers=backend.open_inference.has_regions),
        administration=administration,
    )
    return [*tensorflow.services(), *v2.services()]


def grpc_options(settings: Settings) -> GrpcOptions:
    """Raises TlsError: what settings name for TLS cannot be used."""
    return GrpcOptions(
        settings.host,
        settings.grpc_port,
        settings.grpc_max_message_bytes,
        settings.grpc_unix_socket,
        settings.grpc_max_concurrent_calls,
        own_port=not settings.single_port,
        max_age_s=settings.grpc_max_connection_age_s,
        slow_s=settings.arrival_timeout_s,
        min_bytes_per_s=settings.min_body_bytes_per_s,
        tls=ServedTls.of(settings),
    )
