"""What a request leaves is freed with its reply. The collector stops the event loop for as long as it finds much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from app.core.errors import InferenceFailed, InvalidRequest, ServingError
from tests.support.fakes import run_in_fake_time
from tests.support.garbage import garbage
from tests.transports.http1.connection_world import COMPUTE_S, World, request


def usual(_: World) -> None: ...


def failing(kind: type[ServingError]) -> Callable[[World], None]:
    def fail(world: World) -> None:
        def run(*_: object) -> None:
            raise kind("no")

        world.loaded.run = run  # type: ignore[assignment] - in place of the model's

    return fail


#: The status of a request, what the world is, and the milliseconds that the request has.
CASES = {
    "answered": (200, usual, 30_000),
    "late": (503, usual, 1_200),
    "malformed": (400, usual, -1),
    "rejected by the model": (400, failing(InvalidRequest), 30_000),
    "failed": (500, failing(InferenceFailed), 30_000),
}


@pytest.mark.parametrize("callers", ["", "header:X-Caller"])
@pytest.mark.parametrize("case", CASES)
def test_an_answered_request_leaves_nothing_for_the_collector(case: str, callers: str) -> None:
    status, change, timeout_ms = CASES[case]

    async def answers(world: World, timeout_ms: int) -> list[int]:
        clients = [world.connect() for _ in range(4)]
        for number, (connection, _) in enumerate(clients):
            headers = {"X-Caller": str(number), "X-Request-Timeout-Ms": str(timeout_ms)}
            connection.data_received(request(headers=headers))
            await asyncio.sleep(COMPUTE_S / 10)
        await asyncio.sleep(20 * COMPUTE_S)
        statuses = [world.replies(transport)[0][0] for _, transport in clients]
        for connection, transport in clients:
            connection.connection_lost(None)
            transport._protocol = cast("asyncio.Protocol", None)  # as transports do
        return statuses

    async def main() -> None:
        world = World(True, admission=True, callers=callers)
        change(world)
        await answers(world, 30_000)
        with garbage() as left:
            statuses = await answers(world, timeout_ms)
        assert status in statuses
        assert not left

    run_in_fake_time(main())
