"""The standard health service, grpc.health.v1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc
from grpc_health.v1 import health, health_pb2

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

#: Chosen: how often it is checked for watchers.
_PERIOD_S = 0.25


class GrpcHealthService(health.aio.HealthServicer):  # type: ignore[misc] # the package has no types
    """Every service is SERVING while `ready()` is true. A check and the beginning of a watch call it; watchers are told
    of changes soon after.

    A service is known by its full name and, as in TensorFlow Serving, by the last part of it; '' means all services.
    """

    def __init__(self, services: Sequence[str], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._services = ("", *services, *(name.rpartition(".")[2] for name in services))
        self._ready = ready

    async def Check(  # noqa: N802 - gRPC's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> health_pb2.HealthCheckResponse:
        await self.refresh()
        return await super().Check(request, context)

    async def Watch(  # noqa: N802 - likewise
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> None:
        await self.refresh()
        await super().Watch(request, context)

    async def refresh(self) -> None:
        """Tells watchers of a change."""
        status = _SERVING if self._ready() else _NOT_SERVING
        for service in self._services:
            if self._server_status.get(service) != status:
                await self.set(service, status)

    async def follow(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_PERIOD_S)
