"""The standard health service, grpc.health.v1.

The servicer of the package lets all that watch wait for one asyncio.Condition: each that ends is looked for among all
of them, and one whose client does not read holds the lock that the others need. Here each waits for a future of its
own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SERVING: int = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: int = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: int = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

#: Chosen: how often it is checked for watchers.
_PERIOD_S = 0.25


class GrpcHealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package has no types
    """Every service is SERVING while `ready()` is true. A check and the beginning of a watch call it; watchers are told
    of changes soon after.

    A service is known by its full name and, as in TensorFlow Serving, by the last part of it; '' means all services.
    """

    def __init__(self, services: Sequence[str], ready: Callable[[], bool]) -> None:
        self._services = frozenset(("", *services, *(name.rpartition(".")[2] for name in services)))
        self._ready = ready
        self._serving: bool | None = None
        self._watchers: set[asyncio.Future[None]] = set()

    async def Check(  # noqa: N802 - gRPC's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> health_pb2.HealthCheckResponse:
        self.refresh()
        status = self._status_of(request.service)
        if status == _UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 - likewise
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> None:
        self.refresh()
        told = None
        while True:
            status = self._status_of(request.service)
            if status != told:
                told = status
                await context.write(health_pb2.HealthCheckResponse(status=status))
            else:
                await self._change()

    def _status_of(self, service: str) -> int:
        if service not in self._services:
            return _UNKNOWN
        return _SERVING if self._serving else _NOT_SERVING

    async def _change(self) -> None:
        changed = asyncio.get_running_loop().create_future()
        self._watchers.add(changed)
        try:
            await changed
        finally:
            self._watchers.discard(changed)

    def refresh(self) -> None:
        """Tells watchers of a change."""
        serving = self._ready()
        if serving is self._serving:
            return
        self._serving = serving
        for each in self._watchers:
            if not each.done():
                each.set_result(None)

    async def follow(self) -> None:
        while True:
            self.refresh()
            await asyncio.sleep(_PERIOD_S)
