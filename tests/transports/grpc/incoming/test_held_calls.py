"""What calls hold while they wait: counted, and ended after a time; without a socket, on a clock that leaps."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from app.codecs.at_once import TakesLong
from app.codecs.protobuf.messages import message_class
from app.core.burst import Burst
from app.core.errors import DeadlineExceeded
from app.transports.grpc.application import MOST_LASTING, GrpcApplication
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.incoming.incoming_call import IncomingCall
from app.transports.grpc.services import Service
from app.transports.grpc.taskless import CallComputation
from app.transports.http2 import frames
from app.transports.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE
from app.transports.http2.hpack import Decoder, encode_fields
from app.transports.http2.limits import Http2Limits
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import until
from tests.transports.http2.leaping_loop import Client, Frame, played, until_s

SERVICE = "inference.GRPCInferenceService"
TASKLESS, HANDLED, STREAM = (f"/{SERVICE}/{name}" for name in ("ModelInfer", "ServerLive", "ModelStreamInfer"))
UNARY = [TASKLESS, HANDLED]
Response = message_class("inference.ModelStreamInferResponse")
MIB = 2**20


class TooLong:
    """Its messages take long to read, so its calls have tasks."""

    def begin(self, *_: Any) -> Any:
        raise TakesLong

    def form(self, _: bytes) -> None:
        return None

    def begin_coalesced(self, *_: Any) -> None:
        return None


async def answer(_: Any, __: GrpcCall) -> Any:
    return b"reply"


async def once(requests: AsyncIterator[Any], _: GrpcCall) -> AsyncIterator[Any]:
    async for _each in requests:
        yield Response()
        await asyncio.Event().wait()


def application(
    memory: ClientMemory, method: TooLong | None = None, reply: Any = answer
) -> Callable[[Callable[[], float]], GrpcApplication]:
    calls = GrpcCalls("test", lambda _: None, 30_000.0, memory=memory)
    answers: Any = {"ModelInfer": reply, "ServerLive": reply, "ModelStreamInfer": once}
    taskless: Any = {"ModelInfer": method or TooLong()}
    services = [Service(calls, SERVICE, answers, taskless=taskless)]
    return lambda clock: GrpcApplication(services, 64 * MIB, 2**14, Burst(), clock)


def head(number: int, path: str, *more: tuple[bytes, bytes]) -> bytes:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode())]
    block = encode_fields([*fields, (b"content-type", b"application/grpc"), *more])
    return frames.frame(HEADERS, END_HEADERS, number, block)


def message(size: int, flag: int = 0) -> bytes:
    """Of zeros, which are no protobuf: its call ends with INVALID_ARGUMENT, 3."""
    return bytes([flag]) + size.to_bytes(4, "big") + bytes(size)


def data(number: int, content: bytes, *, end: bool = False) -> bytes:
    return frames.frame(DATA, END_STREAM if end else 0, number, content)


def send_long(client: Client, number: int, content: bytes) -> None:
    for at in range(0, len(content), 2**14):
        client.send(data(number, content[at : at + 2**14]))


def lists(written: list[Frame]) -> list[tuple[int, dict[bytes, bytes]]]:
    """The field lists, and their streams."""
    return [(each.stream, dict(Decoder().decode(each.payload).fields)) for each in written if each.kind == HEADERS]


def statuses(written: list[Frame]) -> dict[int, int]:
    """By stream, of calls that have ended."""
    return {number: int(fields[b"grpc-status"]) for number, fields in lists(written) if b"grpc-status" in fields}


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# --- memory ---


@pytest.mark.parametrize("path", UNARY)
def test_a_message_that_is_whole_is_counted_until_its_request_ends(path: str) -> None:
    memory = ClientMemory(10 * MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        for number in range(1, 11, 2):
            client.send(head(number, path))
            send_long(client, number, message(3 * MIB))
        assert 6 * MIB <= memory.bodies <= 7.5 * MIB
        await turns()
        assert statuses(client.transport.frames()) == dict.fromkeys((5, 7, 9), 14)
        client.send(data(1, b"", end=True) + data(3, b"", end=True))
        await turns()
        assert statuses(client.transport.frames()) == {1: 3, 3: 3}
        assert memory.bodies == 0

    played(scenario, memory, application=application(memory))


@pytest.mark.parametrize("path", [*UNARY, STREAM])
@pytest.mark.parametrize("when", ["at once", "as it comes", "as it is whole"])
def test_who_is_refused_for_want_of_memory_is_told_when_to_come_back(path: str, when: str) -> None:
    """Whatever way the call takes, and however far it has come."""
    memory = ClientMemory(MIB)
    content, scarce = message(200_000), MIB - 150_000

    async def scenario(client: Client) -> None:
        client.greet()
        if when == "at once":
            memory.change_unread(scarce + 150_000)
        client.send(head(1, path))
        if when == "as it is whole":
            send_long(client, 1, content[:-100])
        await turns()
        if when != "at once":
            memory.change_unread(scarce)
        send_long(client, 1, content if when != "as it is whole" else content[-100:])
        client.send(data(1, message(200_000), end=True))
        await turns()
        last = [fields for _, fields in lists(client.transport.frames()) if b"grpc-status" in fields]
        assert [each[b"grpc-status"] for each in last] == [b"14"]
        assert int(last[0][b"grpc-retry-pushback-ms"]) > 0

    played(scenario, memory, application=application(memory))


def test_empty_messages_of_a_stream_that_takes_none_are_counted() -> None:
    memory = ClientMemory(MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, STREAM))
        await turns()
        for _ in range(15):
            client.send(data(1, message(0) * 3000))
        await turns()
        assert statuses(client.transport.frames()) == {1: 14}
        assert memory.bodies == 0

    played(scenario, memory, application=application(memory))


@pytest.mark.parametrize("flag", [0, 1], ids=["takes long", "compressed"])
def test_a_call_that_is_handed_over_while_there_is_no_memory_is_answered(flag: int) -> None:
    memory = ClientMemory(MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        assert memory.take_body(MIB // 2)
        memory.change_unread(MIB // 5)
        calls = range(1, 41, 2)
        for number in calls:
            client.send(head(number, TASKLESS, (b"grpc-encoding", b"gzip")))
            client.send(data(number, message(16_000, flag), end=True))
        await until(lambda: not client.protocol.connection.streams)
        await turns()
        ended = statuses(client.transport.frames())
        assert sorted(ended) == list(calls)
        assert set(ended.values()) == {3, 14}
        memory.change_unread(-(MIB // 5))
        memory.give_body(MIB // 2)

    played(scenario, memory, application=application(memory))
    assert memory.bodies + memory.unread == 0


@pytest.mark.parametrize("path", [*UNARY, STREAM])
def test_a_call_that_ends_in_the_middle_of_a_message_holds_nothing_of_it(path: str) -> None:
    """Its connection goes on."""
    memory = ClientMemory(10 * MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, path))
        send_long(client, 1, message(2 * MIB)[:MIB])
        await turns()
        assert memory.bodies >= MIB - 2**14
        client.send(frames.rst_stream(1, 8))
        await turns()
        assert memory.bodies == 0

    played(scenario, memory, application=application(memory))


# --- time ---


@pytest.mark.parametrize("path", UNARY)
@pytest.mark.parametrize("ends", ["answered", "answered later", "reset"])
def test_nothing_is_kept_of_a_call_that_ends_long_before_its_time_is_over(path: str, ends: str) -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        for number in range(1, 11, 2):
            client.send(head(number, path, (b"grpc-timeout", b"1H")))
            client.send(data(number, message(10), end=ends == "answered"))
            if ends != "answered":
                client.send(data(number, b"", end=True) if ends == "answered later" else frames.rst_stream(number, 8))
        await turns()
        assert not client.protocol.connection.streams
        client.asked.clear()
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, IncomingCall)]

    played(scenario, application=application(ClientMemory()))


@pytest.mark.parametrize("path", UNARY)
@pytest.mark.parametrize("content", [b"", message(10), message(10) + message(100)[:50]], ids=["no", "one", "more"])
def test_a_request_of_one_message_that_does_not_end_is_given_up(path: str, content: bytes) -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, path) + (data(1, content) if content else b""))
        client.send(head(3, STREAM))
        await until_s(59)
        assert client.transport.frames() == []
        await until_s(200)
        assert statuses(client.transport.frames()) == {1: 4}
        assert list(client.protocol.connection.streams) == [3]  # whose messages may come at any time

    played(scenario, application=application(ClientMemory()), slow_s=60.0)


@pytest.mark.parametrize("limit", [4 * MIB, 100 * MIB])
def test_short_replies_that_nobody_takes_end_where_memory_is_scarce(limit: int) -> None:
    memory = ClientMemory(limit)
    calls = range(1, 1201, 2)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)]))
        for part in (calls[:300], calls[300:]):  # a call that goes on takes more than its reply
            client.send(b"".join(head(number, HANDLED) + data(number, message(0), end=True) for number in part))
            await turns()
        assert memory.half_held == (limit == 4 * MIB)
        client.transport.frames()
        await until_s(130)
        client.send(frames.window_update(5, 1))
        await until_s(190)
        written = client.transport.frames()
        gone = [each.stream for each in written if each.kind == frames.RST_STREAM]
        assert gone == ([number for number in calls if number != 5] if limit == 4 * MIB else [])
        assert len(client.protocol.connection.streams) == len(calls) - len(gone)

    played(scenario, memory, application=application(memory), slow_s=60.0)
    assert memory.unread == 0


# --- errors ---


@pytest.mark.parametrize("path", [*UNARY, STREAM])
@pytest.mark.parametrize(("encoding", "status"), [(b"snappy", b"12"), (b"identity", b"13"), (b"gzip", b"3")])
@pytest.mark.parametrize("size", [10, 10_000])
def test_a_message_that_is_compressed_otherwise_than_we_read(
    path: str, encoding: bytes, status: bytes, size: int
) -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, path, (b"grpc-encoding", encoding)) + data(1, message(size, flag=1), end=True))
        await until(lambda: not client.protocol.connection.streams)
        await turns()
        ((_, fields),) = lists(client.transport.frames())
        assert fields[b"grpc-status"] == status
        assert fields[b"grpc-accept-encoding"] == b"identity, deflate, gzip"

    played(scenario, application=application(ClientMemory()))


def test_an_error_after_the_first_reply_is_told_without_a_second_head() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, STREAM) + data(1, message(0)))
        await turns()
        client.send(data(1, b"\2\0\0\0\0"))
        await turns()
        (_, first), (_, last) = lists(client.transport.frames())
        assert first[b":status"] == b"200"
        assert set(last) == {b"grpc-status", b"grpc-message"}

    played(scenario, application=application(ClientMemory()))


# --- deadlines ---


class _Batcher:
    """Has the requests that it was given; `answers`: fails them after their deadline, as soon as it can."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.cancelled = 0

    def submit(self, _: Any, reply: Any) -> _Batcher:
        if self.answers:
            error = DeadlineExceeded("told by the batcher")
            asyncio.get_running_loop().call_at(reply.deadline_s + 0.01, reply.set_exception, error)
        return self

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.mark.parametrize("later", [True, False], ids=["the request ends later", "the request ends"])
@pytest.mark.parametrize("answers", [True, False])
def test_who_has_the_request_tells_that_its_time_is_over_and_the_call_ends_if_nobody_does(
    answers: bool, later: bool
) -> None:
    """Else it depends on chance whether the request counts as expired."""
    batcher = _Batcher(answers=answers)

    class Computed(TooLong):
        def begin(self, *_: Any) -> Any:
            return CallComputation(cast(Any, batcher), cast(Any, None), lambda _: b"")

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, TASKLESS, (b"grpc-timeout", b"500m")))
        await until_s(0.1)
        client.send(data(1, message(0), end=not later))
        if later:
            client.send(data(1, b"", end=True))
        await until_s(0.499)
        assert not statuses(client.transport.frames())
        await until_s(0.7)
        ((_, fields),) = lists(client.transport.frames())
        assert fields[b"grpc-status"] == b"4"
        assert (fields[b"grpc-message"] == b"told by the batcher") is answers
        assert batcher.cancelled == 1

    played(scenario, application=application(ClientMemory(), Computed()))


@pytest.mark.parametrize("path", UNARY)
@pytest.mark.parametrize("flag", [0, 1], ids=["as it is", "compressed"])
@pytest.mark.parametrize("came_s", [0.0, 7.0])
def test_the_time_of_a_call_counts_from_its_head_whoever_answers_it(path: str, flag: int, came_s: float) -> None:
    """Also of one that came slowly, and got a task then."""
    left: list[float] = []

    async def hangs(_: Any, call: GrpcCall) -> Any:
        left.append(call.deadline_s - asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, path, (b"grpc-timeout", b"10S"), (b"grpc-encoding", b"gzip")))
        await until_s(came_s)
        content = gzip.compress(b"") if flag else b""
        client.send(data(1, bytes([flag]) + len(content).to_bytes(4, "big") + content, end=True))
        await until_s(9.9)
        assert not statuses(client.transport.frames())
        await until_s(10.2)
        assert statuses(client.transport.frames()) == {1: 4}
        assert left == [pytest.approx(10.0 - came_s, abs=0.5)]

    played(scenario, application=application(ClientMemory(), reply=hangs))


def test_a_stream_whose_messages_are_not_taken_holds_a_window_of_them_however_fast_they_come() -> None:
    """Its client sends whatever the server lets it: no more than the stream's window, and a message."""
    memory = ClientMemory(100 * MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head(1, STREAM))
        window = credit = Http2Limits().stream_window
        sent, piece = 0, message(10_000)
        for _ in range(4 * window // len(piece)):
            if credit < len(piece):
                break
            client.send(data(1, piece))
            credit, sent = credit - len(piece), sent + len(piece)
            await turns()
            for each in client.transport.frames():
                if each.kind == WINDOW_UPDATE and each.stream == 1:
                    credit += int.from_bytes(each.payload, "big")
        assert credit < len(piece), "it has to wait"
        assert sent <= 1.5 * window
        assert memory.bodies <= 1.5 * window

    played(scenario, memory, application=application(memory))


# --- calls that last ---


def test_a_connection_has_so_many_streaming_calls_open_and_is_told_so_of_one_more() -> None:
    """Other calls are answered beside them, and one that ends makes room."""

    async def scenario(client: Client) -> None:
        client.greet()
        numbers = range(1, 2 * MOST_LASTING, 2)
        for number in numbers:
            client.send(head(number, STREAM))
        assert client.protocol.lasting == MOST_LASTING
        client.send(head(2001, STREAM) + head(2003, HANDLED) + data(2003, message(0), end=True))
        await turns()
        written = client.transport.frames()
        assert statuses(written) == {2001: 8, 2003: 0}
        text = next(fields[b"grpc-message"] for number, fields in lists(written) if number == 2001)
        assert text.startswith(b"500 streaming calls are open on this connection")

        client.send(frames.rst_stream(1, 8) + head(2005, STREAM) + head(2007, STREAM))
        await turns()
        assert statuses(client.transport.frames()) == {2007: 8}

    played(scenario, application=application(ClientMemory()))


def test_calls_that_are_rejected_do_not_last() -> None:
    """However many come at once, each is told why."""
    memory = ClientMemory(MIB)

    async def scenario(client: Client) -> None:
        client.greet()
        memory.change_unread(MIB)
        numbers = range(1, 2 * MOST_LASTING + 21, 2)
        client.send(b"".join(head(number, HANDLED) for number in numbers))
        assert client.protocol.lasting == 0
        await until(lambda: not client.protocol.connection.streams)
        await turns()
        assert statuses(client.transport.frames()) == dict.fromkeys(numbers, 14)

    played(scenario, memory, application=application(memory))


@pytest.mark.parametrize("how", ["lost", "failed", "ended"])
def test_a_connection_with_many_streaming_calls_leaves_nothing_behind(how: str) -> None:
    memory = ClientMemory(100 * MIB)
    made: list[GrpcApplication] = []

    def make(clock: Callable[[], float]) -> GrpcApplication:
        made.append(application(memory)(clock))
        return made[0]

    async def scenario(client: Client) -> None:
        client.greet()
        for number in range(1, 400, 2):
            client.send(head(number, STREAM) + data(number, message(0)))
        assert len(made[0].tasks) == client.protocol.lasting == 200
        if how == "lost":
            client.protocol.connection_lost(None)
        elif how == "failed":
            client.send(frames.frame(DATA, 0, 0))
        else:
            client.protocol.end()
        assert client.protocol.lasting > 100, "they end in turns"
        await until(lambda: not made[0].tasks)
        assert client.protocol.lasting == memory.bodies == client.protocol._held == 0
        assert not client.protocol._ending
        assert not client.protocol.turns._queue

    played(scenario, memory, application=make)
    assert memory.bodies + memory.unread == 0
