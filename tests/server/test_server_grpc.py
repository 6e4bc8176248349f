"""gRPC as the server serves it: readiness, drain, and a port that is in use."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app import runtime
from app.codecs.protobuf.messages import message_class
from app.config.settings import Settings
from app.runtime import RuntimeOptions
from app.server.grpc_servers import grpc_options
from app.server.server import Server
from tests.support.grpc_live import outputs_of, predict_request, rows
from tests.support.waiting import HANG_S

PREDICT = "/tensorflow.serving.PredictionService/Predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


@pytest.fixture(autouse=True)
def _fake_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "fake", "tests.support.fakes:FakeRuntime")


def settings(folder: Path, **more: Any) -> Settings:
    version = folder / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "saved_model.pb").touch()
    values = {"models": folder, "runtime": "fake", "max_batch_size": 4, "host": "127.0.0.1", "grpc_port": 0, **more}
    return Settings(**values)


@asynccontextmanager
async def serving(wanted: Settings) -> AsyncIterator[tuple[Server, grpc.aio.Channel]]:
    server = Server(wanted)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
        yield server, channel
    await server.stop()


async def loaded(server: Server) -> None:
    assert server._starting is not None
    await server._starting


def predict(channel: grpc.aio.Channel) -> Any:
    reply = message_class("tensorflow.serving.PredictResponse")
    call = channel.unary_unary(PREDICT, response_deserializer=reply.FromString)
    return call(predict_request({"x": rows(2)}).SerializeToString())


async def health(channel: grpc.aio.Channel) -> bool:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def test_health_follows_readiness_into_the_drain(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings(tmp_path)) as (server, channel):
            await loaded(server)
            assert await health(channel)
            assert outputs_of(await predict(channel))["y"].tolist() == [[4, 4]]
            assert b'ferry_requests_total{code="OK"' in (await server.metrics())[0]
            assert await server.drain()
            assert not await health(channel)
            assert await predict(channel).code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())


def test_the_form_of_outputs_is_a_setting(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings(tmp_path, tensor_content=False)) as (server, channel):
            await loaded(server)
            assert list((await predict(channel)).outputs["y"].float_val) == [4, 4]

    asyncio.run(main())


def test_callers_do_not_change_what_a_folder_serves(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings(tmp_path, model_control="explicit")) as (_, channel):
            assert await channel.unary_unary(RELOAD)(b"").code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(main())


def test_a_port_in_use_ends_the_start_with_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(settings(tmp_path)) as (first, _):
            second = Server(settings(tmp_path, grpc_port=first.grpc.port))
            await second.start()
            text = f"Ferry could not start: gRPC cannot listen on 127.0.0.1:{first.grpc.port}"
            assert second.failure.startswith(text)
            assert [each for each in caplog.messages if "gRPC" in each] == [second.failure]
            await second.stop()

    asyncio.run(main())


class FailingRuntime:
    """Starts until it is released, and fails."""

    release = threading.Event()

    def __init__(self, options: RuntimeOptions) -> None:
        self.release.wait(HANG_S)
        raise RuntimeError("the server ended meanwhile")


def test_what_fails_while_the_start_ends_does_not_bury_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "failing", f"{__name__}:FailingRuntime")
    FailingRuntime.release.clear()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = Server(settings(tmp_path, runtime="failing", grpc_port=taken.getsockname()[1]))
            await server.start()
            reason = server.failure
            FailingRuntime.release.set()
            await loaded(server)
            assert server.failure == reason
            await server.stop()

    asyncio.run(main())
    assert "gRPC cannot listen" in caplog.text
    assert not [each for each in caplog.records if each.exc_info]


def test_where_it_listens_is_a_setting(tmp_path: Path) -> None:
    options = grpc_options(settings(tmp_path, grpc_unix_socket="/run/ferry", grpc_max_message_bytes=7))
    assert (options.host, options.port) == ("127.0.0.1", 0)
    assert (options.unix_socket, options.max_message_bytes) == ("/run/ferry", 7)
