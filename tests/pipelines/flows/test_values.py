"""Which rows a step computes, what its model gets, and how rows and elements come back in order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from app.core.errors import InferenceFailed, InvalidRequest
from app.core.inference import Array, InferenceRequest, TensorSpec
from tests.pipelines.pipeline_world import (
    CASCADE,
    EACH,
    FLOAT32,
    World,
    Y,
    cascade_by_hand,
    each_by_hand,
    rows_of,
    scenario,
)

#: Boxes, as many as the first number says, of which the big model reads those of large rows; a step reads its answers.
GATED_EACH = b"""
steps:
  boxes: {model: boxes, inputs: {x: x}}
  read: {model: big, inputs: {x: boxes.boxes}, each: x, %s}
  again: {model: small, inputs: {x: [read.y, 7]}, each: x}
outputs: {y: [read.y, -1], again: again.y}
"""


#: Two inputs whose elements go together.
PAIRED = b"""
steps:
  pair: {model: add, inputs: {a: boxes, b: scales}, each: [a, b]}
outputs: {y: pair.y}
"""


#: Those of a caller go together with those of a model.
PAIRED_LATER = b"""
steps:
  detect: {model: detect, inputs: {x: x}}
  pair: {model: add, inputs: {a: detect.boxes, b: scales}, each: [a, b]%s}
outputs: {y: %s}
"""


def test_rows_that_go_different_ways_come_back_in_order() -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(CASCADE), 1, 7, 2, 9, 3)
        for name, expected in cascade_by_hand(1, 7, 2, 9, 3).items():
            np.testing.assert_array_equal(answer.outputs[name], expected)
        assert world.computed("big") == {1, 2, 3}

    scenario(play)


@pytest.mark.parametrize("values", [(7.0, 8.0), ()])
def test_a_step_without_rows_is_passed_over(values: tuple[float, ...]) -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(CASCADE), *values)
        np.testing.assert_array_equal(answer.outputs["y"], cascade_by_hand(*values)["y"])
        assert not values or not world.loaded["big", 1].calls

    scenario(play)


def test_each_element_is_a_row_and_they_are_gathered_again() -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(EACH), 1, 5)
        for name, expected in each_by_hand(1, 5).items():
            np.testing.assert_array_equal(answer.outputs[name], expected)

    scenario(play)


@pytest.mark.parametrize("values", [(1.0, 5.0), ()])
def test_a_row_may_have_no_elements(values: tuple[float, ...]) -> None:
    """A detector that finds nothing."""

    async def play(world: World) -> None:
        boxes = TensorSpec("boxes", FLOAT32, (None, None, 2))
        world.add(
            "detect", 2, lambda inputs: {"boxes": np.zeros((len(inputs["x"]), 0, 2), np.float32)}, {"boxes": boxes}
        )
        answer = await world.ask(world.load(EACH), *values)
        assert answer.outputs["y"].shape == (len(values), 0, 2)
        assert answer.outputs["score"].shape == (len(values), 0)

    scenario(play)


@pytest.mark.parametrize("gate", [b"when: sum(x) > 99", b"optional: true"], ids=["no row is left", "it fails"])
@pytest.mark.parametrize("count", [3, 0], ids=["three elements", "none"])
def test_elements_that_nothing_computed_are_as_many_as_there_are(gate: bytes, count: int) -> None:
    def boxes(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"boxes": np.full((len(inputs["x"]), count, 2), 13, np.float32)}  # the big model fails for 13

    async def play(world: World) -> None:
        world.add("boxes", 1, boxes, {"boxes": TensorSpec("boxes", FLOAT32, (None, None, 2))})
        answer = await world.ask(world.load(GATED_EACH % gate), 1, 5)
        expected = -1 if count or b"when" in gate else 0
        np.testing.assert_array_equal(answer.outputs["y"], np.full((2, count, 2), expected, np.float32))
        np.testing.assert_array_equal(answer.outputs["again"], np.full((2, count, 2), 8, np.float32))

    scenario(play)


def test_inputs_of_other_numbers_of_elements_are_the_fault_of_who_sent_them() -> None:
    def add(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["a"] + inputs["b"]}

    async def play(world: World) -> None:
        world.add("add", 1, add, {"y": Y}, {name: TensorSpec(name, FLOAT32, (None, 2)) for name in ("a", "b")})
        threes, twos = np.ones((2, 3, 2), np.float32), np.ones((2, 2, 2), np.float32)
        told = "Step 'pair': the inputs that 'each' names must have equally many elements in a row; "
        with pytest.raises(InvalidRequest, match=f"{told}'boxes' has 3, 'scales' has 2"):
            await world.load(PAIRED).infer(InferenceRequest({"boxes": threes, "scales": twos}))
        request = InferenceRequest({"x": rows_of(1, 2), "scales": twos})
        with pytest.raises(InvalidRequest, match=f"{told}'a' has 3, 'scales' has 2"):
            await world.load(PAIRED_LATER % (b"", b"pair.y")).infer(request)
        answer = await world.load(PAIRED_LATER % (b", optional: true", b"[pair.y, 0]")).infer(request)
        np.testing.assert_array_equal(answer.outputs["y"], np.zeros((2, 3, 2)))

    scenario(play)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (b"each: x", r"Step 'read': Input 'x' has shape \[2\], but 'each' expects \[rows, elements, ...\]"),
        (b"when: odd.y > 0", "Step 'read': 'when' compares odd.y, which should have one value for each row"),
    ],
)
def test_an_output_of_unknown_rank_that_does_not_fit_is_told_with_the_step(
    step: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"] if b"when" in step else inputs["x"][:, 0]}

    async def play(world: World) -> None:
        world.add("odd", 1, odd, {"y": TensorSpec("y", FLOAT32, None)})
        text = b"steps:\n  odd: {model: odd, inputs: {x: x}}\n  read: {model: small, inputs: {x: odd.y}, %s}\n"
        model = world.load(text % step + b"outputs: {y: [read.y, 0]}\n")
        with pytest.raises(InferenceFailed, match=told):
            await world.ask(model, 1, 5)
        assert not caplog.records, "it is no fault of the server's"

    scenario(play)
