import asyncio
import time

from app.instrumentation.loop_lag import LoopLag
from tests.support.waiting import HANG_S


def test_a_loop_that_was_held_up_is_seen_with_the_time_that_it_was_late() -> None:
    async def scenario() -> float:
        lag = LoopLag()
        lag.start()
        time.sleep(0.5)  # noqa: ASYNC251 - what holds up the loop
        async with asyncio.timeout(HANG_S):
            while not lag.seconds.count:  # noqa: ASYNC110 - a count is no event
                await asyncio.sleep(0)
        lag.stop()
        return lag.seconds.total

    assert asyncio.run(scenario()) >= 0.24  # due after 0.25 s, and held up for 0.5 s
