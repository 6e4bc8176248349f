"""Requests on their way through the steps of pipelines."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest

from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, ShuttingDown
from app.core.inference import Array, InferenceRequest
from tests.pipelines.pipeline_world import (
    CASCADE,
    CHAIN,
    EACH,
    OPTIONAL,
    SIZES,
    TWO,
    World,
    Y,
    moment,
    rows_of,
    scenario,
)


def test_a_later_step_waits_for_the_first_steps_of_those_who_have_come_and_is_computed_with_theirs() -> None:
    async def play(world: World) -> None:
        model = world.load(CASCADE)
        asked = []
        for number in (1, 2, 3, 4):  # three calls of the small model
            asked.append(world.ask(model, number, 20, 20, 20))
            await moment()
        await asyncio.gather(*asked)
        assert world.loaded["big", 1].calls == [[1, 2, 3, 4]]

    scenario(play)


def test_who_comes_afterwards_does_not_put_a_later_step_off() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        first = world.ask(model, *range(8))
        await moment()
        second = world.ask(model, *range(30, 38))
        await moment(1)  # the second step of the first waits behind the first step of the second
        third = world.ask(model, *range(20, 28))
        await first
        assert not third.done()
        assert world.computed("small") == {*range(8), *range(30, 38)}
        await asyncio.gather(second, third)

    scenario(play)


def test_steps_of_several_requests_and_direct_requests_share_calls() -> None:
    async def play(world: World) -> None:
        model = world.load(CASCADE)
        direct = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(4)})))
        answers = await asyncio.gather(*[world.ask(model, value) for value in (1, 2, 3)], direct)
        assert [each.outputs["y"][0, 0] for each in answers] == [10, 20, 30, 5]
        assert [set(call) for call in world.loaded["small", 1].calls] == [{1, 2, 3, 4}]
        assert [set(call) for call in world.loaded["big", 1].calls] == [{1, 2, 3}]

    scenario(play)


def test_only_the_steps_are_taken_that_the_outputs_need() -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(CASCADE), 1, outputs=("score",))
        assert list(answer.outputs) == ["score"]
        assert not world.loaded["big", 1].calls

    scenario(play)


def test_parallel_steps_run_side_by_side() -> None:
    async def play(world: World) -> None:
        start_s = world.loop.time()
        await world.ask(world.load(OPTIONAL), 1)
        assert world.loop.time() - start_s == pytest.approx(1.0)

    scenario(play, devices=2)


def test_the_answer_tells_what_each_step_took() -> None:
    async def play(world: World) -> None:
        timing = (await world.ask(world.load(CHAIN), 1)).timing
        assert [(step.name, step.rows) for step in timing.steps] == [("first", 1), ("second", 1)]
        assert [step.compute_s for step in timing.steps] == pytest.approx([1.0, 1.0])
        assert (timing.compute_s, timing.rows) == (pytest.approx(2.0), 1)
        assert timing.queue_s == pytest.approx(0.0, abs=0.01)

    scenario(play)


def test_what_a_step_computed_is_passed_on_as_it_is_and_no_step_is_a_task() -> None:
    async def play(world: World) -> None:
        computed, read, tasks = list[Array](), list[Array](), list[int]()

        def first(inputs: Mapping[str, Array]) -> dict[str, Array]:
            computed.append(inputs["x"] + 1)
            tasks.append(len(asyncio.all_tasks(world.loop)))
            return {"y": computed[-1]}

        def second(inputs: Mapping[str, Array]) -> dict[str, Array]:
            read.append(inputs["x"])
            tasks.append(len(asyncio.all_tasks(world.loop)))
            return {"y": inputs["x"]}

        world.add("small", 2, first, {"y": Y})
        world.add("big", 2, second, {"y": Y})
        model, others = world.load(CHAIN), len(asyncio.all_tasks())
        answer = await world.ask(model, *range(SIZES.largest))  # nothing is padded
        assert read[0] is computed[0]
        assert np.shares_memory(answer.outputs["y"], computed[0])
        assert tasks == [others + 1] * 2, "that of the caller"

    scenario(play)


def test_later_steps_have_the_priority_of_the_request() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        bulk = world.ask(model, *range(20, 28))
        await moment()
        urgent = world.ask(model, *range(8), priority=1)
        await asyncio.gather(bulk, urgent)
        assert world.loaded["small", 1].calls == [[*range(20, 28)], [*range(8)]]
        assert world.loaded["big", 1].calls == [[*range(1, 9)], [*range(21, 29)]]

    scenario(play)


# --- failures ---


def test_a_bad_request_fails_alone_and_its_step_is_named() -> None:
    async def play(world: World) -> None:
        model = world.load(CASCADE)
        good, bad = world.ask(model, 1), world.ask(model, -1)
        with pytest.raises(InvalidRequest, match="Step 'small': x must not be negative"):
            await bad
        assert (await good).outputs["y"][0, 0] == 10
        with pytest.raises(InferenceFailed, match="Step 'second': the big model failed"):
            await world.ask(world.load(CHAIN), 12)

    scenario(play)


def test_nothing_is_computed_at_a_step_beside_one_that_has_failed() -> None:
    async def play(world: World) -> None:
        model = world.load(TWO)
        with pytest.raises(InvalidRequest, match="Step 'small'"):
            await world.ask(model, -1)
        await moment(3)
        assert not world.loaded["big", 1].calls

    scenario(play)


def test_a_model_that_answers_other_rows_than_it_was_asked_for_fails_the_request() -> None:
    """Rows that follow would be others' answers."""

    async def play(world: World) -> None:
        world.add("big", 2, lambda inputs: {"y": inputs["x"][1:]})
        with pytest.raises(InferenceFailed, match=r"Step 'second': .*big answered 2 rows of 'y' for 3 rows"):
            await world.ask(world.load(CHAIN), 1, 2, 3)

    scenario(play)


@pytest.mark.parametrize(("value", "expected"), [(13.0, 14.0), (3.0, 30.0)])
def test_an_optional_step_may_fail(value: float, expected: float) -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(OPTIONAL), value)
        assert answer.outputs["y"][0, 0] == expected

    scenario(play)


def test_an_optional_step_may_be_late() -> None:
    async def play(world: World) -> None:
        model = world.load(OPTIONAL)
        eight = InferenceRequest({"x": rows_of(*range(8))})
        before = [asyncio.create_task(world.find("big").infer(eight)) for _ in range(3)]
        await moment()
        start_s = world.loop.time()
        answer = await world.ask(model, 3)
        assert answer.outputs["y"][0, 0] == 4, "what the small model says"
        assert world.loop.time() - start_s < 4
        await asyncio.gather(*before)

    scenario(play)


def test_nothing_is_computed_for_a_request_that_was_cancelled() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        for wait_s in (0.0, 0.5):
            task = world.ask(model, 1)
            await moment(wait_s)
            task.cancel()
            await moment(3)
            assert task.cancelled()
        assert not world.loaded["big", 1].calls

    scenario(play)


def test_a_deadline_holds_for_all_steps() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        start_s = world.loop.time()
        with pytest.raises(DeadlineExceeded):
            await world.ask(model, 1, timeout_s=1.5)
        assert world.loop.time() - start_s == pytest.approx(1.5)

    scenario(play)


# --- the end ---


def test_a_drain_lets_flows_finish() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        under_way = [world.ask(model, value) for value in range(20, 60)]
        await moment(0.5)
        world.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            await world.ask(model, 1)
        answers = await asyncio.gather(*under_way)
        assert [each.outputs["y"][0, 0] for each in answers] == [10 * (value + 1) for value in range(20, 60)]

    scenario(play)


@pytest.mark.parametrize("text", [CASCADE, EACH, OPTIONAL, CHAIN, TWO])
def test_of_large_requests_no_array_is_left(text: bytes) -> None:
    """They are computed in many parts, and the collector, which comes seldom, is not waited for."""
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)

    def array_bytes() -> int:
        return sum(each.size for each in tracemalloc.take_snapshot().filter_traces([arrays]).traces)

    async def play(world: World) -> None:
        model, held = world.load(text), list[int]()
        for _ in range(4):
            answer = await world.ask(model, *range(14, 214))  # no model fails for these
            assert len(answer.outputs) > 0
            del answer
            world.events.clear()
            await moment()
            held.append(array_bytes())
        assert held[1:] == held[:1] * 3

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        scenario(play)
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_step_larger_than_a_call_leaves_the_queue_when_a_part_of_it_fails() -> None:
    async def play(world: World) -> None:
        asked = world.ask(world.load(CHAIN), 12, *[1] * 39)
        big = world.find("big")
        while not world.computed("big"):
            await moment()
        urgent = InferenceRequest({"x": rows_of(*[2] * 8)}, priority=1)
        others = [asyncio.create_task(big.infer(urgent)) for _ in range(5)]
        await asyncio.wait({asked})
        assert isinstance(asked.exception(), InferenceFailed)
        assert [request.rows for lane in world.batcher.queue.lanes for request in lane] == [8] * 4
        await asyncio.gather(*others)

    scenario(play)
