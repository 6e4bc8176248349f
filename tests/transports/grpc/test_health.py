"""Watches of health do not stand in each other's way. What clients see of health: test_server.py."""

from __future__ import annotations

import asyncio

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.calls import GrpcCall
from app.transports.grpc.health import GrpcHealth

Request = message_class("grpc.health.v1.HealthCheckRequest")
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3  # of the service's definition


def test_a_client_that_does_not_read_keeps_no_other_from_hearing_of_a_change() -> None:
    async def main() -> None:
        ready = [True]
        health = GrpcHealth([], lambda: ready[0])
        silent, reading, of_none = (
            health.watch(Request(service=name), GrpcCall(0.0, 0.0)) for name in ("", "", "no.Service")
        )
        assert [(await anext(each)).status for each in (silent, reading, of_none)] == [
            SERVING,
            SERVING,
            SERVICE_UNKNOWN,
        ]
        changed, never = (asyncio.ensure_future(anext(each)) for each in (reading, of_none))
        await asyncio.sleep(0)
        ready[0] = False
        health.refresh()
        assert (await changed).status == NOT_SERVING

        never.cancel()
        await asyncio.wait([never])
        for each in (silent, reading, of_none):
            await each.aclose()
        assert not health._watchers

    asyncio.run(main())
