"""One port for REST over HTTP/1.1 and HTTP/2 and for gRPC."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.config.settings import Settings
from app.server.server import Server, grpc_options
from tests.every_protocol.drivers.driver import Fault, rows
from tests.every_protocol.live import live, settings
from tests.every_protocol.suite import DRIVERS, ask_rows, rejection, runtime_in_place

__all__ = ["runtime_in_place"]  # a fixture


def test_every_protocol_is_served_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path, single_port=True) as served:
            assert served.server.grpc.port == 0
            for drive in DRIVERS:
                driver = drive(served)
                np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))
                if Fault.UNKNOWN_MODEL not in drive.lacks:
                    rejected = await rejection(ask_rows(driver, 1.0, model="none"))
                    assert rejected.code == drive.codes[Fault.UNKNOWN_MODEL]
            health = health_pb2_grpc.HealthStub(served.channel)
            assert (
                await health.Check(health_pb2.HealthCheckRequest())
            ).status == health_pb2.HealthCheckResponse.SERVING

    asyncio.run(main())


def test_requests_of_all_wait_for_the_model_and_are_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path, single_port=True) as served:
            async with served.held():
                asked = [asyncio.ensure_future(ask_rows(drive(served), 3.0)) for drive in DRIVERS]
                await served.rows_wait(len(asked))
            for output in await asyncio.gather(*asked):
                np.testing.assert_array_equal(output, rows(6.0))

    asyncio.run(main())


def test_without_it_a_call_of_grpc_gets_an_error_of_http(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as served:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{served.http.base_url.port}") as channel:
                call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call(b"")
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"frontends": 2}, "0 with single_port: frontends have a port of gRPC"),
        ({"rest": False}, "false where rest is off"),
    ],
    ids=str,
)
def test_what_it_excludes_is_said_at_start(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(single_port=True, **wrong)


def test_settings_and_arguments_of_grpc_say_how_old_its_connections_become(tmp_path: Path) -> None:
    wanted = settings(tmp_path, single_port=True, max_connection_age_s=7.0)
    arguments = [("grpc.max_connection_idle_ms", 5000), ("grpc.max_connection_age_grace_ms", 3000)]
    calls = Server(wanted, grpc=replace(grpc_options(wanted), arguments=arguments)).grpc.on_rest_port()
    assert calls is not None
    assert (calls.times.age_s, calls.times.idle_s, calls.times.age_grace_s) == (7.0, 5.0, 3.0)


def test_no_port_is_opened_for_grpc(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def main() -> None:
            async with live(tmp_path, single_port=True, grpc_port=port) as served:
                assert served.server.failure == ""
                assert (await served.http.get("/readyz")).status_code == 200

        asyncio.run(main())
