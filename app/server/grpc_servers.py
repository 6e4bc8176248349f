"""gRPC of one process: the services of all protocols, for callers on its port and for operators on their port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from app.access.access import Access
from app.access.rules import Permission
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
    """The server in a process, as `GrpcServers` uses it: `Server`, or `FrontendServer` in a frontend.

    access: which callers may send what; None if every caller may send all.
    """

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
    """The gRPC server of callers, and that of operators if they have a port, from `start` to `stop`.

    Args:
        options: address, limits and TLS of the callers' server. That of operators has these limits, but no socket: its
            calls come by `operator_port`, which HTTP listens on.
    """

    def __init__(self, backend: GrpcBackend, options: GrpcOptions) -> None:
        # 0. Both servers share the options' limits, and report whether the process is ready.
        settings = backend.settings
        warn_of_others(options)

        def ready() -> bool:
            return not (backend.dead() or backend.unready())

        def server(options: GrpcOptions, services: Sequence[Service]) -> GrpcServer:
            return GrpcServer(options, services, ready, backend.burst)

        # 1. The callers' server: all methods; without those for operators if `operator_port` is set.
        services = _services(backend)
        for each in services if settings.operator_port else ():
            each.leave_out(_OPERATORS_METHODS)
        self._callers = callers = server(options, services)
        self._options = options
        self.open_connections = callers.open_connections
        self.begin_grace, self.end_grace = callers.begin_grace, callers.end_grace  # HTTP drains operators' connections

        # 2. The operators' server: all methods but those of inference.
        self._operators: GrpcServer | None = None
        if settings.operator_port:
            services = _services(backend)
            for each in services:
                infer = [path for path, method in each.methods.items() if method.need.permission is Permission.INFER]
                each.leave_out(infer)
            self._operators = server(replace(options, unix_socket="", own_port=False), services)

    @property
    def services(self) -> Sequence[Service]:
        """The services on the port of callers."""
        return self._callers.services

    @property
    def port(self) -> int:
        """The port of callers; 0 before the start, and where calls come by the port of REST."""
        return self._callers.port

    def on_rest_port(self) -> GrpcOnRestPort | None:
        """The gRPC application, limits and times for the port of REST; None if gRPC has a port of its own."""
        return None if self._options.own_port else _on_http_port(self._callers)

    def on_operator_port(self) -> GrpcOnRestPort | None:
        """The gRPC application, limits and times for the port of operators; None without that port."""
        return None if self._operators is None else _on_http_port(self._operators)

    async def start(self, shared: Sequence[socket.socket] = ()) -> None:
        """Listen, and serve. Raises OSError if it cannot listen; the text names the address.

        Args:
            shared: the sockets to take instead of the options' host and port.
        """
        await self._callers.start(shared)
        if self._operators is not None:
            await self._operators.start()

    async def stop(self, grace_s: float) -> None:
        """Stop both servers; each waits for its calls for `grace_s` seconds at most."""
        await asyncio.gather(*(each.stop(grace_s) for each in (self._callers, self._operators) if each is not None))


def _on_http_port(server: GrpcServer) -> GrpcOnRestPort:
    return GrpcOnRestPort(server.application, server.limits, server.times)


def _services(backend: GrpcBackend) -> list[Service]:
    """The services of all protocols, with all of their methods."""
    # 1. What all protocols share: who administers, the callers, the access log.
    settings = backend.settings
    administration = Administration.of(settings)
    callers, access_log = CallerRule.of(settings.fair_callers), AccessLog.of(settings.access_log)

    # 2. What the calls of one protocol share.
    def calls(protocol: str) -> GrpcCalls:
        return GrpcCalls(
            protocol,
            backend.listener,
            settings.request_timeout_ms,
            callers,
            readers=backend.readers,
            memory=backend.memory,
            tracing=backend.tracing,
            allowed=backend.access,
            access=access_log,
        )

    # 3. The services of each protocol.
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
        calls(open_inference.PROTOCOL),
        administration=administration,
    )
    return [*tensorflow.services(), *v2.services()]


def grpc_options(settings: Settings) -> GrpcOptions:
    """The options of gRPC that follow from the settings. Raises TlsError: the certificate or key cannot be used."""
    return GrpcOptions(
        settings.host,
        settings.grpc_port,
        settings.grpc_max_message_bytes,
        settings.grpc_unix_socket,
        settings.grpc_max_concurrent_calls,
        own_port=not settings.single_port,
        max_age_s=settings.max_connection_age_s,
        slow_s=settings.arrival_timeout_s,
        min_bytes_per_s=settings.min_body_bytes_per_s,
        tls=ServedTls.of(settings),
    )
