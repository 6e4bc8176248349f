"""Of requests with one head, who is rejected for being late stands for those after it, for a moment."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from app.core.errors import WouldBeLate
from app.transports.http.rejections import Rejection
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.test_connection import COMPUTE_S, INFER, World, request

TIMEOUT = {"X-Request-Timeout-Ms": "2500"}
ROWS = {"instances": [[1.0, 2.0]] * 20}
SIZE = len(json.dumps(ROWS))
V1 = request(body=ROWS, headers=TIMEOUT)


def rejection(retry_after_s: float) -> Rejection:
    error = WouldBeLate("late")
    error.retry_after_s = retry_after_s
    return Rejection.of(error, 100, 5.0, ("m", 1, "f"))


def test_a_refusal_holds_for_no_smaller_body() -> None:
    assert rejection(1.0).holds(bytes(100), 5.0)
    assert rejection(1.0).holds(bytes(101), 5.0)
    assert not rejection(1.0).holds(bytes(99), 5.0)


@pytest.mark.parametrize(("retry_after_s", "until_s"), [(0.005, 5.005), (3.0, 5.02)])
def test_a_refusal_holds_until_a_retry_is_worthwhile_and_never_for_long(retry_after_s: float, until_s: float) -> None:
    assert rejection(retry_after_s).until_s == pytest.approx(until_s)
    assert not rejection(retry_after_s).holds(bytes(100), until_s + 1e-9)


async def rejecting(rejected: bytes = V1, before: bytes = V1) -> World:
    """Its first connection has just been rejected: two calls of a second are before it."""
    world = World(True, admission=True)
    await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)  # it knows what a call takes now
    world.transport.out = b""
    for _ in range(2):
        await send(world, before)
    await world.hear(rejected, 0.0)
    assert [status for status, _, _ in world.replies()] == [503]
    return world


async def send(world: World, message: bytes) -> list[int]:
    """On a connection of its own; what it was answered at once."""
    connection, transport = world.connect()
    connection.data_received(message)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [status for status, _, _ in world.replies(transport)]


def unreadable(size: int, headers: dict[str, str]) -> bytes:
    return request(body=b"x" * size, headers=headers)


def test_what_is_like_a_refused_request_is_not_even_read() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, unreadable(SIZE, TIMEOUT)) == [503]
        told = [(event.code, event.model, event.version, event.signature) for event in world.finished[-2:]]
        assert told == [("503", "m", 1, "serving_default")] * 2

    run_in_fake_time(main())


def test_while_requests_are_refused_unread_they_are_read_in_gusts() -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    async def main() -> None:
        world = await rejecting()
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        await send(world, V1)
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        await asyncio.sleep(1)
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    run_in_fake_time(main())


def test_a_refused_connection_goes_on_and_one_that_wants_no_more_is_closed() -> None:
    async def main() -> None:
        world = await rejecting()
        connection, transport = world.connect()
        for _ in range(3):
            connection.data_received(V1)
        assert [status for status, _, _ in world.replies(transport)] == [503] * 3
        first, *_ = world.replies(world.transport)
        assert world.replies(transport)[0] == first  # to the byte what the one that was read was told
        assert not transport.closed
        await asyncio.sleep(world.connection._server.keep_alive_s + 1)
        assert transport.closed

        last = request(body=ROWS, headers={**TIMEOUT, "Connection": "close"})
        world = await rejecting(last)
        connection, transport = world.connect()
        connection.data_received(last)
        await asyncio.sleep(0)
        assert [status for status, _, _ in world.replies(transport)] == [503]
        assert transport.closed

    run_in_fake_time(main())


def test_many_of_one_turn_are_refused_for_the_sake_of_the_first() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)
        clients = [world.connect() for _ in range(4)]
        for number, (connection, _) in enumerate(clients):
            connection.data_received(request(body=ROWS, headers=TIMEOUT) if number < 3 else unreadable(SIZE, TIMEOUT))
        await asyncio.sleep(3.5 * COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [200, 200, 503, 503]

    run_in_fake_time(main())


def test_what_is_unlike_it_is_read() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, unreadable(SIZE - 1, TIMEOUT)) == [400]  # it may have fewer rows
        assert await send(world, unreadable(SIZE, {"X-Request-Timeout-Ms": "2501"})) == [400]
        assert await send(world, unreadable(SIZE, {**TIMEOUT, "X-Request-Priority": "1"})) == [400]
        await asyncio.sleep(0.021)
        assert await send(world, unreadable(SIZE, TIMEOUT)) == [400]

    run_in_fake_time(main())


def v2(**parameters: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [20, 2], "data": [1.0] * 40}
    return request(INFER, {"inputs": [tensor], "parameters": parameters}, TIMEOUT)


@pytest.mark.parametrize("urgency", [{"priority": 9}, {"timeout": 2_400_000}])
def test_who_says_in_the_body_how_urgent_it_is_is_read_and_stands_for_nobody(urgency: dict[str, int]) -> None:
    async def main() -> None:
        world = await rejecting(v2())
        other = b'{"parameters": %s, ' % json.dumps(urgency).encode()
        assert await send(world, request(INFER, other.ljust(1000), TIMEOUT)) == [400]
        assert await send(world, request(INFER, b" " * 1000, TIMEOUT)) == [503]

        world = await rejecting(v2(**urgency), v2())
        assert await send(world, request(INFER, b" " * 1000, TIMEOUT)) == [400]

    run_in_fake_time(main())


def pair(rows: int) -> bytes:
    named = [{"x": [1.0, 2.0], "z": [1.0, 2.0]}] * rows
    return request(body={"signature_name": "pair", "instances": named}, headers=TIMEOUT)


def test_who_names_another_signature_is_read_and_stands_for_nobody() -> None:
    async def main() -> None:
        world = await rejecting()
        other = b'{"signature_name": "pair", '
        assert await send(world, request(body=other.ljust(SIZE), headers=TIMEOUT)) == [400]
        assert await send(world, request(body=b"\xae" + other.replace(b'"', b"").ljust(SIZE), headers=TIMEOUT)) == [400]

        world = World(True, admission=True)
        for first in (pair(1), request(headers=TIMEOUT)):
            await world.hear(first, 3.5 * COMPUTE_S)
        for _ in range(2):
            await send(world, pair(20))
        assert await send(world, pair(20)) == [503]
        assert await send(world, unreadable(10_000, TIMEOUT)) == [400]

    run_in_fake_time(main())


def test_who_names_the_usual_signature_is_refused_unread_as_those_who_name_none() -> None:
    async def main() -> None:
        world = await rejecting()
        for named in (b'{"signature_name": "serving_default", ', b'{"signature_name":\n"serving_default", '):
            assert await send(world, request(body=named.ljust(SIZE), headers=TIMEOUT)) == [503]
        for other in (
            b'{"signature_name": "serving_default", "signature_name": "pair", ',
            b'{"signature_name": "serving_default_2", ',
            b'{"x": "\\"signature_name\\": \\"serving_default\\""',
        ):
            assert await send(world, request(body=other.ljust(SIZE), headers=TIMEOUT)) == [400]

    run_in_fake_time(main())


def test_a_full_queue_is_no_reason_to_refuse_the_next_unread() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        rows = {"instances": [[1.0, 2.0]] * 1000}
        body = json.dumps(rows).encode()
        assert await send(world, request(body=body)) == []
        assert await send(world, request(body=body)) == [503]
        assert await send(world, unreadable(len(body), {})) == [400]

    run_in_fake_time(main())
