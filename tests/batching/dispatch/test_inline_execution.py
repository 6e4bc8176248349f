"""Calls that are made on the event loop, and coalesced requests that share them."""

from __future__ import annotations

import asyncio

import pytest

from app.batching.batcher import Batcher
from app.batching.costs.cost_model import Costs
from app.batching.function import PlainWay
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.shapes.ragged import RaggedRows
from app.batching.state import BatcherOptions
from app.core.errors import (
    InferenceFailed,
    InvalidRequest,
)
from app.core.events import BatchExecuted, ShadowChecked, tell_all
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import QUICK, Bench, scenario, turns
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    infer,
    request_now,
    rows_of,
)


def test_what_is_quick_is_called_on_the_event_loop() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await asyncio.gather(*[bench.send(1.0) for _ in range(4)])  # how long that takes is not known yet
        bench.devices[0].broken = "A device was used"
        answers = await asyncio.gather(*[bench.send(float(value)) for value in range(2, 12)])
        assert [answer.outputs["y"][0, 0] for answer in answers] == [2.0 * value for value in range(2, 12)]
        assert bench.model.calls[1:] == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]
        assert bench.now == 1.0

    scenario(main)


@pytest.mark.parametrize("inline_s", [0.0, 2.0])
def test_a_call_costs_what_its_padded_size_costs(inline_s: float) -> None:
    async def main() -> None:
        bench = Bench(largest=8, inline_s=inline_s, tick_s=1e-6)
        await bench.send(1.0)
        for rows, sizes in ((3, {1, 4}), (5, {1, 4, 8}), (2, {1, 2, 4, 8})):
            await bench.send(1.0, rows)
            assert set(bench.function.costs(KEY.shape).measured) == sizes

    scenario(main)


def test_requests_that_arrived_together_cost_what_their_padded_size_costs() -> None:
    async def main() -> None:
        bench = Bench(largest=8, inline_s=2.0, tick_s=1e-6)
        await bench.send(1.0, 4)
        costs = bench.function.costs(KEY.shape)
        assert costs.curve.call_s(4) == pytest.approx(1.0, rel=1e-3)
        for _ in range(20):
            reply, arrivals_s = bench.loop.create_future(), [bench.loop.time()] * 2
            bench.batcher.submit_coalesced(
                KEY, bench.function, request_now(bench.batcher, rows_of(2.0, 3), 3, reply, arrivals_s=arrivals_s)
            )
            assert (await reply).outputs["y"].tolist() == [[4.0, 4.0]] * 3
        assert set(costs.measured) == {4}
        assert costs.curve.call_s(4) < 0.5

    scenario(main)


def test_what_is_not_quick_is_not() -> None:
    async def main() -> None:
        bench = Bench(inline_s=0.9)
        for value in (1.0, 2.0, 3.0):
            await bench.send(value)
        assert bench.now == 3.0

    scenario(main)


def test_a_request_of_more_rows_than_would_be_quick_is_not_called_on_the_event_loop() -> None:
    async def main() -> None:
        bench = Bench(inline_s=0.9)
        bench.function = batch_function(bench.model, initial_estimates={1: 0.3, 2: 0.45, 4: 0.95})
        await bench.send(1.0, rows=3)  # the plan has two rows, as these are cheaper in a call of two, which is quick
        assert bench.now == 1.0

    scenario(main)


def test_what_is_quick_no_longer_goes_back_to_the_device_and_may_return() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        costs = bench.function.costs(KEY.shape)
        for _ in range(10):
            costs.record_undisturbed(1, 5.0)
        bench.devices[0].broken = "A device was used"
        with pytest.raises(InferenceFailed, match="takes no work"):
            await bench.send(2.0)
        costs.record_undisturbed(1, 1.0)
        await bench.send(3.0)

    scenario(main)


@pytest.mark.parametrize(("rows", "key"), [(4, KEY), (1, KEY._replace(shape=((1024, 1024, 3),)))])
def test_a_call_of_a_size_or_shape_that_was_never_timed_is_not_made_on_the_event_loop(rows: int, key: LaneKey) -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        bench.devices[0].broken = "A device was used"
        await bench.send(2.0)
        with pytest.raises(InferenceFailed, match="takes no work"):
            await bench.send(3.0, rows=rows, key=key)

    scenario(main)


def test_coalesced_requests_are_computed_at_once_only_if_their_size_was_timed() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        batcher, function, now = bench.batcher, bench.function, bench.loop.time()
        assert batcher.coalescable_rows("m", function) == 4
        for rows, at_once in ((4, False), (1, True)):
            reply = bench.loop.create_future()
            assert batcher.submit_coalesced(
                KEY, function, request_now(batcher, rows_of(1.0, rows), rows, reply, arrivals_s=[now] * rows)
            )
            assert reply.done() == at_once
            await reply

    scenario(main)


def test_where_a_row_takes_long_nothing_is_coalesced() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        costs = bench.function.costs(KEY.shape)
        costs.record_undisturbed(0, 0.001)  # of requests without rows, which tells nothing of a row
        costs.record_undisturbed(1, 1000.0)
        assert bench.batcher.coalescable_rows("m", bench.function) == 0

    scenario(main)


@pytest.mark.parametrize("known", [True, False])
def test_coalesced_requests_count_one_by_one(known: bool) -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0, rows=4 if known else 1)
        arrivals_s = [bench.loop.time() - 3.0, bench.loop.time() - 1.0]
        reply = bench.loop.create_future()
        bench.batcher.submit_coalesced(
            KEY, bench.function, request_now(bench.batcher, rows_of(2.0, 4), 4, reply, arrivals_s=arrivals_s)
        )
        answer = await reply
        assert (answer.timing.queue_s, answer.timing.rows) == (3.0, 4)
        batch = bench.events[-1]
        assert (batch.rows, list(batch.queue_s)) == (4, [3.0, 1.0])
        assert not bench.function.requests_under_way

    scenario(main)


def test_coalesced_requests_that_find_no_room_together_are_left_to_be_submitted_one_by_one() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0, max_rows=8)
        await bench.send(1.0)
        waiting = [bench.send(1.0) for _ in range(6)]
        await turns(1)
        reply = bench.loop.create_future()
        arrivals_s = [bench.loop.time()] * 4
        handle = bench.batcher.submit_coalesced(
            KEY, bench.function, request_now(bench.batcher, rows_of(2.0, 4), 4, reply, arrivals_s=arrivals_s)
        )
        assert handle is None
        assert not reply.done()
        await asyncio.gather(*waiting)

    scenario(main)


@pytest.mark.parametrize("timeout_s", [-0.5, 0.0])
def test_coalesced_requests_whose_time_is_over_are_not_computed(timeout_s: float) -> None:
    async def main() -> None:
        bench = Bench(inline_s=0.1)
        bench.function.initial_estimates = QUICK
        reply, handle = bench.coalesce(1.0, 2.0, timeout_s=timeout_s)
        assert handle is None
        assert not reply.done()
        assert bench.model.calls == []

    scenario(main)


def test_after_a_batch_on_the_event_loop_what_was_read_meanwhile_shares_the_next_one() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)

        def submit(*values: float) -> None:
            for value in values:
                bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(value), 1, FakeReply()))

        submit(1, 2, 3, 4, 5)
        bench.loop.call_soon(submit, 6, 7, 8)
        await turns()
        assert bench.model.calls == [[1, 2, 3, 4], [5, 6, 7, 8]]

    scenario(main)


def test_rows_that_may_not_share_a_call_or_are_none_or_too_many_are_not_coalesced() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        assert bench.batcher.coalescable_rows("m", bench.function) == 0, "nothing was measured yet"
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        bench.function.record_costs(KEY.shape, bench.function.costs(KEY.shape))
        for rows in (0, 5):
            reply, handle = bench.coalesce(*[1.0] * rows)
            assert (handle, reply.answers) == (None, [])
        assert bench.batcher.coalescable_rows("m", bench.function) == 4
        bench.function.stop_batching("because of what a call returned")
        assert bench.batcher.coalescable_rows("m", bench.function) == 0
        assert bench.coalesce(1.0)[1] is None
        await bench.batcher.drain()
        assert bench.model.calls == []

    scenario(main)


@pytest.mark.parametrize("side", ["ragged", "ragged_outputs"])
def test_ragged_rows_are_not_coalesced(side: str) -> None:
    """Callers cut coalesced answers by the number of their rows, which is not that of ragged values."""

    async def main() -> None:
        bench = Bench(inline_s=2.0)
        ragged = RaggedRows({"x": ("x_1",)})
        bench.function = batch_function(bench.model, initial_estimates=QUICK, **{side: ragged})
        bench.function.record_costs(KEY.shape, bench.function.costs(KEY.shape))
        assert bench.batcher.coalescable_rows("m", bench.function) == 0
        reply, handle = bench.coalesce(1.0, 2.0)
        assert (handle, reply.answers) == (None, [])

    scenario(main)


def test_coalesced_requests_do_not_overtake_those_that_wait() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        waiting = bench.send(1.0)
        await turns(1)
        reply, _ = bench.coalesce(2.0, 2.0)
        assert not reply.done()
        await waiting
        assert reply.done()
        assert bench.model.calls == [[1.0, 2.0, 2.0, 1.0]]

    scenario(main)


def test_coalesced_requests_wait_for_a_free_device_although_their_call_is_quick() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        slow = bench.send(1.0, key=KEY._replace(signature="slow"))
        await turns()
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        reply, _ = bench.coalesce(2.0, 2.0)
        assert not reply.done()
        await slow
        assert reply.done()
        assert bench.now == 1.0

    scenario(main)


def test_coalesced_requests_wait_for_others_as_long_as_the_options_say() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0, delay_s=5.0)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        reply, _ = bench.coalesce(1.0, 1.0)
        await asyncio.sleep(4.0)
        assert not reply.done()
        await bench.send(2.0)
        assert reply.done()
        assert bench.now == 5.0

    scenario(main)


def test_while_the_batcher_drains_nothing_is_coalesced() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)
        await bench.batcher.drain()
        reply, handle = bench.coalesce(1.0, 1.0)
        assert (handle, reply.answers, bench.model.calls) == (None, [], [])

    scenario(main)


def test_what_failed_coalesced_requests_took_is_no_cost_of_their_size() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0, tick_s=1e-6)
        await bench.send(1.0)
        costs = bench.function.costs(KEY.shape)
        before_s = costs.curve.call_s(1)
        reply, _ = bench.coalesce(float("nan"))
        assert [type(each) for each in reply.answers] == [InferenceFailed]
        assert costs.curve.call_s(1) == before_s

    scenario(main)


@pytest.mark.parametrize("coalesced", [False, True])
def test_what_is_computed_on_the_event_loop_is_checked_in_its_shadow(coalesced: bool) -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        plain = PlainWay(FakeFunction(), lambda _: None)
        bench.function = batch_function(bench.model, initial_estimates=QUICK, plain=plain)
        if coalesced:
            bench.coalesce(1.0, 1.0)
        else:
            await bench.send(1.0)
        await asyncio.sleep(2.0)
        assert [event.result for event in bench.events if isinstance(event, ShadowChecked)] == ["agrees"]

    scenario(main)


def test_what_takes_just_the_limit_is_not_quick() -> None:
    async def main() -> None:
        limit_s = Costs(batch_function(FakeFunction()).sizes, QUICK).undisturbed_s(1)
        for inline_s, quick in ((limit_s, False), (limit_s * 1.001, True)):
            bench = Bench(inline_s=inline_s)
            bench.function = batch_function(bench.model, initial_estimates=QUICK)
            bench.function.record_costs(KEY.shape, bench.function.costs(KEY.shape))
            assert bench.batcher.coalescable_rows("m", bench.function) == (4 if quick else 0)
            assert bench.coalesce(1.0, 1.0)[0].done() == quick
            await bench.batcher.drain()
            assert bench.now == (0.0 if quick else 1.0)

    scenario(main)


def test_by_default_no_call_is_made_on_the_event_loop_and_no_answer_waits_for_an_earlier_one() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        devices = [FakeDevice(5.0, "slow"), FakeDevice(0.5, "quick")]
        batcher = Batcher(devices, SelfTuning(), BatcherOptions(10), clock=loop.time)
        function = batch_function(FakeFunction(), initial_estimates=QUICK)
        keys = [KEY._replace(signature=name) for name in "ab"]
        slow, quick = [asyncio.create_task(infer(batcher, key, function, rows_of(1.0), 1)) for key in keys]
        await quick
        assert not slow.done()
        third = asyncio.create_task(infer(batcher, keys[0], function, rows_of(1.0), 1))  # of the slow one's lane
        await turns()
        assert not third.done()
        await third
        assert not slow.done()
        await slow

    scenario(main)


class BrokenReply(FakeReply):
    """Its caller's connection fails while the answer is written."""

    def __init__(self, *, also_errors: bool) -> None:
        super().__init__()
        self._also_errors = also_errors

    def set_result(self, result: object, /) -> None:
        raise RuntimeError("the connection failed")

    def set_exception(self, exception: BaseException, /) -> None:
        if self._also_errors:
            raise RuntimeError("the connection failed again")
        super().set_exception(exception)


@pytest.mark.parametrize("also_errors", [False, True])
@pytest.mark.parametrize("inline_s", [0.0, 2.0])
def test_a_reply_that_cannot_be_set_harms_no_neighbour(inline_s: float, caplog, *, also_errors: bool) -> None:
    async def main() -> None:
        bench = Bench(inline_s=inline_s)
        await asyncio.gather(bench.send(5.0), bench.send(6.0))
        broken = BrokenReply(also_errors=also_errors)
        bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(1.0, 1), 1, broken))
        neighbour = bench.send(2.0)
        assert (await neighbour).outputs["y"].tolist() == [[4.0, 4.0]]
        assert [type(each) for each in broken.answers] == ([] if also_errors else [InferenceFailed])
        assert bench.function.requests_under_way == 0
        await bench.batcher.drain()

    scenario(main)
    assert "A reply could not be set" in caplog.text


def test_a_listener_that_fails_keeps_no_request_from_its_answer() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher.completion._listener = tell_all({BatchExecuted: lambda event: 1 / 0})
        await bench.send(1.0)
        await bench.send(2.0)
        await bench.batcher.drain()

    scenario(main)


def test_on_the_event_loop_a_bad_request_fails_alone_too() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        tasks = [bench.send(value) for value in (2.0, -3.0, 4.0)]
        good, bad, fine = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(bad, InvalidRequest)
        assert [answer.outputs["y"][0, 0] for answer in (good, fine) if isinstance(answer, Answer)] == [4.0, 8.0]

    scenario(main)
