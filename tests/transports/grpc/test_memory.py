"""Replies that clients do not read, played with raw frames: a real client always reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import grpc

from app.codecs.protobuf.messages import message_class
from app.core.events import Event, RequestFinished
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.hpack import Decoder
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import until
from tests.transports.grpc.http2_frames import HEADERS, Http2Client, grpc_call

SERVICE = "inference.GRPCInferenceService"
UNARY, STREAM = f"/{SERVICE}/ServerLive", f"/{SERVICE}/ModelStreamInfer"
Request = message_class("inference.ModelInferRequest")
Response = message_class("inference.ModelStreamInferResponse")

SIZE = 2**20

#: Of each reply whose client lets no more than the first 64 KiB come.
HELD = SIZE - 2**16

#: And of each call beside its reply, at most.
CALL = 10_000


async def large(request: Any, call: GrpcCall) -> Any:
    return b"x" * SIZE


async def large_ones(requests: AsyncIterator[Any], call: GrpcCall) -> AsyncIterator[Any]:
    async for _ in requests:
        yield Response(error_message="x" * SIZE)


class Served:
    """A server whose replies are of `SIZE` bytes, with room for three of them."""

    def __init__(self, slow_s: float = 60.0) -> None:
        self.limit = 2 * HELD + SIZE + 3 * CALL
        self.memory = ClientMemory(self.limit)
        self.events: list[Event] = []
        self.clients: list[Http2Client] = []
        calls = GrpcCalls("test", self.events.append, 6e6, memory=self.memory)
        service = Service(calls, SERVICE, {"ServerLive": large, "ModelStreamInfer": large_ones})
        options = GrpcOptions("127.0.0.1", 0, slow_s=slow_s, min_bytes_per_s=1.0)
        self.server = GrpcServer(options, [service], lambda: True)

    async def ask(self, path: str) -> Http2Client:
        """A new client that asks and lets the server send no more than the first 64 KiB of the reply."""
        client = await asyncio.to_thread(Http2Client, self.server.port)
        client.send(grpc_call(1, path, b""))
        self.clients.append(client)
        return client

    async def call(self) -> grpc.StatusCode:
        """What a real client gets."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}") as channel:
            return await channel.unary_unary(UNARY)(b"").code()


def served(scenario: Callable[[Served], Awaitable[None]], slow_s: float = 60.0) -> None:
    async def main() -> None:
        world = Served(slow_s)
        await world.server.start()
        with ExitStack() as stack:
            stack.callback(lambda: [each.socket.close() for each in world.clients])
            await scenario(world)
        await world.server.stop(0)

    asyncio.run(main())


def test_replies_that_nobody_reads_have_a_budget_until_their_clients_leave() -> None:
    async def scenario(world: Served) -> None:
        for number in range(1, 4):
            await world.ask(UNARY)
            await until(lambda expected=number * HELD: expected <= world.memory.unread < expected + 3 * CALL)
        assert not world.memory.has_room(SIZE)
        assert await world.call() is grpc.StatusCode.UNAVAILABLE
        assert [each.code for each in world.events if isinstance(each, RequestFinished)] == ["OK"] * 3 + ["UNAVAILABLE"]
        for each in world.clients:
            each.socket.close()
        await until(lambda: world.memory.unread == 0)
        assert await world.call() is grpc.StatusCode.OK
        await until(lambda: world.memory.unread == 0)

    served(scenario)


def test_a_reply_without_room_is_not_sent() -> None:
    async def scenario(world: Served) -> None:
        world.memory.change_unread(world.limit - SIZE // 2)
        assert await world.call() is grpc.StatusCode.UNAVAILABLE
        assert world.memory.unread == world.limit - SIZE // 2

    served(scenario)


def test_a_check_of_health_is_answered_while_memory_is_full() -> None:
    async def scenario(world: Served) -> None:
        world.memory.change_unread(world.limit)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{world.server.port}") as channel:
            assert await channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"

    served(scenario)


def test_a_message_is_not_read_while_memory_is_full() -> None:
    """The call ends although its message never comes."""

    async def scenario(world: Served) -> None:
        world.memory.change_unread(world.limit)
        client = await asyncio.to_thread(Http2Client, world.server.port)
        world.clients.append(client)
        client.send(grpc_call(1, UNARY, b"").partition(b"\0\0\5\0\1")[0])  # without its frame of data
        end = await asyncio.to_thread(client.wait_for, lambda got: got.kind == HEADERS)
        assert (b"grpc-status", b"14") in Decoder().decode(end.payload).fields  # UNAVAILABLE

    served(scenario)


def test_a_stream_holds_the_reply_that_it_sends() -> None:
    async def scenario(world: Served) -> None:
        client = await world.ask(STREAM)
        await until(lambda: HELD <= world.memory.unread < HELD + CALL)
        client.socket.close()
        await until(lambda: world.memory.unread == 0)

    served(scenario)


def test_who_reads_nothing_is_cut_once_half_of_the_memory_is_held() -> None:
    async def scenario(world: Served) -> None:
        await world.ask(UNARY)
        await world.ask(UNARY)
        await until(lambda: len(world.events) == 2)
        await until(lambda: not world.memory.half_held)
        assert await world.call() is grpc.StatusCode.OK

    served(scenario, slow_s=0.05)
