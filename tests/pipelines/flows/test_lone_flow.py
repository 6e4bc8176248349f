"""The later steps of a request that is alone are computed at once: without the queue, one in a turn of the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from app.core.errors import InferenceFailed
from app.core.inference import Array
from tests.pipelines.pipeline_world import CHAIN, World, ended, moment, rows_of, scenario
from tests.support.waiting import until

COSTS = {1: 0.001, 2: 0.001, 4: 0.001, 8: 0.001}


def quick(play: Callable[[World], Awaitable[None]]) -> None:
    """In a world whose calls are known to be quick."""

    async def in_world(world: World) -> None:
        for name in ("small", "big"):
            world.add(name, 2, costs=COSTS)
        await play(world)

    scenario(in_world, max_inline_s=2.0)


def calls(world: World) -> tuple[list[list[float]], list[list[float]]]:
    return world.loaded["small", 2].calls, world.loaded["big", 2].calls


def by_hand(*values: float) -> Array:
    return (rows_of(*values) + 1) * 10


def queued(world: World) -> list[str]:
    """Notes the lane of each request that is queued from now on."""
    found, push = list[str](), world.batcher.queue.push

    def noted(key: Any, *arguments: Any, **more: Any) -> Any:
        found.append(str(key))
        return push(key, *arguments, **more)

    world.batcher.queue.push = noted  # type: ignore[method-assign]  # as before, noted
    return found


def test_a_later_step_of_a_lone_request_is_not_queued() -> None:
    async def play(world: World) -> None:
        pipeline, pushed = world.load(CHAIN), queued(world)
        for value in (1.0, 2.0):
            answer = await world.ask(pipeline, value)
            np.testing.assert_array_equal(answer.outputs["y"], by_hand(value))
        assert calls(world) == ([[1.0], [2.0]], [[2.0], [3.0]])
        assert len(pushed) <= 2  # the first steps, if those were
        assert ended(world) == [("answered", 1, 1)] * 2
        await world.end()

    quick(play)


def test_what_comes_meanwhile_shares_the_call_of_the_step() -> None:
    async def play(world: World) -> None:
        pipeline = world.load(CHAIN)
        asked = [world.ask(pipeline, value) for value in (1.0, 2.0, 4.0)]
        for value, answer in zip((1.0, 2.0, 4.0), await asyncio.gather(*asked), strict=True):
            np.testing.assert_array_equal(answer.outputs["y"], by_hand(value))
        assert len(calls(world)[1]) == 1
        await world.end()

    quick(play)


def test_a_caller_that_leaves_before_the_step_gets_none() -> None:
    async def play(world: World) -> None:
        pipeline = world.load(CHAIN)
        asked = world.ask(pipeline, 1.0)
        await until(lambda: bool(calls(world)[0]))
        asked.cancel()
        await moment()
        assert calls(world) == ([[1.0]], [])
        assert ended(world) == [("cancelled", 1, 1)]
        await world.end()

    quick(play)


def test_an_error_of_the_step_is_the_error_of_its_request() -> None:
    async def play(world: World) -> None:
        pipeline = world.load(CHAIN)
        with pytest.raises(InferenceFailed, match="Step 'second': the big model failed"):
            await world.ask(pipeline, 12.0)
        answer = await world.ask(pipeline, 1.0)
        np.testing.assert_array_equal(answer.outputs["y"], by_hand(1.0))
        await world.end()

    quick(play)
