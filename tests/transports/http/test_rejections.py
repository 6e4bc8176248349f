"""After a request was rejected because it would be late, requests with the same head are rejected without parsing their
bodies, for a moment."""

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


def test_a_rejection_does_not_apply_to_a_smaller_body() -> None:
    assert rejection(1.0).holds(bytes(100), 5.0)
    assert rejection(1.0).holds(bytes(101), 5.0)
    assert not rejection(1.0).holds(bytes(99), 5.0)


@pytest.mark.parametrize(("retry_after_s", "until_s"), [(0.005, 5.005), (3.0, 5.02)])
def test_a_rejection_applies_until_its_retry_time_and_20_ms_at_most(retry_after_s: float, until_s: float) -> None:
    assert rejection(retry_after_s).until_s == pytest.approx(until_s)
    assert not rejection(retry_after_s).holds(bytes(100), until_s + 1e-9)


async def rejecting(rejected: bytes = V1, before: bytes = V1) -> World:
    """A world whose first connection has just got a 503: two calls are before its request."""
    world = World(True, admission=True)
    await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)  # it knows what a call takes now
    world.transport.out = b""
    for _ in range(2):
        await send(world, before)
    await world.hear(rejected, 0.0)
    assert [status for status, _, _ in world.replies()] == [503]
    return world


async def send(world: World, message: bytes) -> list[int]:
    """Sends the message on a new connection; the statuses of the replies that come at once."""
    connection, transport = world.connect()
    connection.data_received(message)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [status for status, _, _ in world.replies(transport)]


def malformed(size: int, headers: dict[str, str]) -> bytes:
    return request(body=b"x" * size, headers=headers)


def test_a_request_with_a_rejected_head_is_rejected_without_parsing_its_body() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, malformed(SIZE, TIMEOUT)) == [503]
        told = [(event.code, event.model, event.version, event.signature) for event in world.finished[-2:]]
        assert told == [("503", "m", 1, "serving_default")] * 2

    run_in_fake_time(main())


def test_interrupts_are_moderated_while_requests_are_rejected_by_their_heads() -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    async def main() -> None:
        world = await rejecting()
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        await send(world, V1)
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        await asyncio.sleep(1)
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    run_in_fake_time(main())


def test_a_connection_stays_open_after_a_rejection_unless_the_client_asks_to_close_it() -> None:
    async def main() -> None:
        world = await rejecting()
        connection, transport = world.connect()
        for _ in range(3):
            connection.data_received(V1)
        assert [status for status, _, _ in world.replies(transport)] == [503] * 3
        first, *_ = world.replies(world.transport)
        assert world.replies(transport)[0] == first  # the same bytes as the reply to the request that was parsed
        assert not transport.closed
        await asyncio.sleep(world.connection._limits.keep_alive_s + 1)
        assert transport.closed

        last = request(body=ROWS, headers={**TIMEOUT, "Connection": "close"})
        world = await rejecting(last)
        connection, transport = world.connect()
        connection.data_received(last)
        await asyncio.sleep(0)
        assert [status for status, _, _ in world.replies(transport)] == [503]
        assert transport.closed

    run_in_fake_time(main())


def test_a_rejection_applies_to_later_requests_of_the_same_turn() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)
        clients = [world.connect() for _ in range(4)]
        for number, (connection, _) in enumerate(clients):
            connection.data_received(request(body=ROWS, headers=TIMEOUT) if number < 3 else malformed(SIZE, TIMEOUT))
        await asyncio.sleep(3.5 * COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [200, 200, 503, 503]

    run_in_fake_time(main())


def test_a_request_with_another_head_or_a_smaller_body_is_parsed() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, malformed(SIZE - 1, TIMEOUT)) == [400]  # it may have fewer rows
        assert await send(world, malformed(SIZE, {"X-Request-Timeout-Ms": "2501"})) == [400]
        assert await send(world, malformed(SIZE, {**TIMEOUT, "X-Request-Priority": "1"})) == [400]
        await asyncio.sleep(0.021)
        assert await send(world, malformed(SIZE, TIMEOUT)) == [400]

    run_in_fake_time(main())


def v2(**parameters: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [20, 2], "data": [1.0] * 40}
    return request(INFER, {"inputs": [tensor], "parameters": parameters}, TIMEOUT)


@pytest.mark.parametrize("parameters", [{"priority": 9}, {"timeout": 2_400_000}])
def test_a_body_with_priority_or_timeout_is_parsed_and_its_rejection_is_not_remembered(
    parameters: dict[str, int],
) -> None:
    async def main() -> None:
        world = await rejecting(v2())
        other = b'{"parameters": %s, ' % json.dumps(parameters).encode()
        assert await send(world, request(INFER, other.ljust(1000), TIMEOUT)) == [400]
        assert await send(world, request(INFER, b" " * 1000, TIMEOUT)) == [503]

        world = await rejecting(v2(**parameters), v2())
        assert await send(world, request(INFER, b" " * 1000, TIMEOUT)) == [400]

    run_in_fake_time(main())


def pair(rows: int) -> bytes:
    named = [{"x": [1.0, 2.0], "z": [1.0, 2.0]}] * rows
    return request(body={"signature_name": "pair", "instances": named}, headers=TIMEOUT)


def test_a_body_with_another_signature_is_parsed_and_its_rejection_applies_to_no_other_request() -> None:
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
        assert await send(world, malformed(10_000, TIMEOUT)) == [400]

    run_in_fake_time(main())


def test_a_body_that_names_the_default_signature_is_rejected_like_one_that_names_none() -> None:
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


def test_a_rejection_because_of_a_full_queue_applies_to_no_other_request() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        rows = {"instances": [[1.0, 2.0]] * 1000}
        body = json.dumps(rows).encode()
        assert await send(world, request(body=body)) == []
        assert await send(world, request(body=body)) == [503]
        assert await send(world, malformed(len(body), {})) == [400]

    run_in_fake_time(main())
