"""How many connections there may be, and what happens to those beyond."""

from __future__ import annotations

import asyncio
import math
import resource
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from app.transports.descriptors import beyond_http_connections
from app.transports.http.asgi import Send
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http1 import over_limit
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, LIMITS, MAX_BODY, World, request, stays_open

LIVE = request("/livez", b"", method="GET")


async def _ok(_: object, __: object, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_2000_slow_heads_keep_no_honest_client_out_and_end() -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, max_connections=500))
        slow = [world.connect() for _ in range(2000)]
        for connection, transport in slow:
            if not transport.closed:
                connection.data_received(request()[:40])
        assert sum(not transport.closed for _, transport in slow) <= 500
        for _ in range(20):
            connection, transport = world.connect()
            connection.data_received(request())
            await asyncio.sleep(2 * COMPUTE_S)
            assert [status for status, *_ in world.replies(transport)] == [200]
        await asyncio.sleep(LIMITS.arrival_timeout_s)
        assert all(transport.closed for _, transport in slow)
        assert len(world.state.connections) <= 20

    run_in_fake_time(main())


def test_those_that_wait_longest_give_way_and_no_request_does() -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, keep_alive_s=600.0, max_connections=4))
        answered, reading, computing = world.connect(), world.connect(), world.connect()
        world.connection.connection_lost(None)
        answered[0].data_received(request(body=b"{"))
        await asyncio.sleep(5.0)
        reading[0].data_received(request()[:-3])
        computing[0].data_received(request())
        half_head = world.connect()
        half_head[0].data_received(request()[:30])

        await asyncio.sleep(0.1)
        first, second = world.connect(), world.connect()
        assert [each[1].closed for each in (answered, half_head, reading, computing)] == [True, True, False, False]
        assert not first[1].closed
        assert not second[1].closed

    run_in_fake_time(main())


def test_who_has_its_last_reply_and_sends_on_gives_way_first() -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, max_connections=2))
        world.connection.connection_lost(None)
        waits, (rejected, transport) = world.connect(), world.connect()
        with stays_open(transport):
            rejected.data_received(request(headers={"Content-Length": str(2 * MAX_BODY)}))
            await asyncio.sleep(0.1)
            assert [status for status, *_ in world.replies(transport)] == [413]
            assert not transport.closed

            new = world.connect()
            assert [each.closed for each in (transport, waits[1], new[1])] == [True, False, False]

    run_in_fake_time(main())


def full(count: int = 2) -> World:
    """As many connections as there may be, each with a request that is computed."""
    world = World(True, limits=replace(LIMITS, max_connections=count))
    for connection, _ in [(world.connection, None), *[world.connect() for _ in range(count - 1)]]:
        connection.data_received(request())
    return world


def test_without_room_a_new_connection_gets_503_when_it_asks() -> None:
    async def main() -> None:
        world = full()
        _, transport = world.connect()
        transport.hear(request()[:50])
        assert not transport.out
        transport.hear(request()[50:])
        ((status, headers, body),) = world.replies(transport)
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert b"max_connections" in body
        assert transport.closed
        await asyncio.sleep(3 * COMPUTE_S)
        connection, transport = world.connect()  # now some wait for their next request
        connection.data_received(request())
        await asyncio.sleep(2 * COMPUTE_S)
        assert [status for status, *_ in world.replies(transport)] == [200]

    run_in_fake_time(main())


def test_without_room_a_probe_is_answered_and_its_connection_ends() -> None:
    async def main() -> None:
        world = full()
        connection, transport = world.connect()
        connection._server.application = _ok
        transport.hear(LIVE + LIVE)
        await asyncio.sleep(0.1)
        assert [(status, body) for status, _, body in world.replies(transport)] == [(200, b"ok"), (200, b"ok")]
        assert transport.closed
        assert len(world.state.connections) == 2

    run_in_fake_time(main())


def test_connections_beyond_the_limit_have_a_limit_of_their_own_and_little_time() -> None:
    async def main() -> None:
        world = full()
        beyond = [world.connect()[1] for _ in range(beyond_http_connections() + 5)]
        await asyncio.sleep(0.0)
        assert [transport.aborted for transport in beyond] == [True] * 5 + [False] * beyond_http_connections()
        await asyncio.sleep(over_limit._HEAD_S)
        assert all(transport.aborted for transport in beyond)
        await asyncio.sleep(0.1)
        assert not over_limit.OverLimit._all

    run_in_fake_time(main())


def test_a_probe_is_answered_among_many_that_wait_for_nothing() -> None:
    async def main() -> None:
        world = full()
        with ExitStack() as clients:
            for _ in range(2 * beyond_http_connections()):
                _, transport = world.connect()
                clients.enter_context(stays_open(transport))
                transport.hear(request())
            connection, transport = world.connect()
            connection._server.application = _ok
            transport.hear(LIVE)
            await asyncio.sleep(0.1)
            assert [status for status, *_ in world.replies(transport)] == [200]

    run_in_fake_time(main())


def test_one_address_has_a_limit_where_it_is_set() -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, max_connections_per_address=3))
        mine = [world.connect("10.0.0.1") for _ in range(4)]
        other, _ = world.connect("10.0.0.2")
        mine[3][1].hear(request())
        assert [status for status, *_ in world.replies(mine[3][1])] == [503]
        assert [transport.closed for _, transport in mine] == [False, False, False, True]
        mine[0][0].connection_lost(None)
        other.connection_lost(None)
        world.connect("10.0.0.1")[0].data_received(request())
        connections = world.connection._server._connections
        assert dict(connections._of_address) == {"127.0.0.1": 1, "10.0.0.1": 3}

    run_in_fake_time(main())


def test_a_search_in_vain_is_not_repeated_for_each_new_connection() -> None:
    class Busy:
        address = ""
        looks = 0

        @property
        def waits_since_s(self) -> float:
            self.looks += 1
            return float("inf")

        def give_way(self) -> None:
            raise AssertionError

    async def main() -> None:
        connections, busy = Connections(ConnectionLimits(max_connections=1), fake_time), Busy()
        assert not connections.admit(busy)
        assert all(connections.admit(Busy()) for _ in range(1000))
        assert busy.looks == 1

    run_in_fake_time(main())


@pytest.mark.parametrize(("configured", "most"), [(0, 472), (100, 100), (900, 472)])
def test_file_descriptors_limit_what_is_configured(
    configured: int, most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert Connections(ConnectionLimits(max_connections=configured), fake_time)._most == most
    assert ("max_connections is 900, but" in caplog.text) == (configured == 900)


def test_each_connection_that_is_rejected_or_gives_way_is_told() -> None:
    class Waiting:
        def __init__(self, address: str, since_s: float) -> None:
            self.address, self.waits_since_s = address, since_s

        def give_way(self) -> None:
            """It closes."""

    told: list[Any] = []
    limits = ConnectionLimits(max_connections=2, max_connections_per_address=1)
    connections = Connections(limits, lambda: 0.0, told.append)
    for address, since_s in (("a", 0.0), ("a", 0.0), ("b", math.inf), ("c", math.inf), ("d", 0.0)):
        connections.admit(Waiting(address, since_s))
    assert [each.reason for each in told] == ["address", "gave_way", "full"]


@pytest.mark.parametrize(
    "limits", [ConnectionLimits(max_connections=1), ConnectionLimits(max_connections_per_address=1)]
)
def test_one_that_was_not_added_is_not_told_twice_nor_counted_by_what_replaces_it(limits: ConnectionLimits) -> None:
    class Busy:
        address, waits_since_s = "a", math.inf

        def give_way(self) -> None:
            raise AssertionError

    told: list[Any] = []
    connections = Connections(limits, lambda: 0.0, told.append)
    first, second, third = Busy(), Busy(), Busy()
    assert not connections.admit(first)
    assert connections.admit(second, tell=False)
    connections.replace(second, by=third)
    for each in (second, third):
        connections.remove(each)
    assert (connections.number(), dict(connections._of_address), told) == (1, {"a": 1}, [])
    connections.replace(first, by=third)
    connections.remove(first)
    assert (connections.number(), dict(connections._of_address)) == (1, {"a": 1})
    connections.remove(third)
    assert (connections.number(), dict(connections._of_address)) == (0, {})
    assert connections.admit(second) == ""
