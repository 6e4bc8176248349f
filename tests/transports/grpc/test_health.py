"""Watches of health do not stand in each other's way. What clients see of health: test_server.py."""

from __future__ import annotations

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2

from app.transports.grpc.health import GrpcHealthService

Status = health_pb2.HealthCheckResponse


class Caller:
    """What a watch writes to; `reads`: else it waits for ever."""

    def __init__(self, *, reads: bool) -> None:
        self.told: list[int] = []
        self._reads = reads

    async def write(self, reply: Any) -> None:
        self.told.append(reply.status)
        if not self._reads:
            await asyncio.Event().wait()


def test_a_client_that_does_not_read_keeps_no_other_from_hearing_of_a_change() -> None:
    async def main() -> None:
        ready = [True]
        health = GrpcHealthService([], lambda: ready[0])
        silent, reading, of_none = callers = [Caller(reads=False), Caller(reads=True), Caller(reads=True)]
        asked = [health_pb2.HealthCheckRequest(service=name) for name in ("", "", "no.Service")]
        watches = [health.Watch(request, caller) for request, caller in zip(asked, callers, strict=True)]
        tasks = [asyncio.create_task(each) for each in watches]
        await asyncio.sleep(0)
        ready[0] = False
        health.refresh()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert silent.told == [Status.SERVING]
        assert reading.told == [Status.SERVING, Status.NOT_SERVING]
        assert of_none.told == [Status.SERVICE_UNKNOWN]

        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
        assert not health._watchers

    asyncio.run(main())
