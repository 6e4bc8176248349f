"""Clients that are too late: with a head, with a body, or with the next request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from app.transports.http1.arrival_timer import LAST_READ_S
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import (
    CHUNKS,
    COMPUTE_S,
    LIMITS,
    PREDICT,
    ROW,
    World,
    request,
)


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
def test_an_idle_connection_is_closed(path: str) -> None:
    """5 s after its last reply, whatever was asked before; not while a request is read or answered."""

    async def main() -> None:
        world = World(True)
        await world.hear(request(), 4.0, request(path), 4.0)
        late = request()
        await world.hear(late[:20], 20.0)
        assert not world.transport.closed
        await world.hear(late[20:], COMPUTE_S)
        assert len(world.replies()) == 3
        await asyncio.sleep(4.0)
        assert not world.transport.closed
        await asyncio.sleep(6.0)
        assert world.transport.closed

    run_in_fake_time(main())


@pytest.mark.parametrize(("before", "arrives"), [(b"", 20), (b"", -1), (b"x" * 20_000, -200)])
def test_a_connection_whose_request_does_not_arrive_is_closed(before: bytes, arrives: int) -> None:
    """However few bytes arrive now and then: of its head, its body, or a head so long that uvicorn reads it."""

    async def main() -> None:
        world = World(True)
        late = request(headers={"X-Before": before.decode()})[:arrives]
        await world.hear(late[:10], 30.0, late[10:-5], 15.0, late[-5:], 10.0)
        assert not world.transport.closed
        await asyncio.sleep(45.0)
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_connection_without_a_request_is_closed() -> None:
    async def main() -> None:
        world = World(True)
        await asyncio.sleep(59.0)
        assert not world.transport.closed
        await asyncio.sleep(2.0)
        assert world.transport.closed

    run_in_fake_time(main())


def slowly(data: bytes, piece: int, seconds: float = 1.0) -> list[bytes | float]:
    """The data in pieces of so many bytes, each of which takes so many seconds."""
    return [each for at in range(0, len(data), piece) for each in (data[at : at + piece], seconds)]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("bytes_per_s", "seconds"), [(1200, 0), (512, 120), (1, 60)])
def test_a_body_has_a_least_rate(chunked: bool, bytes_per_s: int, seconds: int) -> None:
    """1,024 bytes a second after a minute of grace: at half of that rate it may take two minutes."""

    async def main() -> None:
        world = World(True, limits=replace(LIMITS, min_body_bytes_per_s=1024))
        body = json.dumps(ROW).encode().ljust(180 * 1024)
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
        late = request(body=body, headers=CHUNKS if chunked else {})
        head = late[: -len(body)]
        pieces = slowly(body, bytes_per_s)
        in_time = 2 * (seconds - 2) if seconds else len(pieces)
        await world.hear(head, *pieces[:in_time])
        assert not world.transport.closed
        await world.hear(*pieces[in_time : in_time + 10])
        assert [status for status, _, _ in world.replies()] == [408 if seconds else 504]  # its deadline has passed

    run_in_fake_time(main())


@pytest.mark.parametrize("chunked", [False, True])
def test_bytes_that_came_quickly_earn_no_time_for_later(chunked: bool) -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, min_body_bytes_per_s=1024))
        late = request(body=b"", headers=CHUNKS if chunked else {"Content-Length": "190000"})
        await world.hear(late, (b"2e630\r\n" if chunked else b"") + b" " * 150_000, 0.1, b" ", 58.0)
        assert not world.transport.closed
        await asyncio.sleep(3.0)
        assert [status for status, _, _ in world.replies()] == [408]
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_request_that_waited_in_the_socket_while_the_loop_was_held_up_is_answered() -> None:
    """The loop runs the timer that is due, then it reads."""

    async def main() -> None:
        world = World(True)
        await world.hear(request(), COMPUTE_S, 5.0 + LAST_READ_S / 2, request(), COMPUTE_S)
        assert len(world.replies()) == 2
        await asyncio.sleep(4.9)
        assert not world.transport.closed
        await asyncio.sleep(0.2)
        assert world.transport.closed

    run_in_fake_time(main())
