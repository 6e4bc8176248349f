"""The law of inline execution: no call is made on the event loop that is expected to take `max_inline_s` or more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.inference import Array
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import TimedDevice, batch_function, infer, request_now, run_in_fake_time

LIMIT_S = 1e-3

#: Seconds of a call by its elements: some tens of a small image are quick, one large image is not.
ELEMENT_S = 1e-6


class Model:
    """Knows which of its calls were made on the event loop, and what those cost."""

    def __init__(self) -> None:
        self.on_device = False
        self.last_s = 0.0
        self.inline_s: list[float] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.last_s = inputs["x"].size * ELEMENT_S
        if not self.on_device:
            self.inline_s.append(self.last_s)
        return {"y": inputs["x"]}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([4, 16, 64, 1024, 2000]), st.integers(1, 64), st.integers(1, 4)), max_size=20)
)
def test_no_call_above_the_limit_is_made_on_the_event_loop(turns: list[tuple[int, int, int]]) -> None:
    async def main() -> Model:
        model = Model()
        function = batch_function(model, 64)
        clock = asyncio.get_running_loop().time
        batcher = Batcher(
            [TimedDevice(model)], WorkConserving(), BatcherOptions(1000, max_inline_s=LIMIT_S), clock=clock
        )
        for size, rows, requests in turns:
            x = np.zeros((rows, size), np.float32)
            key = LaneKey("m", 1, "s", shape=((size,),))
            await asyncio.gather(*[infer(batcher, key, function, {"x": x}, rows) for _ in range(requests)])
            joined = np.zeros((2 * rows, size), np.float32)
            reply = asyncio.get_running_loop().create_future()
            handle = batcher.submit_coalesced(
                key, function, request_now(batcher, {"x": joined}, 2 * rows, reply, arrivals_s=[clock()] * 2)
            )
            if handle is not None:
                await reply
        return model

    assert all(seconds < LIMIT_S for seconds in run_in_fake_time(main()).inline_s)


def test_small_calls_are_made_on_the_event_loop_beside_large_ones_that_are_not() -> None:
    async def main() -> Model:
        model = Model()
        function = batch_function(model, 64)
        batcher = Batcher(
            [TimedDevice(model)],
            WorkConserving(),
            BatcherOptions(1000, max_inline_s=LIMIT_S),
            clock=asyncio.get_running_loop().time,
        )
        for size, rows in [(16, 1), (16, 1), (16, 1), (2000, 1), (16, 64), (16, 1), (2000, 1)]:
            key = LaneKey("m", 1, "s", shape=((size,),))
            await infer(batcher, key, function, {"x": np.zeros((rows, size), np.float32)}, rows)
        return model

    assert run_in_fake_time(main()).inline_s == [16 * ELEMENT_S] * 3


def test_a_call_that_may_take_as_long_as_its_values_say_is_never_made_on_the_event_loop() -> None:
    async def main() -> Model:
        model = Model()
        function = batch_function(model, 64, steady=False, initial_estimates={1: 1e-6, 64: 1e-6})
        clock = asyncio.get_running_loop().time
        batcher = Batcher(
            [TimedDevice(model)], WorkConserving(), BatcherOptions(1000, max_inline_s=LIMIT_S), clock=clock
        )
        for _ in range(3):
            key, x = LaneKey("m", 1, "s", shape=((4,),)), np.zeros((1, 4), np.float32)
            await infer(batcher, key, function, {"x": x}, 1)
            reply = asyncio.get_running_loop().create_future()
            assert (
                batcher.submit_coalesced(key, function, request_now(batcher, {"x": x}, 1, reply, arrivals_s=[clock()]))
                is not None
            )
            assert not reply.done()
            await reply
        return model

    assert run_in_fake_time(main()).inline_s == []


@pytest.mark.parametrize("measured_s", [LIMIT_S / 2, 10 * LIMIT_S])  # on the event loop, and on a device
def test_a_size_that_was_measured_in_a_bad_moment_is_found_by_calls_at_once_alone(measured_s: float) -> None:
    """As many requests as may share a call arrive in each turn: no batch is ever formed of what waits."""

    async def main() -> list[int]:
        model = Model()
        true_s = {rows: rows * 4 * ELEMENT_S for rows in (1, 2, 4, 8, 16, 32)}
        function = batch_function(model, 64, initial_estimates={**true_s, 64: measured_s})
        loop_time = asyncio.get_running_loop().time

        def clock() -> float:
            return loop_time() + sum(model.inline_s)

        batcher = Batcher([TimedDevice(model)], SelfTuning(), BatcherOptions(1000, max_inline_s=LIMIT_S), clock=clock)
        key = LaneKey("m", 1, "s", shape=((4,),))
        await infer(batcher, key, function, {"x": np.zeros((1, 4), np.float32)}, 1)
        sizes = []
        for _ in range(3000):
            rows = batcher.coalescable_rows("m", function)
            reply = asyncio.get_running_loop().create_future()
            inputs = {"x": np.zeros((rows, 4), np.float32)}
            assert batcher.submit_coalesced(
                key, function, request_now(batcher, inputs, rows, reply, arrivals_s=[clock()] * rows)
            )
            await reply
            sizes.append(rows)
        return sizes

    sizes = run_in_fake_time(main())
    assert sizes[0] == 32
    assert sizes[-500:] == [64] * 500
    first = sizes.index(64)
    if measured_s < LIMIT_S:  # a bad moment may double what calls take
        assert first < 10
        return
    assert sizes[first + 1 : first + 200] == [32] * 199, "a try is one call of many"


def test_coalesced_requests_whose_call_is_too_long_for_the_event_loop_share_one_call_of_a_device() -> None:
    async def main() -> Model:
        model = Model()
        function = batch_function(model, 64, initial_estimates={1: 1e-5, 64: 1.0})  # measured in a bad moment
        clock = asyncio.get_running_loop().time
        batcher = Batcher(
            [TimedDevice(model)], WorkConserving(), BatcherOptions(1000, max_inline_s=LIMIT_S), clock=clock
        )
        key, rows = LaneKey("m", 1, "s", shape=((4,),)), np.zeros((64, 4), np.float32)
        await infer(batcher, key, function, {"x": rows[:1]}, 1)
        inline = list(model.inline_s)
        assert batcher.coalescable_rows("m", function) == 64
        for seen in ([], [64 * 4 * ELEMENT_S]):  # on a device, which shows how quick it is; then here
            reply = asyncio.get_running_loop().create_future()
            batcher.submit_coalesced(
                key, function, request_now(batcher, {"x": rows}, 64, reply, arrivals_s=[clock()] * 64)
            )
            await reply
            for _ in range(100):
                function.costs(key.shape).record_undisturbed(64, 64 * 4 * ELEMENT_S)
            assert model.inline_s == inline + seen
        return model

    run_in_fake_time(main())
