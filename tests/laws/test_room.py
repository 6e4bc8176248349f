"""Whatever other models send, a model has the room that is kept for it, in rows and bytes.

What is accepted is answered. A request larger than what is free is accepted while less than half of its model's room is
taken, and only then; it takes half of it, and requests that come meanwhile have the other half.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.state import BatcherOptions
from app.core.errors import Overloaded
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    request_now,
    rows_of,
    run_in_fake_time,
)

CAPACITY = 40

#: Of all that waits. A row of two numbers has half of a row's share of them.
BYTES = 16 * CAPACITY
MODELS = ("a", "b", "c")


@dataclass(frozen=True)
class Call:
    at_s: float
    model: str
    lane: int
    rows: int
    width: int
    cancel_after_s: float


calls = st.builds(
    Call,
    at_s=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.5, 3.0]),
    model=st.sampled_from(["a", "a", "a", *MODELS]),
    lane=st.integers(0, 1),
    rows=st.sampled_from([1, 2, 3, 9, 30, 50, 200]),
    width=st.sampled_from([2, 2, 2, 7, 40]),
    cancel_after_s=st.sampled_from([99.0, 99.0, 0.2]),
)


@settings(max_examples=200, deadline=None)
@given(
    schedule=st.lists(calls, min_size=1, max_size=40),
    weights=st.dictionaries(st.sampled_from(MODELS), st.sampled_from([0.5, 2.0, 9.0])),
)
def test_a_model_is_never_rejected_for_lack_of_the_room_that_is_kept_for_it(
    schedule: list[Call], weights: dict[str, float]
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        policy = WorkConserving()
        batcher = Batcher(
            [FakeDevice(1.0)], policy, BatcherOptions(CAPACITY, weights=weights, max_queue_bytes=BYTES), clock=loop.time
        )
        for model in MODELS:
            batcher.add_version(model)
        functions = {model: batch_function(FakeFunction()) for model in MODELS}
        accepted: list[tuple[FakeReply, RequestHandle]] = []

        kept = {model: batcher.queue.room.kept(model) for model in MODELS}
        halves: dict[PendingRequest, int] = {}  # of the room of large requests

        def waiting(model: str) -> int:
            """The room that it takes: rows, or 16 bytes as a row; of a large one all bytes to the end, or half."""
            requests = [each for lane in batcher.queue.lanes if lane.key.model == model for each in lane]
            needed = {each: max(each.rows, -(-each.tensor_bytes // 16)) for each in requests}
            return sum(min(rows, halves.get(each, rows)) for each, rows in needed.items())

        def send(call: Call) -> None:
            reply, before = FakeReply(), waiting(call.model)
            room = CAPACITY - sum(kept[model] for model in MODELS if model != call.model)
            needed = max(call.rows, -(-4 * call.width * call.rows // 16))
            free = CAPACITY - sum(max(waiting(model), kept[model]) for model in MODELS if model != call.model)
            half_free = room - max(0, free - before) < (room + 1) // 2
            key = LaneKey(call.model, 1, str(call.lane), (), ((call.width,),))
            inputs = {"x": np.ones((call.rows, call.width), np.float32)}
            try:
                handle = batcher.submit(key, functions[call.model], request_now(batcher, inputs, call.rows, reply))
            except Overloaded:
                assert not half_free
                assert before + needed > kept[call.model]
                return
            if needed > free - before:
                halves[handle._request] = (room + 1) // 2
            accepted.append((reply, handle))
            loop.call_later(call.cancel_after_s, lambda: None if reply.done() else cancel(reply, handle))
            assert before + needed <= kept[call.model] or batcher.queue.room.rows <= CAPACITY
            assert batcher.queue.room.rows == sum(map(waiting, MODELS))

        def cancel(reply: FakeReply, handle: RequestHandle) -> None:
            reply.set_result("cancelled")
            handle.cancel()

        for call in schedule:
            loop.call_later(call.at_s, send, call)
        await asyncio.sleep(2000)
        await batcher.drain()
        assert all(isinstance(reply.answers[0], Answer) or reply.answers == ["cancelled"] for reply, _ in accepted)
        assert repr(batcher.queue.room).startswith("<Room 0/40 rows")

    run_in_fake_time(main())


@pytest.mark.parametrize("weight", [0.0, 9.0])
def test_a_model_that_filled_the_queue_keeps_no_other_out(weight: float) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        weights = {"b": weight} if weight else {}
        batcher = Batcher([FakeDevice(1.0)], SelfTuning(), BatcherOptions(8192, weights=weights), clock=loop.time)
        rejected = dict.fromkeys("ab", 0)
        for model in "ab":
            batcher.add_version(model)
        for model, requests in (("a", 9000), ("b", 100)):
            function = batch_function(FakeFunction(), 64)
            for _ in range(requests):
                try:
                    batcher.submit(LaneKey(model, 1, "f"), function, request_now(batcher, rows_of(1.0), 1, FakeReply()))
                except Overloaded:
                    rejected[model] += 1
        assert rejected["b"] == 0 < rejected["a"]

    run_in_fake_time(main())


def test_requests_that_come_during_a_large_one_are_computed_between_its_parts() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], SelfTuning(), BatcherOptions(CAPACITY), clock=loop.time)
        batcher.add_version("m")
        function = batch_function(FakeFunction(), 4)
        key = LaneKey("m", 1, "f", (), ((1,),))
        large, small = FakeReply(), FakeReply()
        batcher.submit(key, function, request_now(batcher, rows_of(1.0, 100 * CAPACITY), 100 * CAPACITY, large))
        for _ in range(50):
            await asyncio.sleep(5)
            small = FakeReply()
            batcher.submit(key, function, request_now(batcher, rows_of(2.0), 1, small))
            await asyncio.sleep(3)
            assert isinstance(small.answers[0], Answer)
        assert not large.answers
        await batcher.drain()
        assert len(large.answers[0].outputs["y"]) == 100 * CAPACITY
        assert batcher.queue.room.rows == 0

    run_in_fake_time(main())
