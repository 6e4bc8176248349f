"""GET / lists the routes that are there, over sockets: for callers and operators, with an access file, in frontends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from tests.access.test_every_route import EVERYTHING, KEY, access_file, bearer, key
from tests.every_protocol.live import live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place

__all__ = ["runtime_in_place"]  # a fixture

OPERATORS = 8510


async def listed(client: httpx.AsyncClient) -> set[tuple[str, str]]:
    """Method and path of each route of the page."""
    reply = await client.get("/")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    lines = [line.split() for line in reply.text.splitlines() if line.startswith(("GET", "POST"))]
    assert "\n\n\n" not in reply.text
    assert "broken" not in reply.text, "the name of a model"
    return {(method, path) for method, path, *_ in lines}


async def refused(client: httpx.AsyncClient, routes: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those that are not there."""
    found = set()
    for method, path in routes:
        reply = await client.request(method, path.replace("NAME", "m"), content=b"{")
        if reply.status_code in {404, 405}:
            found.add((method, path))
    return found


@in_every_arrangement
def test_every_route_that_is_listed_is_there(tmp_path: Path, frontends: int) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends) as served:
            routes = await listed(served.http)
            assert await listed(served.http2) == routes
            assert len(routes) > 15
            assert await refused(served.http, routes) == set()
            head = await served.http.head("/")
            assert (head.status_code, head.content) == (200, b"")
            assert (await served.http.options("/")).headers["allow"] == "GET, HEAD, OPTIONS"

    asyncio.run(main())


@in_every_arrangement
def test_each_port_lists_its_own_routes(tmp_path: Path, frontends: int) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends, operator_port=OPERATORS) as served:
            transport = httpx.ASGITransport(served.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://ferry:{OPERATORS}") as operators:
                for _ in range(2):
                    to_callers, to_operators = await listed(served.http), await listed(operators)
                assert await refused(served.http, to_callers) == await refused(operators, to_operators) == set()
                assert await refused(served.http, to_operators) == to_operators - to_callers
                assert await refused(operators, to_callers) == to_callers - to_operators
            assert ("POST", "/predict") in to_callers - to_operators
            assert {("GET", "/docs"), ("GET", "/metrics")} <= to_operators - to_callers
            assert ("GET", "/v1/models") in to_callers & to_operators

    asyncio.run(main())


def test_where_credentials_are_needed_the_page_is_for_those_who_may_see_metadata(tmp_path: Path) -> None:
    """Of any model: it names none."""
    keys = (
        key("one-model", KEY, models=["m"], permissions=["metadata"]),
        key("the-rest", "rest-key-0123456789", permissions=[each for each in EVERYTHING if each != "metadata"]),
    )

    async def main() -> None:
        async with live(tmp_path, access_file=str(access_file(tmp_path, *keys))) as served:
            for headers, status in (({}, 401), (bearer(KEY), 200), (bearer("rest-key-0123456789"), 403)):
                reply = await served.http.get("/", headers=headers)
                assert (reply.status_code, "/v1/models" in reply.text) == (status, status == 200)

    asyncio.run(main())
