"""HEAD, OPTIONS, CORS and wrong methods on every route: in one process, with frontends, and under another ASGI server.

The oracle is RFC 9110, sections 9.3.2 (HEAD), 9.3.7 (OPTIONS), 15.5.6 (405), and the fetch standard's preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from tests.every_protocol.live import live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place

__all__ = ["runtime_in_place"]  # a fixture

#: Routes of every kind, by the methods that they have.
READ = (
    *("/livez", "/readyz", "/health", "/metrics", "/openapi.json", "/docs"),
    *("/v1/models", "/v1/models/m", "/v1/models/m/versions/1", "/v1/models/m/metadata"),
    *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats"),
    *("/v2/models/m", "/v2/models/m/ready", "/v2/models/m/config", "/v2/models/m/versions/1/stats"),
    "/v2/cudasharedmemory/status",
)
WRITTEN = (
    *("/predict", "/v1/models/m:predict", "/v1/models/m:predictStream", "/v1/models/m/versions/1:classify"),
    *("/v2/models/m/infer", "/v2/repository/index", "/v2/cudasharedmemory/unregister"),
)
BATCHING = "/v1/models/m/batching"
METHODS = {
    **{path: {"GET", "HEAD", "OPTIONS"} for path in READ},
    **{path: {"POST", "OPTIONS"} for path in WRITTEN},
    BATCHING: {"GET", "HEAD", "PATCH", "OPTIONS"},
}

#: TensorFlow Serving answers 400 where the method is wrong, and so does everything that it has.
PEER = tuple(path for path in METHODS if path.startswith(("/v1", "/predict")) and path != BATCHING)

ORIGIN = {"Origin": "https://page.example"}

#: What changes from one reply to the next.
CHANGING = {"date", "content-length"}


def over_all_ways(
    folder: Path, frontends: int, ask: Callable[[httpx.AsyncClient], Awaitable[None]], cors: bool = False
) -> None:
    async def main() -> None:
        async with live(folder, frontends=frontends, cors=cors) as served:
            await ask(served.http)
            transport = httpx.ASGITransport(served.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://ferry") as plain:
                await ask(plain)

    asyncio.run(main())


def methods_in(header: str) -> set[str]:
    return set(header.split(", "))


@in_every_arrangement
def test_head_is_get_without_its_content(tmp_path: Path, frontends: int) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for path in (*READ, BATCHING, "/v1/models/none", "/v2/models/none", "/none"):
            got, head = await client.get(path), await client.head(path)
            assert head.status_code == got.status_code, path
            assert head.content == b""
            assert int(head.headers["content-length"]) > 0, path
            left = [{k: v for k, v in each.headers.items() if k not in CHANGING} for each in (got, head)]
            assert left[0] == left[1], path

    over_all_ways(tmp_path, frontends, ask)


@in_every_arrangement
def test_a_wrong_method_is_told_the_true_ones(tmp_path: Path, frontends: int) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for path, methods in METHODS.items():
            for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - methods:
                reply = await client.request(method, path)
                if path in PEER:
                    assert (reply.status_code, "allow" in reply.headers) == (400, False), (method, path)
                else:
                    assert reply.status_code == 405, (method, path)
                    assert methods_in(reply.headers["allow"]) == methods, path
                    assert path in reply.json()["error"]

    over_all_ways(tmp_path, frontends, ask)


@in_every_arrangement
def test_options_tells_the_methods_of_a_path(tmp_path: Path, frontends: int) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for path, methods in METHODS.items():
            reply = await client.options(path)
            assert (reply.status_code, reply.content) == (204, b""), path
            assert methods_in(reply.headers["allow"]) == methods, path
            assert "access-control-allow-origin" not in reply.headers
        assert [(await client.options(path)).status_code for path in ("/none", "/v2/none", "/v1/none")] == [
            404,
            404,
            400,
        ]

    over_all_ways(tmp_path, frontends, ask)


async def allowed_by_preflight(client: httpx.AsyncClient, path: str) -> Sequence[str]:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    reply = await client.options(path, headers=ORIGIN | asked)
    assert reply.status_code == 200, path
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "content-type" in reply.headers["access-control-allow-headers"]
    return reply.headers["access-control-allow-methods"].split(", ")


@in_every_arrangement
def test_web_pages_may_call_every_route_that_changes_nothing(tmp_path: Path, frontends: int) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for path, methods in METHODS.items():
            allowed = await allowed_by_preflight(client, path)
            assert set(allowed) >= methods - {"PATCH"}, path
            assert "PATCH" not in allowed
            method = "GET" if "GET" in methods else "POST"
            reply = await client.request(method, path, headers=ORIGIN)
            assert reply.headers.get_list("access-control-allow-origin") == ["*"], path
            assert reply.headers.get_list("access-control-expose-headers") == ["*"], path

    over_all_ways(tmp_path, frontends, ask, cors=True)


@in_every_arrangement
def test_without_the_setting_no_page_is_allowed_anything(tmp_path: Path, frontends: int) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for path in METHODS:
            for reply in (
                await client.options(path, headers=ORIGIN | {"Access-Control-Request-Method": "POST"}),
                await client.get(path, headers=ORIGIN),
            ):
                assert not [name for name in reply.headers if name.startswith("access-control")], path

    over_all_ways(tmp_path, frontends, ask)


@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v2/models/m/infer"])
def test_computed_replies_may_be_read_by_pages(tmp_path: Path, path: str) -> None:
    inputs = [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]
    body = {"inputs": inputs} if "v2" in path else {"instances": [[1, 2]]}

    async def ask(client: httpx.AsyncClient) -> None:
        reply = await client.post(path, json=body, headers=ORIGIN)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == reply.headers["access-control-expose-headers"] == "*"

    over_all_ways(tmp_path, 0, ask, cors=True)
