"""Requests that arrive in one turn of the event loop, and go through a pipeline as one."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, Overloaded, ShuttingDown
from app.core.events import BatchExecuted, PipelineEnded
from app.core.inference import InferenceRequest
from app.core.reply import Answer
from app.pipelines.flows.members import Member, Together
from tests.pipelines.pipeline_world import CASCADE, CHAIN, EACH, OPTIONAL, World, cascade_by_hand, rows_of, scenario
from tests.support.garbage import garbage

#: A step that needs what part of the rows went through, and what all did.
JOINED = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 10}
  last: {model: big, inputs: {x: [big.y, small.y]}}
outputs: {y: last.y, score: small.score}
"""


def ended(world: World) -> list[tuple[str, int, int]]:
    """Outcome, requests and rows of each flow."""
    return [(each.outcome, each.requests, each.rows) for each in world.events if isinstance(each, PipelineEnded)]


# --- together ---


def test_requests_of_one_turn_are_one_flow_and_each_gets_its_own_rows() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        answers = await asyncio.gather(world.ask(model, 1, 2), world.ask(model, 3), world.ask(model, 4, 5))
        assert [each.outputs["y"][:, 0].tolist() for each in answers] == [[20, 30], [40], [50, 60]]
        assert ended(world) == [("answered", 3, 5)]
        assert [each.timing for each in answers] == [answers[0].timing] * 3

    scenario(play)


def test_metrics_of_their_models_count_each_request() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        await asyncio.gather(*[world.ask(model, value) for value in range(3)])
        assert [len(each.queue_s) for each in world.events if isinstance(each, BatchExecuted)] == [3, 3]

    scenario(play)


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


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"outputs": ("y",)}, "other outputs"),
        ({"priority": 1}, "another priority"),
        ({"caller": "somebody"}, "another caller"),
        ({"deadline_s": 1500.0}, "less time"),
        ({"inputs": {"x": rows_of()}}, "no rows"),
    ],
)
def test_who_asks_for_something_else_goes_apart(others: dict[str, Any], why: str) -> None:
    async def play(world: World) -> None:
        model = world.load(CASCADE)
        usual = InferenceRequest({"x": rows_of(20)}, deadline_s=world.loop.time() + 1000)
        other = replace(usual, **others)
        await asyncio.gather(*[model.infer(each) for each in (usual, other, replace(usual))])
        assert sorted(requests for _, requests, _ in ended(world)) == [1, 2], why

    scenario(play)


def test_parallel_steps_are_taken_by_each_request_alone() -> None:
    async def play(world: World) -> None:
        model = world.load(OPTIONAL)
        await asyncio.gather(world.ask(model, 1), world.ask(model, 2))
        assert ended(world) == [("answered", 1, 1)] * 2

    scenario(play)


def test_what_arrives_is_shared_out_over_the_calls_that_are_made_at_a_time() -> None:
    async def play(world: World) -> None:
        model, begun_s = world.load(CHAIN), world.loop.time()
        await asyncio.gather(*[world.ask(model, value) for value in range(8)])
        assert world.loop.time() - begun_s == pytest.approx(2)
        assert [requests for _, requests, _ in ended(world)] == [4, 4]

    scenario(play, devices=2)


def test_no_more_go_together_than_a_call_takes() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        await asyncio.gather(*[world.ask(model, value, value) for value in range(10)])
        assert [rows for _, _, rows in ended(world)] == [8, 8, 4]

    scenario(play)


@pytest.mark.not_traced  # it runs the same lines many thousand times
def test_large_requests_go_alone() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        few = 2**17  # of 8 bytes: the bytes that are joined at most
        request = InferenceRequest({"x": np.ones((few, 2), np.float32)})
        await asyncio.gather(model.infer(request), model.infer(InferenceRequest({"x": rows_of(1)})))
        assert sorted(ended(world)) == [("answered", 1, 1), ("answered", 1, few)]

    scenario(play, seconds=1e-6, max_rows=10**6)


def test_direct_requests_of_the_same_turn_share_the_call() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        direct = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(4)})))
        await asyncio.gather(direct, world.ask(model, 1), world.ask(model, 2))
        assert [set(call) for call in world.loaded["small", 1].calls] == [{1, 2, 4}]

    scenario(play)


# --- apart ---


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
        assert sum(seconds) / 8 <= 3.5, seconds

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


# --- who leaves ---


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


def test_who_leaves_before_it_has_begun_was_never_there() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        loop = asyncio.get_running_loop()
        handle = model.submit(InferenceRequest({"x": rows_of(1)}), loop.create_future())
        handle.cancel()
        await asyncio.sleep(3)
        assert not world.loaded["small", 1].calls

    scenario(play)


# --- the door ---


def test_what_has_no_room_together_is_judged_one_by_one_in_order() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        answers = await asyncio.gather(*[world.ask(model, value, value) for value in range(3)], return_exceptions=True)
        assert [isinstance(each, Overloaded) for each in answers] == [False, False, True]

    scenario(play, max_rows=4)


def test_a_drain_rejects_all_that_have_not_begun() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        replies = [loop.create_future() for _ in range(3)]
        for reply in replies:
            model.submit(InferenceRequest({"x": rows_of(1)}), reply)
        world.batcher.begin_drain()
        answers = await asyncio.gather(*replies, return_exceptions=True)
        assert all(isinstance(each, ShuttingDown) for each in answers)

    scenario(play)


def test_a_pipeline_that_is_closed_answers_those_that_arrived_before() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        reply = loop.create_future()
        model.submit(InferenceRequest({"x": rows_of(1)}), reply)
        await model.close()
        assert (await reply).outputs["y"][0, 0] == 20

    scenario(play)


def test_a_deadline_that_has_passed_is_told_and_others_do_not_share_it() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        late, kept = world.ask(model, 1, timeout_s=-1.0), world.ask(model, 2)
        with pytest.raises(DeadlineExceeded):
            await late
        await kept

    scenario(play)


# --- replies ---


class Broken:
    """A reply that cannot be set at first."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.error is not None

    def set_result(self, _: Answer, /) -> None:
        raise RuntimeError("broken")

    def set_exception(self, error: Exception, /) -> None:
        self.error = error


def test_a_reply_that_cannot_be_set_strands_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        broken, good = Broken(), loop.create_future()
        for value, reply in enumerate((broken, good)):
            model.submit(InferenceRequest({"x": rows_of(value)}), reply)
        assert (await good).outputs["y"][0, 0] == 20
        assert isinstance(broken.error, InferenceFailed)

    scenario(play)
    assert "A reply could not be set" in caplog.text


def test_several_that_a_transport_has_joined_are_one_flow() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CASCADE), asyncio.get_running_loop()
        replies = [loop.create_future() for _ in range(3)]
        members = [Member(reply, rows) for reply, rows in zip(replies, (1, 2, 1), strict=True)]
        request = InferenceRequest({"x": rows_of(1, 7, 8, 2)})
        assert model.coalescable_rows("serving_default") == 8
        handle = model.submit_coalesced(request, [0.0] * 3, Together(members))
        assert handle is not None
        answers = await asyncio.gather(*replies)
        for values, answer in zip(((1,), (7, 8), (2,)), answers, strict=True):
            np.testing.assert_array_equal(answer.outputs["y"], cascade_by_hand(*values)["y"])

    scenario(play)


def test_a_transport_cancels_one_of_those_that_it_has_joined() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        busy = asyncio.create_task(world.find("small").infer(InferenceRequest({"x": rows_of(*range(50, 58))})))
        await asyncio.sleep(0.1)
        replies = [loop.create_future() for _ in range(3)]
        together = Together([Member(reply, 1) for reply in replies])
        handle = model.submit_coalesced(InferenceRequest({"x": rows_of(1, 2, 3)}), [0.0] * 3, together)
        assert handle is not None
        handle.cancel_one(1)
        await asyncio.gather(busy, replies[0], replies[2])
        assert 2 not in world.computed("small")

    scenario(play)


def test_nothing_outlives_its_requests() -> None:
    """Not even until the collector comes: neither of those that are answered, nor of those that are rejected."""

    async def play(world: World) -> None:
        model, chain = world.load(JOINED), world.load(CHAIN, "chain")

        async def ask() -> None:
            await asyncio.gather(*[world.ask(model, value) for value in (1, 7, 2)])
            await asyncio.gather(*[world.ask(chain, value, 0) for value in (1, -1, 2)], return_exceptions=True)
            await asyncio.gather(*[world.ask(chain, 1, 2, 3) for _ in range(3)], return_exceptions=True)

        await ask()
        with garbage() as found:
            await ask()
        assert not found

    scenario(play, max_rows=6)


def test_an_error_keeps_the_tensors_of_nobody() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        replies, arrays = [loop.create_future() for _ in range(3)], list[Any]()
        for reply in replies:
            inputs = {"x": rows_of(1, 2)}
            arrays.append(weakref.ref(inputs["x"]))
            model.submit(InferenceRequest(inputs), reply)
        del inputs
        world.batcher.begin_drain()
        errors = await asyncio.gather(*replies, return_exceptions=True)
        assert all(isinstance(error, ShuttingDown) for error in errors)
        assert all(each() is None for each in arrays)

    scenario(play)


def test_a_transport_cancels_all_that_it_has_joined() -> None:
    async def play(world: World) -> None:
        model, loop = world.load(CHAIN), asyncio.get_running_loop()
        members = [Member(loop.create_future(), 1) for _ in range(2)]
        handle = model.submit_coalesced(InferenceRequest({"x": rows_of(1, 2)}), [0.0] * 2, Together(members))
        assert handle is not None
        await asyncio.sleep(0.5)
        handle.cancel()
        await asyncio.sleep(3)
        assert not world.loaded["big", 1].calls

    scenario(play)
