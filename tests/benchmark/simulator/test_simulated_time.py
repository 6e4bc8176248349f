"""Simulated time passes for timers, not for threads."""

import asyncio
import threading
from math import ulp

from bench.simulator.simulated_time import fake_time, run_in_fake_time


def test_no_timer_is_due_before_a_thread_has_answered() -> None:
    async def main() -> None:
        began_s, gate = fake_time(), threading.Event()
        loop = asyncio.get_running_loop()
        work = asyncio.create_task(asyncio.to_thread(sum, range(300_000)))
        loop.call_later(5.0, gate.set)
        assert await work
        assert fake_time() == began_s
        assert not gate.is_set()

    run_in_fake_time(main())


def test_a_thread_that_hangs_stops_no_timer() -> None:
    async def main() -> None:
        gate = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(gate.wait))
        await asyncio.sleep(5.0)
        gate.set()
        assert await work

    run_in_fake_time(main())


def test_no_timer_fires_before_its_time() -> None:
    """Not by the least that a number can tell: who looks at the clock then would wait for the rest for ever."""

    async def main() -> list[float]:
        loop, fired = asyncio.get_running_loop(), list[float]()
        at_s = fake_time() + ulp(fake_time())
        loop.call_at(at_s, lambda: fired.append(fake_time() - at_s))
        await asyncio.sleep(1.0)
        return fired

    assert run_in_fake_time(main()) == [0.0]
