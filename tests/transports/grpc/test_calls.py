"""Streams of calls, and whose deadline counts."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from math import inf
from typing import Any

import grpc
import pytest

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest, Overloaded
from app.core.events import Event
from app.core.interfaces import answer_of
from app.core.reply import COMPLETED, Reply
from app.protocols.open_inference.ordered_stream import answer_in_order
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.grpc.taskless import messages_of
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule

SERVICE = "inference.GRPCInferenceService"
Request = message_class("inference.ModelInferRequest")
Response = message_class("inference.ModelStreamInferResponse")
Live = message_class("inference.ServerLiveResponse")

events: list[Event] = []
deadlines: list[float] = []
priorities: list[int] = []
callers: list[str] = []


async def echo(requests: AsyncIterator[Any], call: GrpcCall) -> AsyncGenerator[Any, None]:
    priorities.append(call.priority)
    callers.append(call.caller)
    async for request in requests:
        if request.id == "bad":
            raise InvalidRequest("bad")
        if request.id == "bug":
            raise KeyError("bug")
        yield Response(error_message=request.id)


async def alive(request: Any, call: GrpcCall) -> Any:
    deadlines.append(call.deadline_s - time.monotonic())
    priorities.append(call.priority)
    callers.append(call.caller)
    return Live(live=True)


def with_echo(scenario: Callable[[grpc.aio.Channel], Awaitable[None]], fair_callers: str = "") -> None:
    async def main() -> None:
        calls = GrpcCalls("test", events.append, 6_000_000, CallerRule.of(fair_callers))
        service = Service(calls, SERVICE, {"ModelStreamInfer": echo, "ServerLive": alive})
        server = GrpcServer(GrpcOptions("127.0.0.1", 0), [service], lambda: True)
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            await scenario(channel)
        await server.stop(0)

    events.clear()
    deadlines.clear()
    priorities.clear()
    callers.clear()
    asyncio.run(main())


def stream(channel: grpc.aio.Channel, *contents: bytes, **more: Any) -> Any:
    async def requests() -> AsyncIterator[bytes]:
        for content in contents:
            yield content

    call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", response_deserializer=Response.FromString)
    return call(requests(), **more)


def test_a_stream_is_answered_one_by_one_and_tells_of_itself() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = stream(channel, *[Request(id=name).SerializeToString() for name in "abc"])
        assert [reply.error_message async for reply in call] == ["a", "b", "c"]
        assert await call.code() is grpc.StatusCode.OK

    with_echo(scenario)
    assert events == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (Request(id="bad").SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (Request(id="bug").SerializeToString(), grpc.StatusCode.INTERNAL),
    ],
)
def test_an_error_ends_a_stream(content: bytes, code: grpc.StatusCode) -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = stream(channel, Request(id="a").SerializeToString(), content)
        assert (await call.read()).error_message == "a"
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        assert await call.code() is code

    with_echo(scenario)


def test_a_stream_whose_caller_leaves_while_its_requests_are_read_is_no_bug() -> None:
    async def in_order(requests: AsyncIterator[Any], call: GrpcCall) -> AsyncGenerator[Any, None]:
        async def answer(request: Any) -> Any:
            return Response(error_message=request.id)

        async with aclosing(answer_in_order(requests, answer)) as replies:
            async for reply in replies:
                yield reply

    async def main() -> None:
        waiting = asyncio.Event()

        async def contents() -> AsyncIterator[bytes]:
            yield Request(id="a").SerializeToString()
            waiting.set()
            await asyncio.Event().wait()

        service = Service(GrpcCalls("test", events.append, 6_000_000), SERVICE, {"ModelStreamInfer": in_order})
        replies = service.methods[f"/{SERVICE}/ModelStreamInfer"].answer(contents(), GrpcCall(0.0, inf))
        assert (await anext(replies)).error_message == "a"
        await waiting.wait()
        await replies.aclose()  # the call's way to say that the caller left; an error here would be a bug's

    asyncio.run(main())


def test_the_sooner_deadline_counts() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(f"/{SERVICE}/ServerLive")
        for timeout in (None, 100_000, 2_000):
            await call(b"", timeout=timeout)

    with_echo(scenario)
    assert len(events) == 3
    servers_own, servers_sooner, callers = deadlines
    assert 5_000 < servers_own <= 6_000
    assert 5_000 < servers_sooner <= 6_000
    assert 1_000 < callers < 3_000


def metadata(priority: str) -> tuple[tuple[str, str], ...]:
    return ("other", "1"), ("x-request-priority", priority)


def test_the_priority_is_in_the_metadata() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(f"/{SERVICE}/ServerLive")
        await call(b"")
        await call(b"", metadata=metadata("1"))
        assert [reply async for reply in stream(channel, metadata=metadata("2"))] == []
        await call(b"", metadata=(("other", "1"),))

    with_echo(scenario)
    assert priorities == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("fair_callers", "told"),
    [
        ("", ["", "", ""]),
        ("address", ["ipv4:127.0.0.1"] * 3),
        ("header:X-Api-Key", ["ipv4:127.0.0.1", "x-api-key: blue", "x-api-key: red"]),
    ],
)
def test_the_caller_is_an_address_or_in_the_metadata(fair_callers: str, told: list[str]) -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(f"/{SERVICE}/ServerLive")
        await call(b"")
        await call(b"", metadata=(("x-api-key", "blue"), ("x-api-key", "second")))
        assert [reply async for reply in stream(channel, metadata=(("x-api-key", "red"),))] == []

    with_echo(scenario, fair_callers)
    assert callers == told


@pytest.mark.parametrize("priority", ["", "high", "-1"])
def test_a_priority_that_is_none_is_rejected(priority: str) -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        for call in (
            channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", metadata=metadata(priority)),
            stream(channel, metadata=metadata(priority)),
        ):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert await call.details() == (
                f"X-Request-Priority must be a whole number from 0, 1 being the highest, not {priority!r}"
            )

    with_echo(scenario)
    assert priorities == []
    assert [getattr(event, "code", "") for event in events] == ["INVALID_ARGUMENT"]


MIB = 1024 * 1024


async def rejected(request: Any, call: GrpcCall) -> Any:
    raise InvalidRequest("rejected")


async def rejected_later(request: Any, call: GrpcCall) -> Any:
    def submit(reply: Reply) -> Any:
        asyncio.get_running_loop().call_soon(reply.set_exception, Overloaded("full"))
        return COMPLETED

    await answer_of(submit)


async def rejected_stream(requests: AsyncIterator[Any], call: GrpcCall) -> AsyncIterator[Any]:
    async for request in requests:
        await rejected_later(request, call)
        yield request


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", "ModelStreamInfer"])
def test_a_rejected_call_leaves_no_message_in_memory(method: str) -> None:
    """Its message is freed with it: the collector, which comes seldom, is not waited for."""

    async def main() -> int:
        answers = {"ServerLive": rejected, "ServerReady": rejected_later, "ModelStreamInfer": rejected_stream}
        calls = GrpcCalls("test", events.append, 6_000_000)
        server = GrpcServer(GrpcOptions("127.0.0.1", 0), [Service(calls, SERVICE, answers)], lambda: True)
        await server.start()
        content = Request(id="x" * MIB).SerializeToString()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:

            async def call() -> None:
                path = f"/{SERVICE}/{method}"
                one = stream(channel, content) if method == "ModelStreamInfer" else channel.unary_unary(path)(content)
                assert await one.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE}

            await call()
            gc.collect()
            gc.disable()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(8):
                await call()
            kept = tracemalloc.get_traced_memory()[0] - before
        await server.stop(0)
        return kept

    tracemalloc.start()
    try:
        assert asyncio.run(main()) < 4 * MIB
    finally:
        gc.enable()
        tracemalloc.stop()


def test_long_messages_of_calls_that_are_not_answered_have_a_budget() -> None:
    memory, begun, go_on = ClientMemory(MIB), asyncio.Event(), asyncio.Event()

    async def slow(request: Any, call: GrpcCall) -> Any:
        begun.set()
        await go_on.wait()
        return Live(live=True)

    async def main() -> None:
        service = Service(GrpcCalls("test", events.append, 6_000_000, memory=memory), SERVICE, {"ServerLive": slow})
        server = GrpcServer(GrpcOptions("127.0.0.1", 0), [service], lambda: True)
        await server.start()
        content = Request(id="x" * (MIB // 2)).SerializeToString()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/ServerLive")
            first = call(content)
            await begun.wait()
            assert 0 <= memory.bodies - len(content) < 10_000  # the call is counted, too
            second = call(content)
            assert await second.code() is grpc.StatusCode.UNAVAILABLE
            assert "so no more is read" in await second.details()
            short = call(b"")
            go_on.set()
            assert [await each.code() for each in (first, short)] == [grpc.StatusCode.OK] * 2
            assert memory.bodies == 0
        await server.stop(0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("outputs", "replies"),
    [
        ([b"abcd"], [b"1ab", b"1cd"]),
        ([b"abcd", b"ef"], [b"1ab2e", b"1cd2f"]),
        ([b""], [b"1", b"1"]),  # rows without numbers are rows
        ([b"abcd", b""], [b"1ab2", b"1cd2"]),
    ],
)
def test_each_of_joined_calls_gets_its_part_of_each_output(outputs: list[bytes], replies: list[bytes]) -> None:
    starts = [b"1", b"2"][: len(outputs)]
    assert messages_of(2, starts, [memoryview(each) for each in outputs]) == replies
