"""A server that is about to drain: its connections end where no client can have sent a request meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from app.access.access import Access
from app.access.access_file import AccessFile, digest_of
from app.access.rules import Permission, Principal, Rules
from app.transports.http.replies import CLOSE
from tests.support.fakes import run_in_fake_time
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import COMPUTE_S, ROW, World, request

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
KEPT = {"Connection": "keep-alive"}

WAYS = {
    "fast path": request(),
    "error": request(body=b"{"),
    "by ASGI": request(body=gzip.compress(json.dumps(ROW).encode()), headers={"Content-Encoding": "gzip"}),
    "HTTP/1.0": request(version="1.0", headers=KEPT),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("under_way", [False, True])
def test_the_next_reply_says_that_the_connection_closes(way: str, under_way: bool) -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request(headers=KEPT), 2 * COMPUTE_S)
        if under_way:
            await world.hear(WAYS[way], COMPUTE_S / 2)
            world.connection.leave()
        else:
            world.connection.leave()
            assert not world.transport.closed
            await world.hear(WAYS[way])
        await asyncio.sleep(2 * COMPUTE_S)
        before, last = world.replies()
        assert before[1].get("connection") != "close"
        assert last[0] == (400 if way == "error" else 200)
        if not (under_way and way == "error"):  # that was answered at once, before
            assert last[1]["connection"] == "close"
            assert world.transport.closed

    run_in_fake_time(main())


def test_requests_that_came_together_are_answered_and_the_last_reply_says_so() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(3 * request(), COMPUTE_S / 2)
        world.connection.leave()
        await asyncio.sleep(4 * COMPUTE_S)
        replies = world.replies()
        assert [status for status, *_ in replies] == [200, 200, 200]
        assert [headers.get("connection") for _, headers, _ in replies] == [None, None, "close"]
        assert world.transport.closed

    run_in_fake_time(main())


class Streaming(World):
    """Its application sends the head of a response, and the body when it may."""

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"ok"})


def test_a_response_whose_head_had_left_does_not_end_the_connection() -> None:
    """Its client was not told, and may send the next request just now."""

    async def main() -> None:
        world = Streaming(True)
        world.may_end = asyncio.Event()
        await world.hear(request("/", b"", {"Content-Length": ""}, "GET"), 0.1)
        world.connection.leave()
        world.may_end.set()
        await asyncio.sleep(0.1)
        assert [headers.get("connection") for _, headers, _ in world.replies()] == [None]
        assert not world.transport.closed
        await world.hear(request(), 2 * COMPUTE_S)
        assert world.replies()[1][1]["connection"] == "close"
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_rejection_that_needs_no_parsing_says_so_too() -> None:
    late = {"X-Request-Timeout-Ms": "10"}

    async def main() -> None:
        world = World(True, admission=True, calls_s=COMPUTE_S)
        other, _ = world.connect()
        other.data_received(request())
        await asyncio.sleep(0.001)
        await world.hear(request(headers=late), 0.001)
        world.connection.leave()
        await world.hear(request(headers=late), 0.001)
        before, last = world.replies()
        assert (before[0], last[0]) == (503, 503)
        assert (before[1].get("connection"), last[1]["connection"]) == (None, "close")

    run_in_fake_time(main())


def test_a_rejection_that_needs_no_parsing_counts_for_its_caller_who_may_be_denied() -> None:
    late = {"X-Request-Timeout-Ms": "10", "Authorization": "Bearer k"}
    principal = Principal("a", Rules(("*",), frozenset({Permission.INFER})))

    async def main() -> None:
        access = Access(AccessFile({digest_of(b"k"): principal}))
        world = World(True, admission=True, calls_s=COMPUTE_S, access=access)
        other, _ = world.connect()
        other.data_received(request(headers=late | {"X-Request-Timeout-Ms": ""}))
        await asyncio.sleep(0.001)
        await world.hear(request(headers=late), 0.001)
        access.change(AccessFile({}))
        await world.hear(request(headers=late), 0.001)
        assert [status for status, *_ in world.replies()] == [503, 401]

    run_in_fake_time(main())


def test_a_new_connection_gets_one_reply() -> None:
    async def main() -> None:
        world = World(True)
        world.connection._fast_path.leaving = True
        connection, transport = world.connect()
        connection.data_received(request())
        await asyncio.sleep(2 * COMPUTE_S)
        ((status, headers, _),) = world.replies(transport)
        assert (status, headers["connection"]) == (200, CLOSE[1].decode())
        assert transport.closed

    run_in_fake_time(main())


def connected(loop: Any, scenario: Callable[[World, socket.socket], Awaitable[None]]) -> None:
    """Runs a client that has had one reply over a real connection."""

    async def main() -> None:
        world = World(True)
        world.device.seconds = 0.0
        server = await asyncio.get_running_loop().create_server(world._connect, "127.0.0.1", 0)
        async with server:
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(client, request())
                assert b" 200 " in await asyncio.get_running_loop().sock_recv(client, 65536)
                await scenario(world, client)
        for connection in list(world.state.connections):
            connection.transport.abort()
        await until(lambda: not world.state.connections)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def served_connection(world: World) -> Any:
    (connection,) = (each for each in world.state.connections if each is not world.connection)
    return connection


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_has_arrived_unseen_is_answered(loop: Any) -> None:
    async def scenario(world: World, client: socket.socket) -> None:
        connection = served_connection(world)
        client.send(request())  # the event loop has no turn in between
        connection.leave()
        connection.close_if_idle()
        reply = await asyncio.get_running_loop().sock_recv(client, 65536)
        assert b" 200 " in reply
        assert b"connection: close" in reply

    connected(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_sends_as_its_idle_connection_ends_finds_the_end_and_no_reset(loop: Any) -> None:
    async def scenario(world: World, client: socket.socket) -> None:
        served_connection(world).close_if_idle()
        client.send(request())
        assert await asyncio.get_running_loop().sock_recv(client, 65536) == b""

    connected(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_has_been_silent_for_a_shorter_time_is_not_ended(loop: Any) -> None:
    """It may have connected just now, and be about to send its request."""

    async def scenario(world: World, client: socket.socket) -> None:
        served_connection(world).close_if_idle(HANG_S)
        client.send(request())
        assert b" 200 " in await asyncio.get_running_loop().sock_recv(client, 65536)

    connected(loop, scenario)
