"""Strangers at the port, played with raw frames: what they hold is bounded, and others are served."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.hpack import Decoder
from app.transports.memory.body_room import BodyRoom
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import until
from tests.transports.grpc.http2_floods import FLOODS, PATH, pieces
from tests.transports.grpc.http2_frames import (
    DATA,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    SETTINGS,
    Frame,
    Http2Client,
    frame,
    grpc_call,
)

SERVICE = "inference.GRPCInferenceService"
MIB = 2**20
REPLY = b"x" * 1000


async def answer(_: Any, __: GrpcCall) -> Any:
    return REPLY


class World:
    def __init__(self, limit: int, time_s: float) -> None:
        self.memory = ClientMemory(limit)
        calls = GrpcCalls("test", lambda _: None, 6e6, memory=self.memory)
        options = GrpcOptions("127.0.0.1", 0, slow_s=time_s, min_bytes_per_s=1000.0)
        self.server = GrpcServer(options, [Service(calls, SERVICE, {"ServerLive": answer})], lambda: True)
        self.clients: list[Http2Client] = []

    async def client(self) -> Http2Client:
        made = await asyncio.to_thread(Http2Client, self.server.port)
        self.clients.append(made)
        return made

    async def honest(self) -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}") as channel:
            return await channel.unary_unary(PATH)(b"").code()


def played(scenario: Callable[[World], Awaitable[None]], limit: int = MIB, time_s: float = 600.0) -> None:
    async def main() -> None:
        world = World(limit, time_s)
        await world.server.start()
        try:
            with ExitStack() as stack:
                stack.callback(lambda: [each.socket.close() for each in world.clients])
                await scenario(world)
        finally:
            await world.server.stop(0)

    asyncio.run(main())


def unfinished(stream: int, size: int) -> bytes:
    """A call whose message says that it is of 1 MiB, and `size` bytes of it."""
    head, _, _ = grpc_call(stream, PATH, b"").partition(frame(DATA, 1, stream, bytes(5)))
    content = struct.pack("!BI", 0, MIB) + bytes(size)
    parts = [content[at : at + 2**14] for at in range(0, len(content), 2**14)]
    return head + b"".join(frame(DATA, 0, stream, part) for part in parts)


# --- floods ---

#: During a flood.
HONEST_CALLS = 20


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_ended_while_others_are_served(flood: str) -> None:
    """By what its frames cost, so before it has sent all; what others notice meanwhile, `bench.floods` measures."""
    parts = list(pieces(flood))

    async def scenario(world: World) -> None:
        attacker = await world.client()

        def attack() -> Frame:
            with suppress(ConnectionError):
                for each in parts:
                    attacker.send(each)
            return attacker.wait_for(lambda got: got.kind == GOAWAY)

        async with grpc.aio.insecure_channel(f"127.0.0.1:{world.server.port}") as channel:
            call = channel.unary_unary(PATH)
            await call(b"")
            attacking = asyncio.create_task(asyncio.to_thread(attack))
            for _ in range(HONEST_CALLS):
                await call(b"")
            with suppress(ConnectionError):  # the rest of its flood made the kernel drop what it did not read
                assert (await attacking).payload[4:8] == bytes(3) + bytes([ENHANCE_YOUR_CALM])
        await until(lambda: world.server.calls_under_way() == 0)
        assert len(world.clients) == 1

    played(scenario)


# --- memory ---


def test_messages_that_never_end_have_a_budget() -> None:
    async def scenario(world: World) -> None:
        for _ in range(8):
            client = await world.client()
            client.send(unfinished(1, 200_000))
        await until(lambda: world.memory.bodies >= MIB // 2)
        got = [asyncio.to_thread(each.wait_for, lambda one: one.kind == HEADERS) for each in world.clients[-2:]]
        for end in await asyncio.gather(*got):
            assert (b"grpc-status", b"14") in Decoder().decode(end.payload).fields
        assert world.memory.bodies <= MIB
        assert await world.honest() is grpc.StatusCode.OK
        for each in world.clients:
            each.socket.close()
        await until(lambda: world.memory.bodies == 0)

    played(scenario)


def test_in_a_container_what_a_message_may_become_is_reserved_by_its_prefix() -> None:
    """1 MiB may become 8 MiB: once in 12 MiB, never in 6."""

    async def scenario(world: World) -> None:
        for left, codes in ((56, (b"14",)), (48, (b"8",))):
            world.memory.room = BodyRoom(lambda left=left: left * 2.0**20)  # type: ignore[misc]  # bound now
            first, second = await world.client(), await world.client()
            first.send(unfinished(1, 100))
            if codes == (b"14",):
                await until(lambda: world.memory.room.reserved == 8 * MIB)
            second.send(unfinished(1, 100))
            end = await asyncio.to_thread(second.wait_for, lambda one: one.kind == HEADERS)
            assert (b"grpc-status", *codes) in Decoder().decode(end.payload).fields
            assert await world.honest() is grpc.StatusCode.OK
            for each in (first, second):
                each.socket.close()
            await until(lambda: world.memory.room.reserved == 0)

    played(scenario, 100 * MIB)


@pytest.mark.parametrize("headers", [[], [("x", "a" * 120)] * 80], ids=["short", "long"])
def test_heads_of_calls_that_send_no_message_have_a_budget(headers: list[tuple[str, str]]) -> None:
    async def scenario(world: World) -> None:
        memory = world.memory
        for _ in range(4):
            client = await world.client()
            heads = [
                grpc_call(number, PATH, b"", headers)[: -len(frame(DATA, 1, 1, bytes(5)))]
                for number in range(1, 601, 2)
            ]
            await asyncio.to_thread(client.send, b"".join(heads))
        await until(lambda: memory.full or memory.bodies > MIB // 2)
        await until(lambda: memory.bodies + memory.unread < 1.5 * MIB)  # the rest of those of a turn is rejected
        for each in world.clients:
            each.socket.close()
        await until(lambda: memory.bodies + memory.unread == 0)
        assert await world.honest() is grpc.StatusCode.OK

    played(scenario)


def test_a_message_that_comes_too_slowly_is_given_up() -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        client.send(unfinished(1, 100_000))
        end = await asyncio.to_thread(client.wait_for, lambda one: one.kind == HEADERS)
        assert (b"grpc-status", b"4") in Decoder().decode(end.payload).fields
        assert world.memory.bodies == 0

    played(scenario, time_s=0.2)


def test_short_replies_that_nobody_lets_come_have_the_same_budget() -> None:
    """A client that opens no window, and asks again and again: once memory is full, it gets errors."""
    count = 4000

    async def scenario(world: World) -> None:
        client = await world.client()
        client.send(frame(SETTINGS, payload=struct.pack("!HI", 4, 0)))

        def ask() -> list[Frame]:
            for first in range(1, 2 * count, 400):
                client.send(b"".join(grpc_call(number, PATH, b"") for number in range(first, first + 400, 2)))
            return [client.wait_for(lambda got: got.kind == HEADERS) for _ in range(count)]

        ended = [each for each in await asyncio.to_thread(ask) if each.flags & END_STREAM]
        assert (b"grpc-status", b"14") in Decoder().decode(ended[0].payload).fields
        assert 0 < world.memory.unread < 1.2 * MIB
        client.socket.close()
        await until(lambda: world.memory.unread == 0)
        assert await world.honest() is grpc.StatusCode.OK

    played(scenario)


def test_who_sends_no_http2_is_sent_away() -> None:
    async def scenario(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        content = await reader.read()
        assert content[content.rindex(b"expected") :] == b"expected the preface of HTTP/2"
        assert frame(GOAWAY)[3:4] in content
        writer.close()

    played(scenario)


def test_a_client_that_is_silent_does_not_keep_the_server_from_ending() -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        client.send(
            grpc_call(1, f"/{SERVICE}/Nothing", message_class("inference.ServerLiveRequest")().SerializeToString())
        )
        await asyncio.to_thread(client.wait_for, lambda one: one.kind == HEADERS)

    played(scenario)
