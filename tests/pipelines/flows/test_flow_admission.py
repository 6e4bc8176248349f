"""A request is judged once, at its first steps, for all that follow."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from app.core.errors import Overloaded
from app.core.inference import InferenceRequest
from tests.pipelines.pipeline_world import (
    CHAIN,
    OPTIONAL,
    TWO,
    World,
    moment,
    rows_of,
    scenario,
)

TRIPLE = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}}
  again: {model: big, inputs: {x: x}}
outputs: {small: small.y, big: big.y, again: again.y}
"""


@pytest.mark.parametrize("timeout_ms", [20, 2500])
def test_an_optional_first_step_that_would_be_late_rejects_no_request(timeout_ms: int) -> None:
    """It was rejected because of its own time-out, and never tried again."""

    async def play(world: World) -> None:
        model = world.load(OPTIONAL.replace(b"2500", str(timeout_ms).encode()))
        for _ in range(3):  # what a call takes is known by then
            answer = await world.ask(model, 3, timeout_s=100)
            assert answer.outputs["y"][0, 0] == (30 if timeout_ms > 2000 else 4)

    scenario(play)


def test_optional_steps_alone_reject_no_request_for_their_own_time() -> None:
    async def play(world: World) -> None:
        model = world.load(b"""
steps:
  big: {model: big, inputs: {x: x}, optional: true, timeout_ms: 20}
outputs: {y: [big.y, x]}
""")
        busy = [asyncio.create_task(world.find("big").infer(InferenceRequest({"x": rows_of(0)}))) for _ in range(2)]
        await asyncio.gather(*busy)
        busy = [asyncio.create_task(world.find("big").infer(InferenceRequest({"x": rows_of(0)}))) for _ in range(2)]
        await moment()
        answers = await asyncio.gather(*[world.ask(model, value, timeout_s=100) for value in (1, 2)])
        assert [each.outputs["y"][0, 0] for each in answers] == [1, 2]
        await asyncio.gather(*busy)

    scenario(play)


def test_a_request_is_rejected_for_its_own_deadline_though_a_first_step_is_optional() -> None:
    async def play(world: World) -> None:
        model = world.load(OPTIONAL)
        await world.ask(model, 1)
        busy = [world.ask(model, value) for value in range(2)]
        await moment()
        with pytest.raises(Overloaded):
            await world.ask(model, 1, timeout_s=1.2)
        await asyncio.gather(*busy)

    scenario(play)


def test_the_second_step_never_rejects_what_the_first_has_computed() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        accepted = world.ask(model, 1)
        await moment(0.5)
        full = [asyncio.create_task(world.find("big").infer(InferenceRequest({"x": rows_of(0)}))) for _ in range(4)]
        await moment()
        with pytest.raises(Overloaded):
            await world.ask(model, 2)
        assert (await accepted).outputs["y"][0, 0] == 20
        await asyncio.gather(*full)

    scenario(play, max_rows=4)


@pytest.mark.parametrize("rows", [6, 9, 40])
def test_room_is_found_once_for_all_steps_that_begin_side_by_side(rows: int) -> None:
    """An idle server takes a request of any size, as it takes one of a single model."""

    async def play(world: World) -> None:
        numbers = [float(number) for number in range(100, 100 + rows)]
        answer = await world.ask(world.load(TRIPLE), *numbers)
        np.testing.assert_array_equal(answer.outputs["small"], rows_of(*numbers) + 1)
        for name in ("big", "again"):
            np.testing.assert_array_equal(answer.outputs[name], rows_of(*numbers) * 10)

    scenario(play, max_rows=16)


def test_a_large_request_leaves_room_at_each_of_its_steps() -> None:
    async def play(world: World) -> None:
        large = world.ask(world.load(CHAIN), *[float(number) for number in range(100, 164)])
        await moment()
        asked = []
        while not large.done():
            x = InferenceRequest({"x": rows_of(1)})
            asked += [asyncio.create_task(world.find(name).infer(x)) for name in ("small", "big")]
            await moment(2.0)
        await asyncio.gather(large, *asked)

    scenario(play, max_rows=16)


def test_a_request_is_rejected_at_admission_if_the_later_steps_would_be_late() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        await world.ask(model, 1)
        busy = [world.ask(model, value) for value in range(2)]
        await moment(0.5)
        with pytest.raises(Overloaded, match="left, and answers take"):
            await world.ask(model, 1, timeout_s=2.2)
        await asyncio.gather(*busy)

    scenario(play)


def test_steps_side_by_side_are_foreseen_to_take_as_long_as_the_longest() -> None:
    async def play(world: World) -> None:
        model = world.load(b"""
steps:
  first: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: first.y}}
  boxes: {model: detect, inputs: {x: first.y}}
outputs: {y: big.y, boxes: boxes.boxes}
""")
        await world.ask(model, 1)  # what calls take is known by then
        busy = [asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(0)})))]
        await moment()
        with pytest.raises(Overloaded):
            await world.ask(model, 1, timeout_s=1.7)
        assert (await world.ask(model, 1, timeout_s=2.7)).outputs["y"][0, 0] == 20
        await asyncio.gather(*busy)

    scenario(play, devices=2)


def test_an_idle_server_takes_every_request_also_with_steps_side_by_side() -> None:
    """It never learnt that models had become quicker: the second step was judged by the first, which waited."""

    async def play(world: World) -> None:
        model = world.load(TWO)
        await world.ask(model, 1)
        for device in world.devices:
            device.seconds = 0.1
        for _ in range(3):
            await world.ask(model, 1, timeout_s=0.5)

    scenario(play)
