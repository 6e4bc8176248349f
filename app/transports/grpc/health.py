"""gRPC's standard health service, grpc.health.v1.

Each watch waits for its own future. With one condition for all, each watch that ends would be searched among all of
them, and a watch whose client does not read would hold the lock that the others need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from app.codecs.protobuf.messages import enum_numbers, message_class
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.incoming.messages import Rejected
from app.transports.grpc.services import Service

HEALTH = "grpc.health.v1.Health"

_Reply = message_class("grpc.health.v1.HealthCheckResponse")
_STATUS = enum_numbers("grpc.health.v1.HealthCheckResponse.ServingStatus")
_UNKNOWN = _STATUS["SERVICE_UNKNOWN"]

#: Chosen: how often it is checked for watchers.
_PERIOD_S = 0.25


class GrpcHealth:
    """Answers health checks: every service is SERVING while `ready()` is true.

    A check and the beginning of a watch call `ready`; watchers are told of changes soon after. A service is known by
    its full name and, as in TensorFlow Serving, by the last part of it; '' means all services.
    """

    def __init__(self, services: Sequence[str], ready: Callable[[], bool]) -> None:
        self._services = frozenset(("", *services, *(name.rpartition(".")[2] for name in services)))
        self._ready = ready
        self._serving: bool | None = None
        self._watchers: set[asyncio.Future[None]] = set()

    def service(self, calls: GrpcCalls) -> Service:
        """The service of gRPC's health checks, which needs no credential."""
        return Service(
            calls, HEALTH, {"Check": self.check, "Watch": self.watch}, permissions={"Check": None, "Watch": None}
        )

    async def check(self, request: Any, _: GrpcCall) -> Any:
        self.refresh()
        status = self._status_of(request.service)
        if status == _UNKNOWN:
            raise Rejected(StatusCode.NOT_FOUND, "")
        return _Reply(status=status)

    async def watch(self, request: Any, _: GrpcCall) -> AsyncGenerator[Any, None]:
        self.refresh()
        told = None
        while True:
            status = self._status_of(request.service)
            if status != told:
                told = status
                yield _Reply(status=status)
            else:
                await self._change()

    def _status_of(self, service: str) -> int:
        if service not in self._services:
            return _UNKNOWN
        return _STATUS["SERVING" if self._serving else "NOT_SERVING"]

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
