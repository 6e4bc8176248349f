"""What connections hold of the memory budget, what is rejected when it is full, and that all of it comes back."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.core.events import RequestFinished
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.memory.body_room import BodyRoom
from app.transports.memory.client_memory import ClientMemory
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, ROW, World, request

LIMITS = ConnectionLimits()
BODY = len(json.dumps(ROW))
CHUNKED = {"Content-Length": "", "Transfer-Encoding": "chunked"}
IDENTITY = {"Content-Encoding": "identity"}  # by ASGI


def limited(limit: int) -> tuple[World, ClientMemory]:
    """A world with a budget of so many bytes, and a connection that knows it."""
    world = World(True)
    memory = world.connection._fast_path.memory = ClientMemory(limit)
    world.connection, world.transport = world.connect()
    return world, memory


@pytest.mark.parametrize("headers", [{}, IDENTITY])
def test_a_body_that_has_no_room_is_rejected_before_it_is_read(headers: dict[str, str]) -> None:
    async def main() -> None:
        world, memory = limited(3 * BODY)
        first, transport = world.connect()
        first.data_received(request(headers=headers)[:-5])
        assert memory.bodies == BODY
        large = request(body=b" " * (2 * BODY + 1), headers=headers)
        await world.hear(large[: -2 * BODY], 0.0)
        ((status, answered, body),) = world.replies()
        assert (status, answered["retry-after"], answered["connection"]) == (503, "1", "close")
        assert f"Bodies under way and unread replies take {BODY} of {3 * BODY} bytes" in body.decode()
        first.data_received(request(headers=headers)[-5:])
        await asyncio.sleep(3 * COMPUTE_S)
        assert [status for status, *_ in world.replies(transport)] == [200]
        assert memory.bodies == 0

    run_in_fake_time(main())


def test_bodies_that_never_end_keep_no_request_out_that_comes_whole() -> None:
    async def main() -> None:
        world, memory = limited(4 * BODY)
        unending = [world.connect() for _ in range(5)]
        for connection, _ in unending:
            connection.data_received(request()[:-5])
        assert memory.bodies == 3 * BODY
        await world.hear(request(), 3 * COMPUTE_S)
        assert [status for status, *_ in world.replies()] == [200]

    run_in_fake_time(main())


@pytest.mark.parametrize("known", [False, True])
def test_the_rest_of_a_rejected_body_is_not_read_as_a_request(known: bool) -> None:
    """Even if it comes before the event loop goes on, with a head that was parsed before or not."""

    async def main() -> None:
        world, memory = limited(BODY)
        if known:
            await world.hear(request(), 3 * COMPUTE_S)
            world.transport.out = b""
            world.loaded.function.calls.clear()
        memory.take_body(1)
        await world.hear(request()[:-5], request(), 3 * COMPUTE_S)
        assert [status for status, *_ in world.replies()] == [503]
        assert not world.loaded.function.calls

    run_in_fake_time(main())


def test_a_rejection_is_counted() -> None:
    async def main() -> None:
        world, memory = limited(BODY)
        memory.take_body(1)
        await world.hear(request()[:-5], 0.1)
        assert [event.code for event in world.events if isinstance(event, RequestFinished)] == ["503"]

    run_in_fake_time(main())


def test_a_body_of_any_size_is_read_if_nothing_is_held() -> None:
    async def main() -> None:
        world, memory = limited(1)
        await world.hear(request()[:-5], request()[-5:], 3 * COMPUTE_S)
        assert [status for status, *_ in world.replies()] == [200]
        assert (memory.bodies, memory.full) == (0, False)

    run_in_fake_time(main())


def test_a_body_of_unknown_length_counts_as_it_grows() -> None:
    async def main() -> None:
        world, memory = limited(40)
        memory.take_body(20)
        head, _, _ = request(body=b"", headers=CHUNKED).partition(b"\r\n\r\n")
        await world.hear(head + b"\r\n\r\n", b'5\r\n{"ins\r\n', 0.1)
        assert memory.bodies == 30
        await world.hear(b'13\r\ntances": [[1.0, 2.0\r\n', 0.1)
        assert [status for status, *_ in world.replies()] == [503]
        assert memory.bodies == 20

    run_in_fake_time(main())


def test_a_body_counts_as_no_more_than_is_held_of_it_however_long_it_is() -> None:
    """A stream of 1 TB kept everybody else out, and held no more than a few lines."""

    async def main() -> None:
        world, memory = limited(3 * LIMITS.max_body_bytes)
        head, _, _ = request(body=b"", headers={"Content-Length": str(10**12)} | IDENTITY).partition(b"\r\n\r\n")
        world.connection.data_received(head + b"\r\n\r\n")
        assert memory.bodies == LIMITS.max_body_bytes
        other, transport = world.connect()
        other.data_received(request()[:-5])
        assert memory.bodies == LIMITS.max_body_bytes + BODY
        other.data_received(request()[-5:])
        await asyncio.sleep(3 * COMPUTE_S)
        assert [status for status, *_ in world.replies(transport)] == [200]
        world.transport.close()
        await asyncio.sleep(0.1)
        assert memory.bodies == 0

    run_in_fake_time(main())


def test_a_probe_is_answered_while_the_budget_is_full() -> None:
    async def main() -> None:
        world, memory = limited(1000)
        memory.change_unread(1001)
        assert memory.full
        await world.hear(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", 0.1)
        assert [status for status, *_ in world.replies()] == [200]
        for headers in ({}, IDENTITY):
            world.connection, world.transport = world.connect()
            await world.hear(request(headers=headers), 0.1)
            assert [status for status, *_ in world.replies()] == [503]

    run_in_fake_time(main())


@pytest.mark.parametrize("headers", [{}, IDENTITY])
def test_a_client_that_leaves_gives_back_what_it_held(headers: dict[str, str]) -> None:
    async def main() -> None:
        world, memory = limited(10 * BODY)
        await world.hear(request(headers=headers)[:-5], 0.1)
        world.connection.pause_writing()
        assert memory.bodies == BODY
        world.transport.close()
        await asyncio.sleep(0.1)
        assert (memory.bodies, memory.unread, memory.full) == (0, 0, False)

    run_in_fake_time(main())


def test_while_replies_that_nobody_reads_fill_the_budget_every_request_is_rejected() -> None:
    async def main() -> None:
        world, memory = limited(1000)
        slow, transport = world.connect()
        transport.unread = 1000
        slow.pause_writing()
        assert memory.full
        await world.hear(request(), 0.1)
        assert [status for status, *_ in world.replies()] == [503]
        slow.resume_writing()
        world.connection, world.transport = world.connect()
        await world.hear(request(), 3 * COMPUTE_S)
        assert [status for status, *_ in world.replies()] == [200]

    run_in_fake_time(main())


def test_a_reply_that_is_not_read_is_cut_and_one_that_is_read_slowly_is_not() -> None:
    async def main() -> None:
        world, memory = limited(10**9)
        least = int(LIMITS.arrival_timeout_s * LIMITS.min_body_bytes_per_s)
        slow, silent = world.connect(), world.connect()
        for connection, _ in (slow, silent):
            connection._keep_alive_s = 1e6
            connection.data_received(request())
        await asyncio.sleep(3 * COMPUTE_S)
        for connection, transport in (slow, silent):
            transport.unread = 3 * least
            connection.pause_writing()
        assert memory.unread == 6 * least
        slow[1].unread = 2 * least
        await asyncio.sleep(LIMITS.arrival_timeout_s + 1)
        assert (slow[1].aborted, silent[1].aborted) == (False, True)
        assert memory.unread == 2 * least
        slow[1].unread = 0
        slow[0].resume_writing()
        await asyncio.sleep(10 * LIMITS.arrival_timeout_s)
        assert not slow[1].aborted
        assert memory.unread == 0

    run_in_fake_time(main())


def test_what_is_read_at_the_least_rate_is_not_cut_while_this_kernel_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps 4 MB, and takes more only when 1.7 MB have left: every 104 s at that rate, as was measured."""
    kept, step = 4 * 10**6, 1_700_000
    monkeypatch.setattr("app.transports.http1.held_memory.untaken", lambda transport: transport.unread + kept)

    async def main() -> None:
        nonlocal kept
        world, _ = limited(10**9)
        world.connection._keep_alive_s = 1e6
        world.connection.data_received(request())
        await asyncio.sleep(3 * COMPUTE_S)
        world.transport.unread = 30 * step
        world.connection.pause_writing()
        for _ in range(2000):
            await asyncio.sleep(1.0)
            kept -= LIMITS.min_body_bytes_per_s
            if kept < 4 * 10**6 - step:
                kept += step
                world.transport.unread -= step
        assert not world.transport.aborted
        assert world.transport.unread < 15 * step
        await asyncio.sleep(2 * LIMITS.arrival_timeout_s + 2)
        assert world.transport.aborted

    run_in_fake_time(main())


def test_it_tells_what_it_holds() -> None:
    async def main() -> None:
        world, memory = limited(1000)
        await world.hear(request()[:-5], 0.1)
        assert repr(world.connection._memory) == f"<HeldMemory {BODY} bytes of a body, 0 bytes unread>"
        assert repr(memory) == f"<ClientMemory {BODY} + 0 of 1,000 bytes>"

    run_in_fake_time(main())


# --- what a body may become, in a container ---

#: The room that a container with so much left has for bodies is 1.5 MB.
LEFT = 42 * 2**20


@pytest.mark.parametrize("headers", [{}, IDENTITY, CHUNKED])
def test_in_a_container_a_body_that_may_become_too_much_is_rejected_for_good(headers: dict[str, str]) -> None:
    async def main() -> None:
        world, memory = limited(10**9)
        memory.room = BodyRoom(lambda: LEFT)
        body = b" " * 120_000
        head = request(body=body, headers=headers)[: -len(body)]
        await world.hear(head, b"%x\r\n" % len(body) if headers is CHUNKED else b"", 0.0, body[:-5], 0.0)
        ((status, answered, text),) = world.replies()
        assert (status, answered["connection"]) == (413, "close")
        assert b"leaves 2 MB for that: a body of 0.1 MB of JSON" in text
        assert (memory.bodies, memory.room.reserved) == (0, 0)

    run_in_fake_time(main())


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": ""}])
def test_and_one_that_may_not_become_so_much_now_is_rejected_for_now(headers: dict[str, str]) -> None:
    async def main() -> None:
        world, memory = limited(10**9)
        memory.room = BodyRoom(lambda: LEFT)
        first, transport = world.connect()
        body = b" " * (70_000 - BODY) + json.dumps(ROW).encode()
        first.data_received(request(body=body, headers=headers)[:-5])
        assert memory.room.reserved == 16 * 70_000
        await world.hear(request(body=body, headers=headers)[:-5], 0.0)
        ((status, answered, text),) = world.replies()
        assert (status, answered["retry-after"]) == (503, "1")
        assert b"may take 1 of the 2 MB of memory" in text
        first.data_received(body[-5:])
        await asyncio.sleep(3 * COMPUTE_S)
        assert [status for status, *_ in world.replies(transport)] == [200]
        assert (memory.bodies, memory.room.reserved) == (0, 0)

    run_in_fake_time(main())
