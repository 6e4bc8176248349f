"""Random lives of calls: whatever a client does, each call ends once, and nothing of it is held afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.burst import Burst
from app.core.events import Event
from app.core.reply import Answer
from app.transports.grpc.application import GrpcApplication
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.services import Service
from app.transports.grpc.taskless import CallComputation
from app.transports.http2 import frames
from app.transports.http2.sending import DRAIN
from app.transports.memory.client_memory import ClientMemory
from tests.transports.grpc.incoming.test_held_calls import (
    HANDLED,
    MIB,
    SERVICE,
    STREAM,
    TASKLESS,
    Response,
    data,
    head,
    message,
    turns,
)
from tests.transports.http2.leaping_loop import Client, played

NONE = f"/{SERVICE}/Nothing"
REPLY = Response(error_message="x" * 3000)


class SlowModel:
    """Answers after a time, with a result or an error, unless it is cancelled."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def submit(self, _: Any, reply: Any) -> asyncio.TimerHandle:
        def tell() -> None:
            if self._fails:
                reply.set_exception(RuntimeError("a bug"))
            else:
                reply.set_result(Answer({}, None))  # type: ignore[arg-type] # nobody asks how long it took

        return asyncio.get_running_loop().call_later(0.002, tell)

    def response(self, *_: Any) -> Any:
        return None


class Method:
    """The calls whose messages have an odd length fail."""

    def begin(self, content: bytes, _: GrpcCall) -> CallComputation:
        request: Any = None
        return CallComputation(SlowModel(len(content) % 2 == 1), request, lambda _: REPLY.SerializeToString())

    def form(self, _: bytes) -> None:
        return None

    def begin_coalesced(self, *_: Any) -> None:
        return None


async def handled(_: Any, __: GrpcCall) -> Any:
    await asyncio.sleep(0.002)
    return REPLY


async def answered(requests: AsyncIterator[Any], _: GrpcCall) -> AsyncIterator[Any]:
    async for _each in requests:
        yield REPLY
        await asyncio.sleep(0.001)


class Life:
    """A client's steps, by name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._number = -1
        self.unary = 0  # calls

    def open(self, path: str, timeout: bytes) -> None:
        self._number += 2
        connection = self._client.protocol.connection
        takes = not connection.failure and not connection.drained
        self._client.send(head(self._number, path, *([(b"grpc-timeout", timeout)] if timeout else [])))
        self.unary += takes and path in {TASKLESS, HANDLED}

    def message(self, number: int, content: bytes, end: bool) -> None:
        self._client.send(data(number, content, end=end))

    def reset(self, number: int) -> None:
        self._client.send(frames.rst_stream(number, 8))

    def window(self, number: int, size: int) -> None:
        self._client.send(frames.window_update(number, size))

    def first_window(self, size: int) -> None:
        self._client.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, size)]))

    def blocked(self, yes: bool) -> None:
        protocol = self._client.protocol
        (protocol.pause_writing if yes else protocol.resume_writing)()

    def drain(self) -> None:
        self._client.protocol.drain()
        self._client.send(frames.frame(frames.PING, frames.ACK, 0, DRAIN))


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


COMPRESSED = message(1, flag=1)
numbers = st.sampled_from(range(1, 12, 2))
contents = st.sampled_from(
    [message(0), message(0), message(1), message(3000), b"", b"\0", COMPRESSED, b"\2", message(9)[:7]]
)
lives = st.lists(
    st.one_of(
        step("open", st.sampled_from([TASKLESS, TASKLESS, HANDLED, STREAM, NONE]), st.sampled_from([b"", b"3m"])),
        step("message", numbers, contents, st.booleans()),
        step("reset", numbers),
        step("window", st.sampled_from([0, *range(1, 12, 2)]), st.sampled_from([1, 4000])),
        step("first_window", st.sampled_from([0, 10, 65_535])),
        step("blocked", st.booleans()),
        step("sleep", st.sampled_from([0.0, 0.0015, 0.01])),
        step("drain"),
    ),
    max_size=30,
)


@given(lives)
def test_each_call_ends_once_and_nothing_is_held(steps: list[Any]) -> None:
    memory = ClientMemory(64 * MIB)
    ended: list[Event] = []
    faults: list[Any] = []
    lives: list[Life] = []
    applications: list[GrpcApplication] = []

    def application(clock: Any) -> GrpcApplication:
        services = [
            Service(
                GrpcCalls("test", ended.append, 30_000.0, memory=memory),
                SERVICE,
                {"ModelInfer": handled, "ServerLive": handled, "ModelStreamInfer": answered},
                taskless={"ModelInfer": Method()},
            ),
        ]
        applications.append(GrpcApplication(services, MIB, 2**14, Burst(), clock))
        return applications[0]

    async def scenario(client: Client) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        lives.append(Life(client))
        client.greet()
        for name, *arguments in steps:
            if name == "sleep":
                await asyncio.sleep(*arguments)
            else:
                getattr(lives[0], name)(*arguments)
        for number in list(client.protocol.connection.streams):
            lives[0].reset(number)
        await turns()
        assert client.protocol._held == 0
        client.protocol.connection_lost(None)
        await asyncio.sleep(0.1)
        await turns()

    played(scenario, memory, application=application)
    assert faults == []
    assert applications[0].tasks == set()
    assert memory.bodies == memory.unread == 0
    assert len(ended) == lives[0].unary
