"""What goes on beside the calls: shadow checks, turns of models and callers."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.function import PlainWay
from app.batching.policy import SelfTuning
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.errors import (
    InvalidRequest,
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


def test_shadow_checks_wait_for_the_last_waiting_row() -> None:
    async def main() -> None:
        bench = Bench()
        bench.function.plain = PlainWay(FakeFunction(), lambda _: None)
        await bench.send(1.0)
        await asyncio.sleep(2.0)
        bench.batcher.state.slots.called_s = 1e6
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
        batcher = Batcher(
            devices, SelfTuning(), BatcherOptions(10, max_inline_s=0.5, preserve_order=True), clock=loop.time
        )
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


@pytest.mark.parametrize(("fair", "place"), [(False, 4), (True, 1)])
def test_callers_share_a_lane_if_that_is_asked_for(fair: bool, place: int) -> None:
    async def main() -> None:
        loop, model = asyncio.get_running_loop(), FakeFunction()
        batcher = Batcher([FakeDevice()], SelfTuning(), BatcherOptions(100, fair_callers=fair), clock=loop.time)
        function = batch_function(model, 1)
        for value, caller in ((1.0, "many"), (2.0, "many"), (3.0, "many"), (4.0, "many"), (5.0, "one")):
            batcher.submit(KEY, function, rows_of(value), 1, FakeReply(), caller=caller)
        await batcher.drain()
        assert model.computed.index(5.0) == place

    scenario(main)


def test_a_listener_that_fails_at_a_rejected_batch_keeps_no_request_from_its_answer() -> None:
    def listener(event: Event) -> None:
        if isinstance(event, BatchRejected):
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice()], SelfTuning(), BatcherOptions(100), listener, clock=loop.time)
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
