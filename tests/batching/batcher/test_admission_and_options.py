"""Requests that would be late, and options that change while others wait."""

from __future__ import annotations

import asyncio
from math import sqrt

import pytest

from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey
from app.core.errors import (
    DeadlineExceeded,
    Overloaded,
)
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import (
    batch_function,
)


def test_a_request_that_would_be_late_is_rejected_at_once_with_a_time_to_retry() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(Overloaded, match="has 1000 ms left, and answers take 3173 ms") as rejected:
            await bench.send(1.0, timeout_s=1.0)
        assert bench.now == 1.0
        assert rejected.value.retry_after_s == pytest.approx(3 + 0.1 * sqrt(3) - 0.99)
        in_time = bench.send(1.0, timeout_s=4.0)
        await asyncio.gather(*tasks, in_time)
        assert bench.function.requests_under_way == bench.batcher.queue.rows == 0

    scenario(main)


def test_an_idle_device_takes_whatever_comes_or_it_would_never_learn_better() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=0.5)
        await bench.batcher.drain()

    scenario(main)


def test_without_admission_what_would_be_late_expires() -> None:
    async def main() -> None:
        bench = Bench(admission=False)
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=1.0)
        await asyncio.gather(*tasks)

    scenario(main)


def test_what_is_late_by_a_little_is_rejected_too() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(2)]  # the first is computed, the second waits
        await turns()
        with pytest.raises(Overloaded, match="has 3100 ms left, and answers take 3173 ms"):
            await bench.send(1.0, timeout_s=3.1)
        await asyncio.gather(*tasks)

    scenario(main)


def test_options_are_changed_from_the_next_batch_on_for_one_model() -> None:
    async def main() -> None:
        bench = Bench()
        tasks = [bench.send(float(value)) for value in range(8)]
        await turns()
        bench.batcher.tune("m", SelfTuning(BatchingOptions(max_batch_size=2)))
        bench.batcher.tune("another", SelfTuning(BatchingOptions(max_batch_size=1)))
        await asyncio.gather(*tasks)
        assert [len(call) for call in bench.model.calls] == [4, 2, 2]
        bulk = await bench.send(1.0, rows=5)  # larger than a batch now
        assert bulk.outputs["y"].shape == (5, 2)
        assert [len(call) for call in bench.model.calls[3:]] == [2, 2, 1]

    scenario(main)


def test_options_without_a_weight_give_none() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher.tune("m", SelfTuning())
        assert not bench.batcher._scheduler.fair_queueing
        bench.batcher.tune("m", SelfTuning(), 2.0)
        assert bench.batcher._scheduler.fair_queueing

    scenario(main)


def test_a_shorter_delay_holds_for_waiting_requests() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        task = bench.send(1.0)
        await asyncio.sleep(1.0)
        bench.batcher.tune("m", SelfTuning())
        await task
        assert bench.now == 2.0

    scenario(main)


def test_a_shorter_delay_of_one_model_holds_although_another_has_waited_for_longer() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        other = bench.send(1.0, key=LaneKey("n", 1, "f"))
        await asyncio.sleep(1.0)
        task = bench.send(2.0)
        await asyncio.sleep(1.0)
        bench.batcher.tune("m", SelfTuning())
        await task
        assert bench.now == 3.0
        await other
        assert bench.now == 11.0

    scenario(main)


def test_room_is_kept_for_models_by_their_weight_while_they_are_served() -> None:
    async def main() -> None:
        bench = Bench(max_rows=40)
        for model in "mn":
            bench.batcher.add_version(model)
        bench.batcher.tune("n", SelfTuning(), 3.0)
        blocker, first, second = bench.send(0.0), bench.send(1.0), bench.send(1.0, rows=25)
        with pytest.raises(Overloaded, match="2 of 40 rows wait, 15 are kept for other models, 25 more do not fit"):
            await second
        await asyncio.gather(blocker, first)
        bench.batcher.remove_version("n")
        blocker, first, second = bench.send(0.0), bench.send(1.0), bench.send(1.0, rows=25)
        assert (await second).outputs["y"].shape == (25, 2)
        await asyncio.gather(blocker, first)

    scenario(main)


def test_the_slowest_call_is_remembered_and_fades() -> None:
    async def main() -> None:
        bench = Bench()
        bench.devices[0].seconds = 4.0
        await bench.send(1.0)
        assert bench.batcher._admission.slowest_call_s == pytest.approx(4.0)
        bench.devices[0].seconds = 1.0
        for _ in range(69):
            await bench.send(1.0)
        assert bench.batcher._admission.slowest_call_s == pytest.approx(2.0, rel=0.01)

    scenario(main)


def test_a_call_that_begins_counts_as_what_it_is_expected_to_take() -> None:
    async def main() -> None:
        bench = Bench()
        bench.function = batch_function(bench.model, initial_estimates={1: 3.0})
        call = bench.send(1.0)
        await turns()
        assert bench.batcher._admission.slowest_call_s == 3.0
        await call

    scenario(main)
