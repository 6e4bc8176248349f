"""GOAWAY before the end, and of old connections: calls go on elsewhere, and none is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import grpc
import pytest

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.arguments import times_of
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.frames import GOAWAY, PREFACE, settings
from tests.support.waiting import HANG_S, until

SERVICE = "inference.GRPCInferenceService"
CALLS = 200


@asynccontextmanager
async def serving(answering: asyncio.Event | None = None, **options: Any) -> AsyncIterator[tuple[GrpcServer, int]]:
    """A server, and its port; calls are answered once the event is set."""

    async def live(_: Any, __: Any) -> Any:
        if answering is not None:
            await answering.wait()
        return message_class("inference.ServerLiveResponse")(live=True)

    service = Service(GrpcCalls("test", lambda _: None, 1e3 * HANG_S), SERVICE, {"ServerLive": live})
    server = GrpcServer(GrpcOptions("127.0.0.1", 0, **options), [service], lambda: True)
    await server.start()
    yield server, server.port
    await server.stop(0)


def opened(port: int) -> grpc.aio.Channel:
    """A channel with a connection of its own. It sends a call anew that never left (gRFC A6, transparent retries)."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


async def next_of_kind(reader: asyncio.StreamReader, kind: int) -> bytes:
    """The payload of the next such frame (RFC 9113, section 4.1)."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3]))
        if head[3] == kind:
            return payload


def call(channel: grpc.aio.Channel) -> Any:
    return channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=HANG_S)


def test_an_old_connection_gets_goaway_and_no_call_is_lost() -> None:
    async def main() -> None:
        async with serving(max_age_s=0.02) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(PREFACE + settings([]))
            assert await next_of_kind(reader, GOAWAY)
            writer.close()
            async with opened(port) as channel:
                for _ in range(CALLS):
                    assert await call(channel).code() is grpc.StatusCode.OK

    asyncio.run(main())


def test_connections_end_by_their_age() -> None:
    mine = GrpcOptions(max_age_s=300, arguments=[("grpc.max_connection_age_ms", 5)])
    assert times_of(mine).age_s == 0.005
    assert times_of(GrpcOptions(max_age_s=300)).age_s == 300
    assert times_of(GrpcOptions()).age_s == inf


def test_clients_are_told_first_and_served_until_they_know() -> None:
    async def main() -> None:
        answering = asyncio.Event()
        made = serving(answering, max_age_s=0.2)
        async with made as (server, port), opened(port) as old, opened(port) as new:
            under_way = call(old)
            await until(lambda: server.calls_under_way() == 1)

            # 1. Within the grace calls are answered, on connections of before and new ones.
            server.begin_grace()
            others = [call(old) for _ in range(CALLS)]
            last = call(new)
            await until(lambda: server.calls_under_way() == CALLS + 2)

            # 2. At its end each client knows, and nobody connects; what is under way is answered.
            ending = asyncio.create_task(server.end_grace())
            more = [call(new) for _ in range(CALLS)]  # begun before the client hears of it, or never
            await ending
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            answering.set()
            ended = [(await each.code(), await each.details()) for each in (under_way, last, *others)]
            assert {code for code, _ in ended} == {grpc.StatusCode.OK}, ended
            assert {await each.code() for each in more} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
            await until(lambda: server.calls_under_way() == 0)

    asyncio.run(main())


def test_who_has_just_connected_is_told_and_who_does_not_hear_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel has made the connection, and the server has not accepted it: it must not be reset."""
    monkeypatch.setattr("app.transports.grpc.server._LAST_CALL_S", 0.01)

    async def main() -> None:
        async with serving() as (server, port):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(PREFACE + settings([]))
            await server.end_grace()
            reader, writer = await asyncio.open_connection(sock=client)
            assert await next_of_kind(reader, GOAWAY)
            writer.close()

    asyncio.run(main())
