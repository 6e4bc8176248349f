"""What a page of metrics asks a batcher for, and what it tells of requests that it refuses."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.core.errors import DeadlineExceeded, Overloaded, ShuttingDown
from app.core.events import RequestsRefused
from tests.batching.batcher.batcher_bench import QUICK, Bench, scenario, turns
from tests.support.fakes import KEY, batch_function

MODEL = KEY.model


def refused(bench: Bench) -> Counter[str]:
    causes = Counter[str]()
    for event in bench.events:
        if isinstance(event, RequestsRefused):
            causes[event.cause] += event.number
    return causes


def test_a_device_is_busy_from_the_start_of_a_call_and_its_seconds_never_fall() -> None:
    async def main() -> None:
        bench = Bench(devices=2)
        seen = []
        task = bench.send(1.0)
        await turns()
        assert bench.batcher.slots() == {"fake:0": (2, 1)}
        for _ in range(5):
            seen.append(bench.batcher.busy_s()["fake:0", MODEL])
            await asyncio.sleep(0.4)
        await task
        assert seen == pytest.approx([0.0, 0.4, 0.8, 1.0, 1.0])
        assert bench.batcher.slots() == {"fake:0": (2, 2)}

    scenario(main)


def test_calls_on_the_event_loop_keep_the_first_device_busy_too() -> None:
    async def main() -> None:
        bench = Bench(inline_s=0.01)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        await bench.send(1.0)
        assert set(bench.batcher.busy_s()) == {("fake:0", MODEL)}

    scenario(main)


def test_the_busy_seconds_of_models_that_come_and_go_take_no_memory() -> None:
    async def main() -> None:
        bench = Bench()
        busy = bench.batcher.busy_s
        for _ in range(2):
            bench.batcher.add_version(MODEL)
        await bench.send(1.0)
        for number in range(63):
            bench.batcher.remove_version(f"other {number}")
        for _ in range(2):  # that of the first is followed by another one
            bench.batcher.remove_version(MODEL)
        assert busy() == {("fake:0", MODEL): 1.0}, "one of the last 64 that went"
        bench.batcher.add_version(MODEL)
        for number in range(64):
            bench.batcher.remove_version(f"more {number}")
        assert busy() == {("fake:0", MODEL): 1.0}, "it is served again"
        bench.batcher.remove_version(MODEL)
        for number in range(63):
            bench.batcher.remove_version(f"new {number}")
        assert busy() == {("fake:0", MODEL): 1.0}
        bench.batcher.remove_version("one more")
        assert busy() == {}

    scenario(main)


def test_rows_that_wait_are_told_by_model_with_the_age_of_the_oldest() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        tasks = [bench.send(1.0)]
        await turns()
        await asyncio.sleep(0.25)
        tasks += [bench.send(2.0), bench.send(3.0)]
        await asyncio.sleep(0.5)
        assert bench.batcher.waiting() == {MODEL: (2, pytest.approx(0.5))}
        await asyncio.gather(*tasks)
        assert bench.batcher.waiting() == {}

    scenario(main)


def test_each_request_that_is_refused_is_told_with_its_cause() -> None:
    async def main() -> None:
        bench = Bench(max_rows=2, largest=1)
        await bench.send(1.0)
        tasks = [bench.send(1.0)]
        await turns()
        tasks += [bench.send(1.0) for _ in range(2)]
        await turns()
        for cause, timeout_s, error in (("queue_full", 100.0, Overloaded), ("expired", -1.0, DeadlineExceeded)):
            with pytest.raises(error):
                await bench.send(1.0, timeout_s=timeout_s)
            assert refused(bench)[cause] == 1
        await asyncio.gather(*tasks)
        bench.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            await bench.send(1.0)
        assert refused(bench) == {"queue_full": 1, "expired": 1, "shutting_down": 1}

    scenario(main)


def test_requests_that_would_be_late_and_those_that_were_are_told_apart() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(Overloaded):
            await bench.send(1.0, timeout_s=1.0)
        assert refused(bench) == {"late": 1}
        await asyncio.gather(*tasks)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=0.5)
        assert refused(bench) == {"late": 1, "expired": 1}
        await bench.batcher.drain()

    scenario(main)
