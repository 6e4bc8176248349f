"""Honest clients: compression, answers of a turn, ages, uvloop, load."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import uvloop

from app.codecs.protobuf.messages import message_class
from app.core.errors import Overloaded
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.incoming.replies import percent_encoded
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.frames import PREFACE
from tests.support.grpc_live import Live, live, outputs_of, predict_request, rows
from tests.support.waiting import HANG_S, until
from tests.transports.grpc.http2_frames import SETTINGS, frame, grpc_call

SERVICE = "inference.GRPCInferenceService"
MIB = 2**20
Response = message_class("inference.ModelStreamInferResponse")


async def echo(requests: AsyncIterator[Any], _: GrpcCall) -> AsyncIterator[Any]:
    async for request in requests:
        yield Response(error_message=request.id)


async def rejected(_: Any, __: GrpcCall) -> Any:
    raise Overloaded("voll, 100 % – später")


def with_server(
    scenario: Callable[[grpc.aio.Channel], Awaitable[None]], *arguments: tuple[str, int], **channel: Any
) -> None:
    async def main() -> None:
        calls = GrpcCalls("test", lambda _: None, 1e3 * HANG_S)
        service = Service(calls, SERVICE, {"ModelStreamInfer": echo, "ServerReady": rejected})
        options = GrpcOptions("127.0.0.1", 0, arguments=arguments)
        server = GrpcServer(options, [service], lambda: True)
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", **channel) as opened:
            await scenario(opened)
        await server.stop(0)

    uvloop.run(main())


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("size", [10, 100_000])
def test_compressed_messages_are_read(compression: grpc.Compression, size: int) -> None:
    request = message_class("inference.ModelInferRequest")(id="x" * size).SerializeToString()

    async def scenario(channel: grpc.aio.Channel) -> None:
        async def requests() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield request

        call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", response_deserializer=Response.FromString)
        assert [len(each.error_message) async for each in call(requests(), compression=compression)] == [size] * 3

    with_server(scenario, options=[("grpc.max_receive_message_length", -1)])


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
def test_a_predict_is_answered_on_uvloop(compression: grpc.Compression) -> None:
    async def main() -> None:
        async with live(options=GrpcOptions("127.0.0.1", 0)) as running:
            request = predict_request({"x": rows(*range(1, 7))})
            reply = await running.call("Predict", request, compression=compression)
            assert outputs_of(reply)["y"].tolist() == [[2 * n, 2 * n] for n in range(1, 7)]
            await running.call("Predict", request, timeout=HANG_S)

    uvloop.run(main())


def test_calls_of_a_turn_have_their_own_answers_and_errors() -> None:
    """Also where one of them is invalid, names another model, or has a form of its own."""

    async def one(running: Live, number: int) -> Any:
        if number % 10 == 3:
            return (await running.failure("Predict", predict_request({"z": rows(1)})))[0]
        if number % 10 == 4:
            return (await running.failure("Predict", b"\xff"))[0]
        reply = await running.call("Predict", predict_request({"x": rows(*[number] * (1 + number % 3))}))
        return outputs_of(reply)["y"].tolist()

    async def main() -> None:
        async with live(options=GrpcOptions("127.0.0.1", 0)) as running:
            for _ in range(5):
                answers = await asyncio.gather(*[one(running, number) for number in range(40)])
                for number, answer in enumerate(answers):
                    if number % 10 in {3, 4}:
                        assert answer is grpc.StatusCode.INVALID_ARGUMENT
                    else:
                        assert answer == [[2 * number, 2 * number]] * (1 + number % 3)

    uvloop.run(main())


def test_the_text_of_an_error_may_have_any_characters() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(f"/{SERVICE}/ServerReady")(b"")
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "voll, 100 % – später"

    with_server(scenario)
    assert percent_encoded("a%ü") == b"a%25%C3%BC"
    assert percent_encoded("a\udcff\n") == b"a\\udcff%0A"  # half a pair of UTF-16 has no encoding


def test_a_method_that_is_none_and_a_request_that_is_no_call() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        assert await channel.unary_unary(f"/{SERVICE}/Nothing")(b"").code() is grpc.StatusCode.UNIMPLEMENTED

    with_server(scenario)


def test_an_old_connection_is_left_without_an_error() -> None:
    """Clients go on on another one; calls that are under way are answered."""
    request = message_class("inference.ModelInferRequest")(id="a").SerializeToString()

    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", response_deserializer=Response.FromString)
        states = set()
        for _ in range(200):
            stream = call()
            await stream.write(request)
            assert (await stream.read()).error_message == "a"
            states.add(channel.get_state())
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK

    with_server(scenario, ("grpc.max_connection_age_ms", 20))


def test_a_reply_that_waits_for_its_socket_is_sent_before_the_server_ends() -> None:
    """No call is under way then: HTTP/2 has given all of it to the transport."""
    size, answered = 100_000, []

    async def long(_: Any, call: GrpcCall) -> bytes:
        answered.append(call)
        return bytes(size)

    async def main() -> None:
        calls = GrpcCalls("test", lambda _: None, 1e3 * HANG_S)
        options = GrpcOptions("127.0.0.1", 0)
        server = GrpcServer(options, [Service(calls, SERVICE, {"ServerLive": long})], lambda: True)
        await server.start()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with client:
            client.connect(("127.0.0.1", server.port))
            windows = frame(SETTINGS, payload=struct.pack("!HI", 4, 2**30)) + frame(8, payload=struct.pack("!I", 2**30))
            client.sendall(PREFACE + windows)
            count = 0
            while not any(each.transport.get_write_buffer_size() for each in server._connections.open):
                count += 1  # until the kernel takes no more
                client.sendall(grpc_call(2 * count - 1, f"/{SERVICE}/ServerLive", b""))
                await until(lambda: len(answered) == count and not server.calls_under_way())  # noqa: B023 - it waits
            stopping = asyncio.create_task(server.stop(HANG_S))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not stopping.done()
            assert await asyncio.to_thread(lambda: sum(iter(lambda: len(client.recv(2**16)), 0))) > count * size
            await stopping

    uvloop.run(main())


def test_a_client_whose_calls_all_run_out_of_time_or_are_cancelled_stays_connected() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        codes = set()
        for _ in range(10):
            late = [call(timeout=0.01) for _ in range(100)]
            gone = [call() for _ in range(100)]
            for each in gone:
                each.cancel()
            codes |= {await each.code() for each in [*late, *gone]}
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}

    with_server(scenario)


def test_who_leaves_in_the_middle_of_a_message_holds_nothing() -> None:
    async def main() -> None:
        async with live(options=GrpcOptions("127.0.0.1", 0)) as running:
            call = running.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED  # this server has other services
            await until(lambda: running.server.calls_under_way() == 0)

    uvloop.run(main())
