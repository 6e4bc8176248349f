"""Requests that wait for a step of a pipeline together, of which only some fit into a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

import pytest

from app.core.errors import DeadlineExceeded
from app.core.events import BatchExecuted, PipelineEnded
from app.core.inference import InferenceRequest, InferenceResponse
from app.pipelines.pipeline_model import PipelineModel
from tests.pipelines.pipeline_world import CHAIN, World, rows_of, scenario


def test_of_those_that_wait_together_as_many_are_computed_as_fit_into_the_call() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        answers = await _five_and_five_while_busy(world, model)
        assert [each.outputs["y"][0, 0] for each in await asyncio.gather(*answers)] == [*range(20, 120, 10)]
        assert [len(each) for each in world.loaded["small", 1].calls] == [8, 8, 2]
        assert sum(each.requests for each in world.events if isinstance(each, PipelineEnded)) == 10
        assert [len(each.queue_s) for each in world.events if isinstance(each, BatchExecuted)][1:3] == [8, 2]

    scenario(play)


def test_who_does_not_fit_keeps_the_place_of_all() -> None:
    async def play(world: World) -> None:
        answers = await _five_and_five_while_busy(world, world.load(CHAIN))
        later = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(*range(60, 68))})))
        await asyncio.gather(later, *answers)
        assert world.loaded["small", 1].calls[2][:2] == [9, 10]

    scenario(play)


def test_each_part_has_its_own_deadline_and_its_own_way_out() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        answers = await _five_and_five_while_busy(world, model, timeout_s=2.5)
        await asyncio.sleep(1)  # the call of eight
        answers[1].cancel()
        answers[8].cancel()
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert [type(each) for each in found].count(asyncio.CancelledError) == 2
        assert [type(each) for each in found].count(DeadlineExceeded) == 8  # two steps take longer
        assert 9 not in world.computed("small"), "it was cancelled while it waited"
        assert 10 in world.computed("small")

    scenario(play)


@pytest.mark.parametrize("fair_callers", [False, True])
@pytest.mark.parametrize("leaving", [(8, 9), (5, 6, 7), (5, 6, 7, 8, 9), (0, 1, 2, 3, 4)])
def test_who_leaves_in_the_turn_in_which_the_others_fit_into_a_call_harms_nobody(
    leaving: Sequence[int], fair_callers: bool
) -> None:
    async def play(world: World) -> None:
        answers = await _five_and_five_while_busy(world, world.load(CHAIN))
        for number in leaving:
            world.at_end_of(1, answers[number].cancel)
        for number, answer in enumerate(await asyncio.gather(*answers, return_exceptions=True)):
            if number in leaving:
                assert isinstance(answer, asyncio.CancelledError)
            else:
                assert isinstance(answer, InferenceResponse)
                assert answer.outputs["y"][0, 0] == 10 * (number + 2)
        assert not world.batcher.failures(10)

    scenario(play, fair_callers=fair_callers)


async def _five_and_five_while_busy(
    world: World, model: PipelineModel, timeout_s: float = inf
) -> list[asyncio.Task[InferenceResponse]]:
    """The numbers from 1 on, in two turns of the loop, while the device computes something else, for 0.7 s more."""
    busy = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(*range(50, 58))})))
    await asyncio.sleep(0.1)
    answers = []
    for first in (1, 6):
        answers += [world.ask(model, value, timeout_s=timeout_s) for value in range(first, first + 5)]
        await asyncio.sleep(0.1)
    assert not busy.done()
    return answers
