"""Each of several requests in one flow fares as if it were alone: its own rows, its own error, its own end."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from app.core.errors import InvalidRequest
from app.core.inference import InferenceRequest
from app.core.reply import Answer
from tests.pipelines.pipeline_world import (
    CASCADE,
    CHAIN,
    EACH,
    JOINED,
    World,
    cascade_by_hand,
    ended,
    rows_of,
    scenario,
)


def test_who_needs_no_further_step_is_answered_before_those_who_do() -> None:
    async def play(world: World) -> None:
        model, begun_s = world.load(CASCADE), world.loop.time()
        seconds = {}

        async def ask(*values: float) -> None:
            answer = await world.ask(model, *values)
            seconds[values] = world.loop.time() - begun_s
            np.testing.assert_array_equal(answer.outputs["y"], cascade_by_hand(*values)["y"])

        await asyncio.gather(ask(1), ask(7, 8), ask(9, 2, 11), ask(12))
        assert {values: round(each) for values, each in seconds.items()} == {
            (1,): 2,
            (7, 8): 1,
            (9, 2, 11): 2,
            (12,): 1,
        }
        assert world.loaded["big", 1].calls == [[1, 2]]
        assert sorted(ended(world)) == [("answered", 2, 3), ("answered", 2, 4)]

    scenario(play)


def test_elements_of_several_requests_are_gathered_again() -> None:
    async def play(world: World) -> None:
        model = world.load(EACH)
        answers = await asyncio.gather(*[world.ask(model, *range(10 * n, 10 * n + n)) for n in (1, 2, 4)])
        for n, answer in zip((1, 2, 4), answers, strict=True):
            boxes = 10 * n + np.arange(n)[:, None] + np.arange(3)
            np.testing.assert_array_equal(answer.outputs["y"][:, :, 0], boxes + 1)

    scenario(play)


def test_where_one_must_not_meet_others_each_goes_alone() -> None:
    """The first step finds that before the requests are accepted."""

    async def play(world: World) -> None:
        for name in ("small", "big"):
            loaded = world.loaded[name, 1]
            loaded.signatures = {
                each: replace(signature, finite_only="NaN spreads") for each, signature in loaded.signatures.items()
            }
            world.models[name][1]._placement.signatures = loaded.signatures
        model = world.load(CHAIN)
        answers = await asyncio.gather(*[world.ask(model, value) for value in (1.0, 2.0, float("nan"))])
        np.testing.assert_array_equal([each.outputs["y"][0, 0] for each in answers], [20.0, 30.0, np.nan])

    scenario(play)


def test_a_bad_one_fails_alone_and_nothing_that_was_computed_is_computed_again() -> None:
    async def play(world: World) -> None:
        model = world.load(CASCADE)
        tasks = [world.ask(model, value) for value in (1, -1, 2, 7)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[1], InvalidRequest)
        assert "Step 'small': x must not be negative" in str(answers[1])
        for value, answer in zip((1, 2, 7), (answers[0], answers[2], answers[3]), strict=True):
            np.testing.assert_array_equal(answer.outputs["y"], cascade_by_hand(value)["y"])  # type: ignore[union-attr]  # it is no error
        assert Counter(outcome for outcome, *_ in ended(world)) == {"answered": 3, "failed": 1}

    scenario(play)


def test_a_bad_one_at_the_second_step_does_not_take_the_others_back_to_the_first() -> None:
    async def play(world: World) -> None:
        def picky(inputs: Any) -> dict[str, Any]:
            if (inputs["x"] == 3).any():
                raise InvalidRequest("x must not be 3")
            return {"y": inputs["x"]}

        world.add("big", 2, picky)
        model = world.load(CHAIN)
        answers = await asyncio.gather(*[world.ask(model, value) for value in range(8)], return_exceptions=True)
        assert [type(each) for each in answers].count(InvalidRequest) == 1
        assert isinstance(answers[2], InvalidRequest)
        assert len(world.loaded["small", 1].calls) == 1

    scenario(play)


def test_a_model_that_takes_each_request_alone_gets_each_alone() -> None:
    async def play(world: World) -> None:
        world.add("big", 2, lambda inputs: {"y": inputs["x"] * 10})
        loaded = world.loaded["big", 2]
        loaded.signatures = {
            name: replace(signature, alone={"y": "rows depend on each other"})
            for name, signature in loaded.signatures.items()
        }
        world.models["big"][2]._placement.signatures = loaded.signatures
        model = world.load(CHAIN)
        answers = await asyncio.gather(*[world.ask(model, value) for value in range(3)])
        assert [each.outputs["y"][0, 0] for each in answers] == [10, 20, 30]
        assert sorted(loaded.calls) == [[1], [2], [3]]

    scenario(play)


def test_an_optional_step_fails_for_the_guilty_one_only() -> None:
    """All would do without it else."""

    async def play(world: World) -> None:
        text = b"""
steps:
  small: {model: small, inputs: {x: x}}
  again: {model: small, inputs: {x: picky.y}, optional: true}
  picky: {model: picky, inputs: {x: small.y}}
outputs: {y: [again.y, small.y]}
"""
        world.add(
            "picky",
            1,
            lambda inputs: {"y": inputs["x"] - 5},
            {"y": world.find("small").signature("serving_default").outputs["y"]},
        )
        model = world.load(text)
        answers = await asyncio.gather(*[world.ask(model, value) for value in (1, 9, 10)])
        assert [each.outputs["y"][0, 0] for each in answers] == [2, 6, 7]

    scenario(play)


def test_a_first_step_may_be_for_some_of_them_only() -> None:
    async def play(world: World) -> None:
        model = world.load(b"""
steps:
  big: {model: big, inputs: {x: x}, when: max(x) < 10}
outputs: {y: [big.y, x]}
""")
        answers = await asyncio.gather(*[world.ask(model, value) for value in (1, 20, 3)])
        assert [each.outputs["y"][0, 0] for each in answers] == [10, 20, 30]

    scenario(play)


def test_a_step_may_need_what_those_computed_and_others_did_not() -> None:
    """The flow is divided at the second step; the third needs it of both parts."""

    async def play(world: World) -> None:
        model = world.load(JOINED)
        answers = await asyncio.gather(*[world.ask(model, value) for value in (1, 7, 3)])
        assert [each.outputs["y"][0, 0] for each in answers] == [100, 80, 300]

    scenario(play)


def test_more_elements_than_a_call_takes_hold_up_nobody_before_them() -> None:
    async def play(world: World) -> None:
        model, begun_s = world.load(EACH), world.loop.time()
        seconds = []

        async def ask(value: float) -> None:
            await world.ask(model, value)
            seconds.append(round(world.loop.time() - begun_s))

        await asyncio.gather(*[ask(value) for value in range(8)])  # of three boxes each; a call takes eight
        assert sum(seconds) / 8 <= 3.7, seconds  # one waits longer: a call tries four rows

    scenario(play)


def test_parts_of_a_rejected_call_go_on_before_others() -> None:
    """As the batch that they were in."""

    async def play(world: World) -> None:
        model = world.load(CHAIN)
        tasks = [world.ask(model, value) for value in (1, -1)]
        await asyncio.sleep(0)
        handled = []
        ended = world.batcher._executor.complete
        world.batcher._executor.complete = lambda batch, *others: (handled.append(batch.feeds), ended(batch, *others))  # type: ignore[method-assign,func-returns-value]  # it notes them
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(handled)

    scenario(play)


def test_who_leaves_while_a_step_waits_is_not_computed_and_the_others_keep_their_place() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        busy = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(*range(50, 58))})))
        await asyncio.sleep(0.1)
        tasks = [world.ask(model, value) for value in (1, 2, 3)]
        await asyncio.sleep(0.1)
        later = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(*range(60, 68))})))
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        kept = await asyncio.gather(tasks[0], tasks[2])
        assert not later.done(), "the others kept their place"
        await asyncio.gather(busy, later)
        assert [each.outputs["y"][0, 0] for each in kept] == [20, 40]
        assert 2 not in world.computed("small")
        assert sorted(ended(world)) == [("answered", 2, 2), ("cancelled", 1, 1)]

    scenario(play)


def test_who_leaves_during_a_step_takes_no_part_in_the_next() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        tasks = [world.ask(model, value) for value in (1, 2, 3)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        await asyncio.gather(*tasks[1:])
        assert world.loaded["big", 1].calls == [[3, 4]]

    scenario(play)


def test_when_all_have_left_nothing_more_is_computed() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        tasks = [world.ask(model, value) for value in (1, 2)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(3)
        assert not world.loaded["big", 1].calls
        assert ended(world) == [("cancelled", 2, 2)]

    scenario(play)


def test_who_leaves_gives_the_others_no_more_time_for_an_optional_step() -> None:
    async def play(world: World) -> None:
        model = world.load(b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: small.y}, optional: true, timeout_ms: 2500}
outputs: {y: [big.y, small.y]}
""")
        begun_s = world.loop.time()
        tasks = [world.ask(model, value) for value in (1, 2, 3)]
        await asyncio.sleep(0.5)
        eight = InferenceRequest({"x": rows_of(*range(8))})
        before = [asyncio.create_task(world.find("big").infer(eight)) for _ in range(4)]
        await asyncio.sleep(0.1)
        other = world.ask(model, 40)  # behind whose first step the second one stands
        await asyncio.sleep(2)
        tasks[0].cancel()
        await asyncio.gather(*tasks[1:])
        assert world.loop.time() - begun_s < 3.6
        await asyncio.gather(other, *before)

    scenario(play)


def test_an_answer_may_cancel_the_others() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CASCADE), asyncio.get_running_loop()
        replies = [loop.create_future() for _ in range(3)]
        handles = [
            model.submit(InferenceRequest({"x": rows_of(value)}), reply)
            for value, reply in zip((7, 1, 2), replies, strict=True)
        ]

        class Cancelling:
            def done(self) -> bool:
                return replies[0].done()

            def set_result(self, answer: Answer, /) -> None:
                replies[0].set_result(answer)
                for handle in handles[1:]:
                    handle.cancel()

            def set_exception(self, error: Exception, /) -> None:
                replies[0].set_exception(error)

        handles[0]._reply = Cancelling()  # type: ignore[attr-defined]  # a Member
        assert (await replies[0]).outputs["y"][0, 0] == 8
        await asyncio.sleep(5)
        assert not replies[1].done()
        assert not replies[2].done()

    scenario(play)


def test_all_have_left_when_their_call_is_rejected() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        tasks = [world.ask(model, value) for value in (1, -1)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(3)
        assert len(world.loaded["small", 1].calls) == 1
        assert ended(world) == [("cancelled", 2, 2)]

    scenario(play)


def test_who_leaves_does_not_put_off_those_who_wait_for_a_later_step_with_it() -> None:
    async def play(world: World) -> None:
        model, big, answers = world.load(CHAIN), world.find("big"), []
        answers.append(asyncio.create_task(big.infer(InferenceRequest({"x": rows_of(*range(50, 58))}))))
        for first in (1, 11, 21):
            await asyncio.sleep(0.01)
            answers += [world.ask(model, value) for value in range(first, first + 8)]
        await asyncio.sleep(3.1)  # all have left the first step
        answers[3].cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        assert world.loaded["big", 1].calls[1] == [2, 3, 5, 6, 7, 8, 9, 12]

    scenario(play)
