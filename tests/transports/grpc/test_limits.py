"""Clients that want too much: many calls, many pings, large heads, silence."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.transports.grpc.options import GrpcOptions
from app.transports.http2.hpack import Decoder
from tests.support.grpc_live import LIMIT, Live, NeverDevice, predict_request, rows, with_live
from tests.support.waiting import until
from tests.transports.grpc.http2_frames import (
    CANCEL,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    MAX_CONCURRENT_STREAMS,
    PING,
    REFUSED_STREAM,
    RESET,
    SETTINGS,
    Frame,
    Http2Client,
    frame,
    grpc_call,
)

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def with_frames(play: Callable[[Http2Client], Any], **more: Any) -> None:
    """`play` runs in a thread."""

    def connected(port: int) -> None:
        with Http2Client(port) as client:
            play(client)

    async def scenario(running: Live) -> None:
        await asyncio.to_thread(connected, running.server.port)
        assert (await health(running)).status == health_pb2.HealthCheckResponse.SERVING

    with_live(scenario, **more)


async def health(running: Live, **more: Any) -> Any:
    return await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest(), **more)


def limited(calls: int) -> GrpcOptions:
    return GrpcOptions("127.0.0.1", 0, LIMIT, max_concurrent_calls=calls)


def test_a_burst_of_calls_is_answered_and_none_is_cancelled() -> None:
    """gRPC drops calls that its server has not taken yet, from 1,000 on, as CANCELLED."""

    async def scenario(running: Live) -> None:
        replies = await asyncio.gather(*[health(running) for _ in range(4000)], return_exceptions=True)
        assert [each for each in replies if isinstance(each, Exception)] == []

    with_live(scenario)


def test_the_most_calls_of_a_connection_are_told() -> None:
    def play(client: Http2Client) -> None:
        settings = client.wait_for(lambda got: got.kind == SETTINGS).payload
        told = dict(struct.iter_unpack("!HI", settings))
        assert told[MAX_CONCURRENT_STREAMS] == 7

    with_frames(play, options=limited(7))


def test_calls_beyond_the_most_are_refused() -> None:
    """RFC 9113, section 5.1.2. Such a call was not begun, so the client may send it again."""

    def play(client: Http2Client) -> None:
        client.wait_for(lambda got: got.kind == SETTINGS)
        client.send(b"".join(grpc_call(1 + 2 * n, WATCH, b"") for n in range(3)))
        refused = client.wait_for(lambda got: got.kind == RESET)
        assert (refused.stream, refused.code) == (5, REFUSED_STREAM)

    with_frames(play, options=limited(2))


def test_a_client_that_only_pings_is_sent_away() -> None:
    def play(client: Http2Client) -> None:
        client.send(frame(PING, payload=b"12345678") * 10)
        away = client.wait_for(lambda got: got.kind == GOAWAY)
        assert away.payload[4:] == struct.pack("!I", ENHANCE_YOUR_CALM) + b"too_many_pings"
        while client.read() is not None:
            pass

    with_frames(play)


def test_metadata_have_a_limit() -> None:
    async def scenario(running: Live) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="metadata size exceeds hard limit") as failed:
            await health(running, metadata=[("much", "x" * 20_000)])
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    with_live(scenario)


def test_a_connection_on_which_nothing_comes_is_closed() -> None:
    options = GrpcOptions("127.0.0.1", 0, LIMIT, arguments=[("grpc.server_handshake_timeout_ms", 50)])

    async def scenario(running: Live) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        await reader.read()
        writer.close()

    with_live(scenario, options=options)


def test_the_deadline_in_the_head_is_answered_by_the_server() -> None:
    """Real clients end such a call themselves, so they do not see whether the server would."""

    def play(client: Http2Client) -> None:
        message = predict_request({"x": rows(1)}).SerializeToString()
        client.send(grpc_call(1, PREDICT, message, [("grpc-timeout", "50m")]))
        end = client.wait_for(lambda got: got.kind in (HEADERS, RESET) and got.stream == 1)
        assert (b"grpc-status", b"4") in Decoder().decode(end.payload).fields  # DEADLINE_EXCEEDED

    with_frames(play, device=NeverDevice())


def test_calls_that_are_reset_at_once_are_not_computed_and_hurt_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    """As many of them as an attacker can send (CVE-2023-44487)."""

    async def scenario(running: Live) -> None:
        def attack() -> None:
            message = predict_request({"x": rows(1)}).SerializeToString()
            with Http2Client(running.server.port) as client, suppress(ConnectionError):  # it is ended
                for first in range(1, 4000, 500):
                    streams = range(first, first + 500, 2)
                    client.send(b"".join(grpc_call(n, PREDICT, message) + reset(n) for n in streams))

        attacking = asyncio.create_task(asyncio.to_thread(attack))
        while not attacking.done():
            await health(running)
        await attacking
        await until(lambda: not running.batcher.queue.rows)
        await health(running)

    with_live(scenario, device=NeverDevice())
    capfd.readouterr()  # gRPC prints a trace for each


def reset(stream: int) -> bytes:
    return frame(RESET, stream=stream, payload=struct.pack("!I", CANCEL))


@pytest.mark.parametrize("path", [WATCH, REFLECTION])
def test_health_answers_while_a_thousand_streams_are_open(path: str) -> None:
    async def scenario(running: Live) -> None:
        def watch() -> Http2Client:
            client = Http2Client(running.server.port)
            client.send(b"".join(grpc_call(1 + 2 * n, path, b"") for n in range(1000)))
            answered: set[int] = set()

            def all_answered(got: Frame) -> bool:
                if got.kind == HEADERS:
                    answered.add(got.stream)
                return len(answered) == 1000

            client.wait_for(all_answered)
            return client

        with await asyncio.to_thread(watch):
            seconds = []
            for _ in range(50):
                begun_s = time.perf_counter()
                await health(running)
                seconds.append(time.perf_counter() - begun_s)
            assert min(seconds) < 0.05

    with_live(scenario)
