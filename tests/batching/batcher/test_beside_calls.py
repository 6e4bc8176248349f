"""What goes on beside the calls: drains, shadow checks, turns of models and callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest

from app.batching.batch import BatchInFlight, Execution
from app.batching.batcher import Batcher
from app.batching.cost_model import Costs
from app.batching.function import PlainWay
from app.batching.policy import SelfTuning
from app.batching.request import PendingRequest
from app.batching.shapes.padding import ShapePadding
from app.batching.waiting.lane import Lane
from app.core.errors import (
    InferenceFailed,
    InvalidRequest,
    Overloaded,
)
from app.core.events import BatchExecuted, BatchRejected, Event, ShadowChecked
from tests.batching.batcher.batcher_bench import QUICK, Bench, Coalesced, scenario, turns
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    infer,
    rows_of,
)


def test_a_drain_that_is_asked_for_twice_ends_for_both_and_is_told() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        assert not bench.batcher.drained
        waiting = bench.send(1.0)
        await turns()
        drains = [asyncio.create_task(bench.batcher.drain()) for _ in range(2)]
        await turns()
        assert not bench.batcher.drained
        assert repr(bench.batcher).endswith(", draining>")
        await asyncio.sleep(1.0)
        assert waiting.done(), "all that waits is due"
        await turns()
        assert all(drain.done() for drain in drains)
        assert bench.batcher.drained

    scenario(main)


def test_a_group_that_nobody_starts_is_told_after_so_many_seconds() -> None:
    async def main() -> None:
        bench = Bench()
        await asyncio.sleep(7.0)
        requests = [PendingRequest(rows_of(1.0), 1, FakeReply(), 0.0) for _ in range(2)]
        rejection = Execution([], 0.0, 0.0, 0, 0.0, InvalidRequest("no"))
        lane = Lane(KEY, bench.function)
        bench.batcher._isolations.record_end(BatchInFlight(lane, requests, "idle"), rejection, bench.loop.time())
        await asyncio.sleep(5.0)
        assert bench.batcher.failures(5.0) == []
        assert bench.batcher.failures(4.9) == ["A batch is due for more than 4.9 s although a device is free"]
        free, bench.batcher._slots.free = bench.batcher._slots.free, []
        assert bench.batcher.failures(4.9) == []
        bench.batcher._slots.free = free

    scenario(main)


def test_a_closed_batcher_starts_and_answers_nothing() -> None:
    async def main() -> None:
        bench = Bench(delay_s=0.5)
        replies = [FakeReply(), FakeReply()]
        for reply, timeout_s in zip(replies, (1.0, inf), strict=True):
            deadline_s = bench.loop.time() + timeout_s
            bench.batcher.submit(KEY, bench.function, rows_of(1.0), 1, reply, deadline_s=deadline_s)
        await turns()
        bench.batcher.close()
        await asyncio.sleep(5.0)
        assert [reply.answers for reply in replies] == [[], []]
        assert bench.model.calls == []

    scenario(main)


def test_while_a_shadow_check_has_the_device_requests_and_a_drain_wait_for_its_end() -> None:
    async def main() -> None:
        for drains in (False, True):
            bench = Bench()
            bench.function.plain = PlainWay(FakeFunction(), lambda _: None)
            await bench.send(1.0)
            await asyncio.sleep(0.5)
            waiting = asyncio.create_task(bench.batcher.drain()) if drains else bench.send(2.0)
            await asyncio.sleep(5.0)
            assert waiting.done()
            assert [event.result for event in bench.events if isinstance(event, ShadowChecked)] == ["agrees"]

    scenario(main)


def test_shadow_checks_wait_for_the_last_waiting_row() -> None:
    async def main() -> None:
        bench = Bench()
        bench.function.plain = PlainWay(FakeFunction(), lambda _: None)
        await bench.send(1.0)
        await asyncio.sleep(2.0)
        bench.batcher._shadow._calls_s = 1e6
        await asyncio.gather(*[bench.send(float(value)) for value in range(5)])  # calls of 4 rows and 1
        await asyncio.sleep(2.0)
        events = [type(event) for event in bench.events]
        assert events == [BatchExecuted, ShadowChecked, BatchExecuted, BatchExecuted, ShadowChecked]

    scenario(main)


def test_models_of_equal_weight_take_turns_though_one_was_first() -> None:
    async def main() -> None:
        bench = Bench()
        for model in "mn":
            bench.batcher.tune(model, SelfTuning(), 1.0)
        sent = [bench.send(1.0, key=KEY._replace(model="m")) for _ in range(12)]
        sent += [bench.send(2.0, key=KEY._replace(model="n")) for _ in range(12)]
        await asyncio.gather(*sent)
        assert [call[0] for call in bench.model.calls] == [1.0, 2.0] * 3

    scenario(main)


def test_where_answers_keep_their_order_coalesced_ones_wait_for_a_batch_in_flight() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        devices = [FakeDevice(name=str(number), hardware=number) for number in range(2)]
        batcher = Batcher(devices, SelfTuning(), 10, clock=loop.time, max_inline_s=0.5, preserve_order=True)
        slow = batch_function(FakeFunction())
        quick = batch_function(FakeFunction(), initial_estimates=QUICK)
        first = asyncio.create_task(infer(batcher, KEY, slow, rows_of(1.0), 1))
        await turns()
        reply = Coalesced(2)
        batcher.submit_coalesced(KEY, quick, rows_of(1.0, 2), 2, reply, arrivals_s=[loop.time()] * 2)
        assert not reply.done()
        await first
        await batcher.drain()
        assert reply.done()

    scenario(main)


def test_a_function_whose_past_calls_tell_nothing_runs_on_a_device_though_they_were_quick() -> None:
    async def main() -> None:
        for steady, seconds in ((True, 0.0), (False, 1.0)):
            bench = Bench(inline_s=2.0)
            bench.function = batch_function(bench.model, initial_estimates=QUICK, steady=steady)
            await bench.send(1.0)
            assert bench.now == seconds

    scenario(main)


def test_a_call_on_the_event_loop_is_not_shared_among_idle_devices() -> None:
    async def main() -> None:
        bench = Bench(devices=2, inline_s=9.0)
        bench.function = batch_function(bench.model, initial_estimates={1: 1.0, 2: 1.4, 4: 2.4})
        await asyncio.gather(*[bench.send(float(value)) for value in range(4)])
        assert [len(call) for call in bench.model.calls] == [4]

    scenario(main)


def test_callers_of_good_requests_share_calls_also_after_one_that_ran_alone() -> None:
    async def main() -> None:
        bench = Bench()
        for callers in ("a", "ab"):
            for caller in callers:
                bench.batcher.submit(KEY, bench.function, rows_of(1.0), 1, FakeReply(), caller=caller)
            await asyncio.sleep(2.0)
        assert [len(call) for call in bench.model.calls] == [1, 2]

    scenario(main)


def test_by_default_what_would_be_late_is_rejected() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher, function = Batcher([FakeDevice()], SelfTuning(), 100, clock=loop.time), batch_function(FakeFunction())
        await infer(batcher, KEY, function, rows_of(1.0), 1)
        crowd = [asyncio.create_task(infer(batcher, KEY, function, rows_of(1.0), 1)) for _ in range(10)]
        await turns()
        with pytest.raises(Overloaded):
            await infer(batcher, KEY, function, rows_of(1.0), 1, loop.time() + 1.0)
        await asyncio.gather(*crowd)

    scenario(main)


@pytest.mark.parametrize(("fair", "place"), [(False, 4), (True, 1)])
def test_callers_share_a_lane_if_that_is_asked_for(fair: bool, place: int) -> None:
    async def main() -> None:
        loop, model = asyncio.get_running_loop(), FakeFunction()
        batcher = Batcher([FakeDevice()], SelfTuning(), 100, clock=loop.time, fair_callers=fair)
        function = batch_function(model, 1)
        for value, caller in ((1.0, "many"), (2.0, "many"), (3.0, "many"), (4.0, "many"), (5.0, "one")):
            batcher.submit(KEY, function, rows_of(value), 1, FakeReply(), caller=caller)
        await batcher.drain()
        assert model.computed.index(5.0) == place

    scenario(main)


def test_a_drain_ends_although_no_device_takes_the_last_batch() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        waiting = bench.send(1.0)
        await turns()
        bench.devices[0].broken = "away"
        await bench.batcher.drain()
        with pytest.raises(InferenceFailed, match="takes no work"):
            await waiting
        assert bench.batcher.failures(5.0)

    scenario(main)


class OnceRefusing(FakeDevice):
    """Refuses the start of this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._left -= 1
        if not self._left:
            raise RuntimeError("can't start new thread")
        super().start(work, done)


@pytest.mark.parametrize("number", [1, 2])
def test_a_device_that_refuses_one_start_gets_what_waits_in_other_lanes(number: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([OnceRefusing(number)], SelfTuning(), 100, clock=loop.time)
        functions = [batch_function(FakeFunction()) for _ in range(3)]
        asked = [
            asyncio.create_task(infer(batcher, KEY._replace(model=str(lane)), function, rows_of(1.0), 1))
            for lane, function in enumerate(functions)
        ]
        await turns()
        await batcher.drain()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, InferenceFailed) for each in answers] == [lane == number - 1 for lane in range(3)]
        assert "can't start new thread" in batcher.failures(5.0)[0]

    scenario(main)


def test_requests_that_left_the_queue_are_answered_whatever_keeps_their_batch_from_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Costs, rows: int, now: float) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        bench = Bench()
        with monkeypatch.context() as patch:
            patch.setattr(Costs, "record_dispatch", broken)
            with pytest.raises(InferenceFailed, match="could not be started"):
                await bench.send(1.0)
        assert bench.function.requests_under_way == 0
        assert (await bench.send(2.0)).outputs["y"].tolist() == [[4.0, 4.0]]
        await bench.batcher.drain()

    scenario(main)


def test_a_listener_that_fails_at_a_rejected_batch_keeps_no_request_from_its_answer() -> None:
    def listener(event: Event) -> None:
        if isinstance(event, BatchRejected):
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice()], SelfTuning(), 100, listener, clock=loop.time)
        function = batch_function(FakeFunction())
        asked = [asyncio.create_task(infer(batcher, KEY, function, rows_of(value), 1)) for value in (1.0, -1.0)]
        await turns()
        await batcher.drain()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, InvalidRequest) for each in answers] == [False, True]

    scenario(main)


def test_a_padded_call_is_made_on_the_event_loop_only_if_one_of_its_length_was_quick() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0.0})
        bench.function = batch_function(bench.model, padding=padding)
        key = KEY._replace(shape=((8,),), padded=True)
        ends = []
        for length in (5, 5, 8, 8):
            call = infer(bench.batcher, key, bench.function, {"x": np.ones((1, length), np.float32)}, 1)
            assert (await call).outputs["y"].shape == (1, length)
            ends.append(bench.now)
        assert ends == [1.0, 1.0, 2.0, 2.0]

    scenario(main)
