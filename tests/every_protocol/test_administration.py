"""What changes the server is off unless it is switched on, and never for web pages of other sites: on every way in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from app.codecs.protobuf.messages import message_class
from tests.every_protocol.live import Live, live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place

__all__ = ["runtime_in_place"]  # a fixture

BATCHING = "/v1/models/m/batching"
PAGE = {"Origin": "https://page.example", "Sec-Fetch-Site": "cross-site"}

#: Method, path and body of what changes the server over HTTP.
CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v2/repository/models/m/unload", {}),
    ("POST", "/v2/repository/models/m/load", {}),
    ("PATCH", BATCHING, {"max_batch_size": 2}),
    ("POST", "/v2/systemsharedmemory/region/r/register", {"key": "/r", "byte_size": 1}),
    ("POST", "/v2/systemsharedmemory/region/r/unregister", {}),
    ("POST", "/v2/systemsharedmemory/unregister", {}),
)

#: And over gRPC.
CALLS = (
    ("inference.GRPCInferenceService", "RepositoryModelUnload", "inference.RepositoryModelUnloadRequest"),
    ("inference.GRPCInferenceService", "RepositoryModelLoad", "inference.RepositoryModelLoadRequest"),
    ("inference.GRPCInferenceService", "SystemSharedMemoryRegister", "inference.SystemSharedMemoryRegisterRequest"),
    ("inference.GRPCInferenceService", "SystemSharedMemoryUnregister", "inference.SystemSharedMemoryUnregisterRequest"),
    ("tensorflow.serving.ModelService", "HandleReloadConfigRequest", "tensorflow.serving.ReloadConfigRequest"),
)


def play(folder: Path, scenario: Callable[[Live], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with live(folder, **settings) as running:
            await scenario(running)

    asyncio.run(main())


async def over_http(client: httpx.AsyncClient, **more: Any) -> list[tuple[int, str]]:
    replies = [await client.request(method, path, json=body, **more) for method, path, body in CHANGES]
    return [(reply.status_code, reply.json().get("error", "")) for reply in replies]


async def code_of(running: Live, service: str, method: str, message: str) -> tuple[grpc.StatusCode, str]:
    try:
        await running.channel.unary_unary(f"/{service}/{method}")(message_class(message)().SerializeToString())
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@in_every_arrangement
def test_nothing_changes_the_server_unless_it_is_switched_on(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        plain = httpx.AsyncClient(transport=httpx.ASGITransport(running.app), base_url="http://ferry")
        async with plain:
            for client in (running.http, plain):
                for status, text in await over_http(client):
                    assert status == 403
                    assert "model_control=explicit" in text
        for call in CALLS:
            code, text = await code_of(running, *call)
            assert code is grpc.StatusCode.PERMISSION_DENIED, call
            assert "model_control=explicit" in text
        assert (await running.http.get("/v1/models/m")).json()["model_version_status"][0]["state"] == "AVAILABLE"
        assert (await running.http.post("/v2/repository/index")).status_code == 200, "it only reads"
        assert (await running.http.get(BATCHING)).status_code == 200

    play(tmp_path, scenario, frontends=frontends, model_control="none")


@in_every_arrangement
@pytest.mark.parametrize("cors", [False, True])
def test_web_pages_of_other_sites_change_nothing(tmp_path: Path, frontends: int, cors: bool) -> None:
    """Even where pages of any origin may send inference requests."""

    async def scenario(running: Live) -> None:
        for status, text in await over_http(running.http, headers=PAGE):
            assert status == 403
            assert "A web page of another site" in text
        reply = await running.http.post("/v1/models/m:predict", json={"instances": [[1.0, 2.0]]}, headers=PAGE)
        assert reply.status_code == 200, "that is no administration"
        assert (await running.http.get("/v1/models/m")).json()["model_version_status"][0]["state"] == "AVAILABLE"

    play(tmp_path, scenario, frontends=frontends, cors=cors)


@in_every_arrangement
def test_switched_on_it_changes_the_server(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        assert [status for status, _ in await over_http(running.http)] == [200, 200, 200, 501, 501, 501]
        assert (await code_of(running, *CALLS[1]))[0] is not grpc.StatusCode.PERMISSION_DENIED

    play(tmp_path, scenario, frontends=frontends)


def test_with_a_port_of_operators_the_other_ports_do_not_answer_it(tmp_path: Path) -> None:
    async def scenario(running: Live) -> None:
        for status, text in await over_http(running.http):
            assert status == 404
            assert "(setting operator_port)" in text
        for call in CALLS:
            assert (await code_of(running, *call))[0] is grpc.StatusCode.UNIMPLEMENTED

    play(tmp_path, scenario, operator_port=7)
