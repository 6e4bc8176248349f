"""Requests that arrive in one turn of the event loop, and go through a pipeline as one."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import DeadlineExceeded, InferenceFailed, Overloaded, ShuttingDown
from app.core.events import BatchExecuted
from app.core.inference import InferenceRequest
from app.core.reply import Answer
from app.pipelines.flows.members import JoinedMembers, Member
from tests.pipelines.pipeline_world import (
    CASCADE,
    CHAIN,
    JOINED,
    OPTIONAL,
    World,
    cascade_by_hand,
    ended,
    rows_of,
    scenario,
)
from tests.support.garbage import garbage


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


def test_who_leaves_before_it_has_begun_was_never_there() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        loop = asyncio.get_running_loop()
        handle = model.submit(InferenceRequest({"x": rows_of(1)}), loop.create_future())
        handle.cancel()
        await asyncio.sleep(3)
        assert not world.loaded["small", 1].calls

    scenario(play)


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
        handle = model.submit_coalesced(request, [0.0] * 3, JoinedMembers(members))
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
        together = JoinedMembers([Member(reply, 1) for reply in replies])
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
        handle = model.submit_coalesced(InferenceRequest({"x": rows_of(1, 2)}), [0.0] * 2, JoinedMembers(members))
        assert handle is not None
        await asyncio.sleep(0.5)
        handle.cancel()
        await asyncio.sleep(3)
        assert not world.loaded["big", 1].calls

    scenario(play)


@settings(max_examples=30, deadline=None)
@given(schedule=st.lists(st.sampled_from(["ask", "ask", "ask two", "version"]), min_size=2, max_size=8))
def test_each_goes_through_the_models_that_were_there_when_it_came(schedule: list[str]) -> None:
    """Also where others of the same turn came before or after their models changed."""

    async def play(world: World) -> None:
        model = world.load(CHAIN)
        asked: list[tuple[asyncio.Future[Answer], list[float]]] = []
        version = 1
        for number, what in enumerate(schedule):
            if what == "version":
                version += 1
                factor = np.float32(10**version)
                world.add("big", version, lambda inputs, factor=factor: {"y": inputs["x"] * factor})
                world.pipelines.refresh()
                continue
            values = [float(number)] * (1 + (what == "ask two"))
            reply: asyncio.Future[Answer] = world.loop.create_future()
            model.submit(InferenceRequest({"x": rows_of(*values)}), reply)
            asked.append((reply, [(value + 1) * 10**version for value in values]))
        for reply, expected in asked:
            assert (await reply).outputs["y"][:, 0].tolist() == expected

    scenario(play)
