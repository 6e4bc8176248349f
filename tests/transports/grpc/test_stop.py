"""The end of a gRPC server: calls under way are answered, and what comes then may be tried elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from tests.support.waiting import HANG_S, until

SERVICE = "inference.GRPCInferenceService"

#: More than the event loop takes between two looks.
CALLS = 200


@asynccontextmanager
async def serving(
    answering: asyncio.Event, unix_socket: str = ""
) -> AsyncIterator[tuple[GrpcServer, Callable[[], Any]]]:
    """A server whose calls are answered once the event is set, and what begins a call of a client with threads."""

    async def live(_: Any, __: Any) -> Any:
        await answering.wait()
        return message_class("inference.ServerLiveResponse")(live=True)

    service = Service(GrpcCalls("test", lambda _: None, 1e3 * HANG_S), SERVICE, {"ServerLive": live})
    server = GrpcServer(GrpcOptions("127.0.0.1", 0, unix_socket=unix_socket), [service], lambda: True)
    await server.start()
    address = f"unix:{unix_socket}" if unix_socket else f"127.0.0.1:{server.port}"
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(f"/{SERVICE}/ServerLive")
        yield server, lambda: method.future(b"", timeout=HANG_S)


@pytest.mark.parametrize("on", ["a port", "a Unix socket"])
def test_calls_that_come_while_it_stops_may_be_tried_again(tmp_path: Path, on: str) -> None:
    """UNAVAILABLE is what clients try again (gRPC's retry policies, service config); CANCELLED they never do."""

    async def main() -> set[grpc.StatusCode]:
        answering = asyncio.Event()
        answering.set()
        async with serving(answering, "" if on == "a port" else str(tmp_path / "s")) as (server, begin):
            first = begin()
            await until(first.done)
            calls = [begin() for _ in range(CALLS)]  # gRPC's threads take them; the event loop has no turn
            await server.stop(0)
            await asyncio.to_thread(lambda: [call.exception() for call in calls])
            return {call.code() for call in calls}

    assert asyncio.run(main()) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


def test_a_call_under_way_gets_its_time() -> None:
    async def main() -> None:
        answering = asyncio.Event()
        async with serving(answering) as (server, begin):
            call = begin()
            await until(lambda: server.calls_under_way() == 1)
            stopping = asyncio.create_task(server.stop(HANG_S))
            await asyncio.sleep(0)
            answering.set()
            await stopping
            assert await asyncio.to_thread(call.code) is grpc.StatusCode.OK

    asyncio.run(main())


def test_a_call_that_takes_longer_ends_with_the_server() -> None:
    async def main() -> None:
        async with serving(asyncio.Event()) as (server, begin):
            call = begin()
            await until(lambda: server.calls_under_way() == 1)
            await server.stop(0)
            assert await asyncio.to_thread(call.code) is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())
