"""Requests on their way through the steps of pipelines."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest

from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, Overloaded, ShuttingDown
from app.core.inference import Array, InferenceRequest, TensorSpec
from tests.pipelines.pipeline_world import (
    CASCADE,
    CHAIN,
    EACH,
    FLOAT32,
    OPTIONAL,
    SIZES,
    World,
    Y,
    cascade_by_hand,
    each_by_hand,
    rows_of,
    scenario,
)

#: Side by side.
TWO = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}}
outputs: {small: small.y, big: big.y}
"""


async def moment(seconds: float = 0.1) -> None:
    await asyncio.sleep(seconds)


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


#: Boxes, as many as the first number says, of which the big model reads those of large rows; a step reads its answers.
GATED_EACH = b"""
steps:
  boxes: {model: boxes, inputs: {x: x}}
  read: {model: big, inputs: {x: boxes.boxes}, each: x, %s}
  again: {model: small, inputs: {x: [read.y, 7]}, each: x}
outputs: {y: [read.y, -1], again: again.y}
"""


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


# --- admission and the end ---


def test_the_second_step_never_refuses_what_the_first_has_computed() -> None:
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


TRIPLE = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}}
  again: {model: big, inputs: {x: x}}
outputs: {small: small.y, big: big.y, again: again.y}
"""


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


def test_a_request_is_refused_at_the_door_if_the_later_steps_would_be_late() -> None:
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
