import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.responses import JSONResponse

from app import runtime
from app.protocols.operations.openapi.document import add_protocols, described_models
from app.server import http_app
from app.server.http_app import HttpApp
from app.server.server import Server
from tests.server.test_server import settings
from tests.support.protocol_fakes import scripted
from tests.support.waiting import until


def with_client(
    folder: Path, scenario: Callable[[httpx.AsyncClient, HttpApp], Awaitable[None]], **more: object
) -> None:
    async def main() -> None:
        app = HttpApp(Server(settings(folder, **more)))
        async with app.router.lifespan_context(app):
            assert app.server._starting is not None
            await app.server._starting
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://ferry") as client:
                await scenario(client, app)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _fake_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "fake", "tests.support.fakes:FakeRuntime")


def test_inference_paths_in_any_case(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: HttpApp) -> None:
        for path in ("/v1/models/m:predict", "/V1/models/m:predict", "/predict"):
            reply = await client.post(path, json={"instances": [[1, 2]]})
            assert reply.json() == {"predictions": [[2.0, 4.0]]}, path

    with_client(tmp_path, scenario)


def test_health_turns_red_with_its_reasons(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, app: HttpApp) -> None:
        for path in ("/livez", "/readyz"):
            reply = await client.get(path)
            assert (reply.status_code, reply.json()) == (200, {"status": "ok", "reasons": [], "problems": []})
        app.server.engine.begin_drain()
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()["status"]) == (503, "not ok")
        assert reply.json()["reasons"] == ["The server is draining"]
        assert (await client.get("/livez")).status_code == 200
        app.server.failure = "broken"
        assert (await client.get("/livez")).json()["reasons"] == ["broken"]
        assert (await client.get("/health")).json()["reasons"] == ["broken", "The server is draining"]

    with_client(tmp_path, scenario)


def test_one_broken_model_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "saved_model.pbtxt").touch()
    problem = "Model broken version 1 failed to load: broken/1 holds no saved_model.pb"

    async def scenario(client: httpx.AsyncClient, app: HttpApp) -> None:
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()) == (200, {"status": "ok", "reasons": [], "problems": [problem]})
        assert (await client.get("/v2/health/ready")).status_code == 200
        summary = (await client.get("/health")).json()
        assert (summary["status"], summary["reasons"], summary["problems"]) == ("ready", [], [problem])
        labels = f'kind="failed",model="broken",reason="{problem}",version="1"'
        page = (await client.get("/metrics")).text
        assert f"ferry_model_problem{{{labels}}} 1.0" in page
        assert 'ferry_model_loads_total{model="broken",result="failed"} 1.0' in page
        assert 'ferry_model_state{model="m",state="AVAILABLE",version="1"} 1.0' in page
        assert "ferry_ready 1.0" in page

    async def strict(client: httpx.AsyncClient, app: HttpApp) -> None:
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()) == (
            503,
            {"status": "not ok", "reasons": [problem], "problems": []},
        ), "told once"

    with_client(tmp_path, scenario)
    with_client(tmp_path, strict, strict_readiness=True)


def test_metrics_name_the_requests(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: HttpApp) -> None:
        await client.post("/v1/models/m:predict", json={"instances": [[1, 2]]})
        reply = await client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=")
        assert 'ferry_requests_total{code="200",model="m",protocol="tensorflow_rest"' in reply.text

    with_client(tmp_path, scenario)


def test_documents_follow_the_models(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: HttpApp) -> None:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {"/livez", "/readyz", "/metrics", "/v1/models/m:predict"} <= set(paths)
        assert (await client.get("/docs")).status_code == 200

    with_client(tmp_path, scenario)


def test_the_document_is_made_once_for_the_same_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 60 ms: 80 connections that asked for it 60 times each kept `/livez` waiting for more than 5 s."""
    made: list[object] = []

    def counted(document: Any, repository: Any) -> Any:
        made.append(document)
        return add_protocols(document, repository)

    monkeypatch.setattr(http_app, "add_protocols", counted)

    async def scenario(client: httpx.AsyncClient, app: HttpApp) -> None:
        first, second = [await client.get("/openapi.json") for _ in range(2)]
        assert first.content == second.content == JSONResponse(app.openapi()).body
        assert first.headers["content-type"] == "application/json"
        assert len(made) == 2  # the second is the test's own

        (tmp_path / "another" / "1").mkdir(parents=True)
        (tmp_path / "another" / "1" / "saved_model.pb").touch()
        await until(lambda: "another" in {model.name for model in described_models(app.server.repository)})
        for _ in range(2):
            assert "/v1/models/another:predict" in (await client.get("/openapi.json")).json()["paths"]
        assert len(made) == 3

    with_client(tmp_path, scenario, settle_s=0)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/livez", 405), ("POST", "/", 405)]
)
def test_errors_have_one_form(tmp_path: Path, method: str, path: str, status: int) -> None:
    async def scenario(client: httpx.AsyncClient, _: HttpApp) -> None:
        reply = await client.request(method, path)
        assert reply.status_code == status
        assert f"{method} {path}" in reply.json()["error"]

    with_client(tmp_path, scenario)


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
def test_a_target_that_is_no_path_is_not_found(tmp_path: Path, method: str) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def scenario(_: httpx.AsyncClient, app: HttpApp) -> None:
        target = {"path": "*", "raw_path": b"*", "query_string": b"", "headers": []}
        await app({"type": "http", "method": method, **target}, scripted({"type": "http.request"}), send)
        assert sent[0]["status"] == 404
        assert list(json.loads(sent[1]["body"])) == ["error"]

    with_client(tmp_path, scenario)


def test_an_upgrade_that_a_server_passes_on_is_rejected_and_ends_the_connection(tmp_path: Path) -> None:
    """Plain uvicorn drops the body of such a request and reads on behind its head."""

    async def scenario(client: httpx.AsyncClient, _: HttpApp) -> None:
        asking = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}
        for path in ("/v1/models/m:predict", "/livez"):
            reply = await client.post(path, json={"instances": [[1, 2]]}, headers=asking)
            assert (reply.status_code, reply.headers["connection"]) == (400, "close")
            assert "Upgrade" in reply.json()["error"]

    with_client(tmp_path, scenario)
