"""Options that change while requests wait."""

from __future__ import annotations

import asyncio

import pytest

from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey
from app.core.errors import (
    Overloaded,
)
from tests.batching.batcher.batcher_bench import Bench, scenario, turns


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
        assert not bench.batcher.state.scheduler.fair_queueing.weights
        bench.batcher.tune("m", SelfTuning(), 2.0)
        assert bench.batcher.state.scheduler.fair_queueing.weights

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
        blocker, first, second = bench.send(0.0), bench.send(1.0, rows=13), bench.send(1.0, rows=25)
        with pytest.raises(Overloaded, match="14 of 40 rows wait, 15 are kept for other models, 25 more do not fit"):
            await second
        await asyncio.gather(blocker, first)
        bench.batcher.remove_version("n")
        blocker, first, second = bench.send(0.0), bench.send(1.0), bench.send(1.0, rows=25)
        assert (await second).outputs["y"].shape == (25, 2)
        await asyncio.gather(blocker, first)

    scenario(main)
