from __future__ import annotations

import asyncio

import pytest

from app.transports.waiting import wait_while
from tests.support.fakes import run_in_fake_time


@pytest.mark.parametrize(("looks", "waited_s"), [([True, True, False], 0.5), ([False], 0.0), ([True] * 9, 1.0)])
def test_it_waits_for_the_end_of_what_is_busy_or_of_its_time(looks: list[bool], waited_s: float) -> None:
    async def scenario() -> float:
        clock, found = asyncio.get_running_loop().time, iter(looks)
        began_s = clock()
        await wait_while(lambda: next(found), began_s + 1, 0.25)
        return clock() - began_s

    assert run_in_fake_time(scenario()) == pytest.approx(waited_s)
