"""Whatever other models send, a model has the room that is kept for it; what is accepted is answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import create_policy
from app.batching.request import LaneKey, RequestHandle
from app.core.errors import Overloaded, RequestTooLarge
from app.core.reply import Answer
from tests.support.fakes import FakeDevice, FakeFunction, FakeReply, batch_function, rows_of, run_in_fake_time

CAPACITY = 40
MODELS = ("a", "b", "c")


@dataclass(frozen=True)
class Call:
    at_s: float
    model: str
    lane: int
    rows: int
    cancel_after_s: float


calls = st.builds(
    Call,
    at_s=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.5, 3.0]),
    model=st.sampled_from(["a", "a", "a", *MODELS]),
    lane=st.integers(0, 1),
    rows=st.sampled_from([1, 2, 3, 9, 30]),
    cancel_after_s=st.sampled_from([99.0, 99.0, 0.2]),
)


@settings(max_examples=200, deadline=None)
@given(
    schedule=st.lists(calls, min_size=1, max_size=40),
    weights=st.dictionaries(st.sampled_from(MODELS), st.sampled_from([0.5, 2.0, 9.0])),
)
def test_a_model_is_never_refused_for_lack_of_the_room_that_is_kept_for_it(
    schedule: list[Call], weights: dict[str, float]
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        policy = create_policy("work_conserving")
        batcher = Batcher([FakeDevice(1.0)], policy, CAPACITY, clock=loop.time, weights=weights)
        for model in MODELS:
            batcher.add_version(model)
        functions = {model: batch_function(FakeFunction()) for model in MODELS}
        accepted: list[tuple[FakeReply, RequestHandle]] = []

        def waiting(model: str) -> int:
            return sum(lane.rows for lane in batcher.queue.lanes if lane.key.model == model)

        def send(call: Call) -> None:
            reply, before, kept = FakeReply(), waiting(call.model), batcher.queue.room.kept(call.model)
            key = LaneKey(call.model, 1, str(call.lane))
            try:
                handle = batcher.submit(key, functions[call.model], rows_of(1.0, call.rows), call.rows, reply)
            except (Overloaded, RequestTooLarge):
                assert before + call.rows > kept
                return
            accepted.append((reply, handle))
            loop.call_later(call.cancel_after_s, lambda: None if reply.done() else cancel(reply, handle))
            assert batcher.queue.rows <= CAPACITY

        def cancel(reply: FakeReply, handle: RequestHandle) -> None:
            reply.set_result("cancelled")
            handle.cancel()

        for call in schedule:
            loop.call_later(call.at_s, send, call)
        await asyncio.sleep(200)
        await batcher.drain()
        assert all(isinstance(reply.answers[0], Answer) or reply.answers == ["cancelled"] for reply, _ in accepted)
        assert repr(batcher.queue.room).startswith("<Room 0/40 rows")

    run_in_fake_time(main())


@pytest.mark.parametrize("weight", [0.0, 9.0])
def test_a_model_that_filled_the_queue_keeps_no_other_out(weight: float) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        weights = {"b": weight} if weight else {}
        batcher = Batcher([FakeDevice(1.0)], create_policy("self_tuning"), 8192, clock=loop.time, weights=weights)
        refused = dict.fromkeys("ab", 0)
        for model in "ab":
            batcher.add_version(model)
        for model, requests in (("a", 9000), ("b", 100)):
            function = batch_function(FakeFunction(), 64)
            for _ in range(requests):
                try:
                    batcher.submit(LaneKey(model, 1, "f"), function, rows_of(1.0), 1, FakeReply())
                except Overloaded:
                    refused[model] += 1
        assert refused["b"] == 0 < refused["a"]

    run_in_fake_time(main())
