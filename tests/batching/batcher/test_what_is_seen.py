"""What a page of metrics asks a batcher for."""

from __future__ import annotations

import asyncio

import pytest

from tests.batching.batcher.batcher_bench import QUICK, Bench, scenario, turns
from tests.support.fakes import KEY, batch_function

MODEL = KEY.model


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
