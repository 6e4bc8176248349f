"""A connection that is old ends with the next reply, so that its client connects anew, perhaps to a new server."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from app.transports.http.connections.connection_limits import ConnectionLimits
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, LIMITS, World, request
from tests.transports.rest_http2.http2_client import Client

AGE_S = 50.0

OLD = replace(LIMITS, keep_alive_s=600.0, max_connection_age_s=AGE_S)

WAIT_S = 3.5 * COMPUTE_S

PREDICT = request()
PAGE = request("/v2/models/m/ready", b"", method="GET")  # by ASGI
WRONG = request(body=b"{")


@pytest.mark.parametrize("each", [PREDICT, PAGE, WRONG])
def test_the_first_reply_after_the_age_ends_the_connection(each: bytes) -> None:
    async def main() -> None:
        world = World(True, limits=OLD)
        await world.hear(each, 0.8 * AGE_S, each, 0.35 * AGE_S, each, WAIT_S)
        says = [headers.get("connection") for _, headers, _ in world.replies()]
        assert says == [None, None, "close"]
        assert world.transport.closed

    run_in_fake_time(main())


@pytest.mark.parametrize("each", [PREDICT, PAGE])
def test_requests_that_have_come_are_answered_before(each: bytes) -> None:
    async def main() -> None:
        world = World(True, limits=OLD)
        await world.hear(each, 1.2 * AGE_S, each * 3, 3 * WAIT_S)
        says = [(status, headers.get("connection")) for status, headers, _ in world.replies()]
        assert says == [(200, None), (200, None), (200, None), (200, "close")]

    run_in_fake_time(main())


def test_an_old_connection_that_waits_ends_as_any_that_is_idle() -> None:
    async def main() -> None:
        world = World(True, limits=OLD)
        await world.hear(PREDICT, 3 * AGE_S)
        assert not world.transport.closed
        await asyncio.sleep(OLD.keep_alive_s)
        assert world.transport.closed

    run_in_fake_time(main())


def test_without_an_age_a_connection_stays() -> None:
    async def main() -> None:
        world = World(True, limits=replace(OLD, max_connection_age_s=0.0))
        await world.hear(PREDICT, 10 * AGE_S, PREDICT, WAIT_S)
        assert [headers.get("connection") for _, headers, _ in world.replies()] == [None, None]

    run_in_fake_time(main())


def test_connections_that_began_together_do_not_end_together() -> None:
    limits = ConnectionLimits(max_connection_age_s=300.0)
    ages = [limits.age_s(lambda drawn=drawn: drawn) for drawn in (0.0, 0.5, 1.0)]
    assert ages == pytest.approx([270.0, 300.0, 330.0])


def test_a_connection_of_http2_hears_it_once_no_request_is_under_way() -> None:
    """Some clients take nothing any more behind a GOAWAY."""

    async def main() -> None:
        age_s = 10 * COMPUTE_S  # so it is old between 9 and 11 of these
        world = World(True, limits=replace(OLD, max_connection_age_s=age_s), calls_s=3 * COMPUTE_S)
        client = Client(world)
        await asyncio.sleep(8.8 * COMPUTE_S)
        first = client.ask()
        await asyncio.sleep(2.4 * COMPUTE_S)
        second = client.ask()
        assert (await client.reply(first, COMPUTE_S)).status == 200
        assert not client.goaways
        assert (await client.reply(second, 3 * COMPUTE_S)).status == 200
        await asyncio.sleep(1.1)  # for the last call
        client.read()
        assert [each.last_stream_id for each in client.goaways] == [2**31 - 1, second]
        assert client.transport.closed

    run_in_fake_time(main())
