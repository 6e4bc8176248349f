from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from math import inf, sqrt
from typing import Any
from weakref import ref

import numpy as np
import pytest

from app.batching.batch import BatchInFlight, Execution
from app.batching.batcher import Batcher
from app.batching.cost_model import Costs
from app.batching.devices import Device
from app.batching.function import PlainWay
from app.batching.policy import BatchingOptions, BatchPlan, LaneView, SelfTuning
from app.batching.request import LaneKey, PendingRequest
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.batching.waiting.lane import Lane
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    Overloaded,
    ServingError,
    ShuttingDown,
)
from app.core.events import BatchExecuted, BatchRejected, Event, ShadowChecked, tell_all
from app.core.interfaces import Cancellable
from app.core.reply import Answer
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    LateDevice,
    batch_function,
    infer,
    rows_of,
    run_in_fake_time,
)


class Coalesced(FakeReply):
    """The reply of several requests of one row each."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.rows = [1] * requests
        self.own = [FakeReply() for _ in range(requests)]

    def done(self) -> bool:
        return super().done() or all(reply.done() for reply in self.own)

    def apart(self) -> list[FakeReply]:
        return self.own


class Bench:
    """A batcher over fake devices that take one second a batch, and what it said."""

    def __init__(
        self,
        *,
        devices: int = 1,
        delay_s: float = 0.0,
        max_rows: int = 100,
        largest: int = 4,
        inline_s: float = 0.0,
        admission: bool = True,
        tick_s: float = 0.0,  # how far each look at the clock moves it: calls on the event loop take that long
    ) -> None:
        ticks = count()
        self.devices: Sequence[FakeDevice] = [FakeDevice(hardware=number) for number in range(devices)]
        self.events: list[Event] = []
        self.loop = asyncio.get_running_loop()
        self.batcher = Batcher(
            self.devices,
            SelfTuning(BatchingOptions(max_batch_delay_ms=1000 * delay_s)),
            max_rows,
            self.events.append,
            lambda: self.loop.time() + tick_s * next(ticks),
            max_inline_s=inline_s,
            admission=admission,
        )
        self.model = FakeFunction()
        self.function = batch_function(self.model, largest)
        self.start_s = self.loop.time()

    @property
    def now(self) -> float:
        return self.loop.time() - self.start_s

    def send(
        self, value: float, rows: int = 1, timeout_s: float = inf, key: LaneKey = KEY, priority_offset_s: float = 0.0
    ) -> asyncio.Task[Answer]:
        deadline_s = self.loop.time() + timeout_s
        call = infer(
            self.batcher,
            key,
            self.function,
            rows_of(value, rows),
            rows,
            deadline_s,
            priority_offset_s=priority_offset_s,
        )
        return asyncio.create_task(call)

    def coalesce(self, *values: float, timeout_s: float = inf) -> tuple[Coalesced, Cancellable | None]:
        """Submits a request of one row for each value, all as one."""
        reply, now, rows = Coalesced(len(values)), self.loop.time(), len(values)
        inputs = {"x": np.array([[value, value] for value in values], np.float32).reshape(-1, 2)}
        handle = self.batcher.submit_coalesced(
            KEY, self.function, inputs, rows, reply, arrivals_s=[now] * rows, deadline_s=now + timeout_s
        )
        return reply, handle

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, BatchExecuted)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def scenario(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_fake_time(make())


def test_an_idle_server_does_not_wait_for_more_requests() -> None:
    async def main() -> None:
        bench = Bench()
        answer = await bench.send(3.0)
        assert answer.outputs["y"].tolist() == [[6.0, 6.0]]
        assert (bench.now, answer.timing.queue_s, answer.timing.rows) == (1.0, 0.0, 1)
        assert bench.reasons == ["idle"]

    scenario(main)


def test_what_is_read_in_one_turn_shares_a_batch() -> None:
    async def main() -> None:
        bench = Bench()
        await asyncio.gather(*[bench.send(value) for value in (1.0, 2.0, 3.0)])
        assert bench.model.calls == [[1, 2, 3, 1]]

    scenario(main)


def test_batches_fill_while_the_device_works() -> None:
    async def main() -> None:
        bench = Bench()
        first = bench.send(1.0)
        await turns()
        rest = [bench.send(value) for value in (2.0, 3.0, 4.0, 5.0, 6.0)]
        await asyncio.gather(first, *rest)
        assert bench.model.calls == [[1], [2, 3, 4, 5], [6]]
        assert bench.reasons == ["idle", "full", "idle"]

    scenario(main)


def test_the_delay_counts_from_the_oldest_request() -> None:
    async def main() -> None:
        bench = Bench(delay_s=0.5)
        first = bench.send(1.0)
        await asyncio.sleep(0.4)
        second = bench.send(2.0)
        answers = await asyncio.gather(first, second)
        assert bench.now == pytest.approx(1.5)
        assert [answer.timing.queue_s for answer in answers] == pytest.approx([0.5, 0.1])
        assert bench.reasons == ["delay"]

    scenario(main)


def test_a_lone_client_never_waits() -> None:
    async def main() -> None:
        bench = Bench(largest=64)
        for _ in range(3):
            await bench.send(1.0)
        assert bench.now == 3.0

    scenario(main)


def test_a_full_batch_does_not_wait_out_the_delay() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        await asyncio.gather(*[bench.send(float(value)) for value in range(4)])
        assert bench.now == 1.0
        assert bench.reasons == ["full"]

    scenario(main)


def test_the_lane_with_the_oldest_head_is_first() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        other = LaneKey("m", 1, "other")
        tasks = [bench.send(1.0, key=other)]
        await asyncio.sleep(0.1)
        tasks += [bench.send(value) for value in (2.0, 3.0, 4.0, 5.0)]  # full, and still younger
        await asyncio.gather(blocker, *tasks)
        assert bench.model.calls == [[0], [1], [2, 3, 4, 5]]

    scenario(main)


def test_an_urgent_request_overtakes_in_its_lane_and_between_lanes() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        blocker = bench.send(0.0)
        await turns()
        other = LaneKey("m", 1, "other")
        tasks = [bench.send(1.0), bench.send(2.0, key=other)]
        await asyncio.sleep(0.2)
        tasks += [bench.send(3.0, priority_offset_s=0.3), bench.send(4.0, key=other, priority_offset_s=0.1)]
        await asyncio.gather(blocker, *tasks)
        assert bench.model.computed == [0, 3, 1, 2, 4]

    scenario(main)


def test_several_devices_work_at_the_same_time() -> None:
    async def main() -> None:
        bench = Bench(devices=2)
        await asyncio.gather(*[bench.send(float(value)) for value in range(8)])
        assert bench.now == 1.0

    scenario(main)


@pytest.mark.parametrize(("delay_s", "calls"), [(0.0, [2, 2]), (10.0, [4])])
def test_idle_devices_share_a_full_batch_only_if_the_rest_need_not_wait(delay_s: float, calls: list[int]) -> None:
    async def main() -> None:
        bench = Bench(devices=2, delay_s=delay_s)
        bench.function = batch_function(bench.model, initial_estimates={1: 1.0, 2: 1.4, 4: 2.4})
        await asyncio.gather(*[bench.send(float(value)) for value in range(4)])
        assert [len(each) for each in bench.model.calls] == calls
        assert bench.now == 1.0

    scenario(main)


def test_the_cancelled_is_never_computed_and_its_neighbour_is() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        gone, neighbour = bench.send(1.0), bench.send(2.0)
        await turns()
        gone.cancel()
        await turns()
        assert bench.batcher.queue.rows == 1
        await asyncio.gather(blocker, neighbour)
        assert bench.model.computed == [0, 2]

    scenario(main)


def test_a_request_cancelled_while_executing_harms_no_other() -> None:
    async def main() -> None:
        bench = Bench()
        gone, neighbour = bench.send(1.0), bench.send(2.0)
        await asyncio.sleep(0.5)
        gone.cancel()
        assert (await neighbour).outputs["y"].tolist() == [[4.0, 4.0]]
        assert gone.cancelled()

    scenario(main)


def test_the_expired_is_answered_at_once_and_never_computed() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        late = bench.send(1.0, timeout_s=0.3)
        with pytest.raises(DeadlineExceeded):
            await late
        assert bench.now == pytest.approx(0.3)
        assert bench.batcher.queue.rows == 0
        await blocker
        assert bench.model.computed == [0]

    scenario(main)


def test_an_expired_request_in_execution_is_answered_at_once() -> None:
    async def main() -> None:
        bench = Bench()
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=0.5)
        assert bench.now == pytest.approx(0.5)
        await bench.batcher.drain()
        assert bench.now == 1.0

    scenario(main)


def test_deadlines_expire_in_any_order() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        times: dict[float, float] = {}

        async def note(timeout_s: float) -> None:
            with pytest.raises(DeadlineExceeded):
                await bench.send(1.0, timeout_s=timeout_s)
            times[timeout_s] = bench.now

        await asyncio.gather(*[note(timeout_s) for timeout_s in (0.5, 0.2, 0.4, 0.3)])
        assert all(at == pytest.approx(timeout_s) for timeout_s, at in times.items())
        await blocker

    scenario(main)


def test_a_request_whose_deadline_has_passed_is_rejected() -> None:
    async def main() -> None:
        bench = Bench()
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=-1.0)
        assert bench.model.calls == []

    scenario(main)


def test_a_full_queue_rejects_and_keeps_its_requests() -> None:
    async def main() -> None:
        bench = Bench(max_rows=4)
        accepted = [bench.send(float(value)) for value in range(4)]
        rejected = bench.send(9.0)
        with pytest.raises(Overloaded, match="4 of 4 rows"):
            await rejected
        assert len(await asyncio.gather(*accepted)) == 4

    scenario(main)


def test_a_large_request_is_cut_and_joined() -> None:
    async def main() -> None:
        bench = Bench()
        answer = await bench.send(1.0, rows=10)
        assert answer.outputs["y"].shape == (10, 2)
        assert [len(call) for call in bench.model.calls] == [4, 4, 2]
        assert answer.timing.rows == 4
        assert answer.timing.queue_s == pytest.approx(2.0)

    scenario(main)


def test_a_request_larger_than_the_queue_is_computed_in_parts_if_it_finds_the_queue_empty() -> None:
    async def main() -> None:
        bench = Bench(max_rows=8)
        answer = await bench.send(1.0, rows=9)
        assert answer.outputs["y"].shape == (9, 2)
        assert [len(call) for call in bench.model.calls] == [4, 4, 1]
        first, waits, large = (bench.send(1.0, rows=rows) for rows in (1, 1, 9))
        with pytest.raises(Overloaded, match="2 of 8 rows wait, 9 more do not fit"):
            await large
        await asyncio.gather(first, waits)

    scenario(main)


def test_a_large_request_that_fails_takes_all_its_parts_along() -> None:
    async def main() -> None:
        bench = Bench()
        with pytest.raises(InvalidRequest):
            await bench.send(-1.0, rows=10)
        assert bench.batcher.queue.rows == 0

    scenario(main)


def test_a_large_request_that_is_cancelled_leaves_the_queue() -> None:
    async def main() -> None:
        bench = Bench()
        task = bench.send(1.0, rows=40)
        await asyncio.sleep(1.5)
        task.cancel()
        await turns()
        assert bench.batcher.queue.rows == 0
        await bench.batcher.drain()
        assert len(bench.model.calls) == 2

    scenario(main)


def test_one_bad_request_fails_alone() -> None:
    async def main() -> None:
        bench = Bench(largest=32)
        tasks = [bench.send(float(-1 if value == 7 else value)) for value in range(32)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[7], InvalidRequest)
        for value, answer in enumerate(answers):
            if value != 7:
                assert isinstance(answer, Answer)
                assert answer.outputs["y"].tolist() == [[2.0 * value] * 2]
        executed = [event for event in bench.events if isinstance(event, BatchExecuted)]
        assert sum(event.rows for event in executed) == sum(len(event.queue_s) for event in executed) == 32
        assert [(event.rows, event.failed_rows) for event in executed if event.failed] == [(1, 1)]
        assert {event.reason for event in executed} == {"retry"}
        first, *rejected = [event for event in bench.events if isinstance(event, BatchRejected)]
        assert first == BatchRejected(*KEY[:3], 32, 32, 1.0)
        assert all(event.requests < 32 for event in rejected)
        assert len(bench.model.calls) == len(bench.events)

    scenario(main)


def test_drain_rejects_new_requests_and_answers_accepted_ones() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        accepted = [bench.send(float(value)) for value in range(6)]
        await turns()
        bench.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            await bench.send(9.0)
        await bench.batcher.drain()
        assert len(await asyncio.gather(*accepted)) == 6
        assert bench.now == 2.0
        assert bench.reasons == ["full", "drain"]
        bench.batcher.close()
        assert bench.devices[0].closed

    scenario(main)


def test_drain_of_an_idle_batcher_is_immediate() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.batcher.drain()
        await bench.batcher.drain()
        assert bench.now == 0.0
        assert (
            repr(bench.batcher) == "<Batcher <RequestQueue 0/100 rows, 0 bytes ()>, <DeviceSlots 1 of 1 free>, drained>"
        )

    scenario(main)


def test_drain_ends_when_the_last_waiting_request_expires_or_is_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        late, gone = bench.send(1.0, timeout_s=0.5), bench.send(2.0)
        await turns()
        draining = asyncio.create_task(bench.batcher.drain())
        gone.cancel()
        with pytest.raises(DeadlineExceeded):
            await late
        await draining
        assert bench.now == 1.0
        await blocker

    scenario(main)


def test_a_device_that_takes_no_work_fails_its_batch_and_liveness() -> None:
    async def main() -> None:
        bench = Bench()
        bench.devices[0].broken = "on fire"
        with pytest.raises(InferenceFailed, match="takes no work"):
            await bench.send(1.0)
        failures = bench.batcher.failures(60.0)
        assert failures[0] == "on fire"
        assert "on fire" in failures[1]

    scenario(main)


class BrokenPolicy:
    eager = True

    def most_rows(self, lane: LaneView) -> int:
        return lane.max_rows

    def plan(self, lane: LaneView) -> BatchPlan:
        raise ZeroDivisionError


def test_a_failing_loop_turns_liveness_red_and_requests_still_expire() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        devices: list[Device] = [FakeDevice()]
        batcher = Batcher(devices, BrokenPolicy(), 10, clock=loop.time)
        assert batcher.failures(60.0) == []
        with pytest.raises(DeadlineExceeded):
            await infer(batcher, KEY, batch_function(FakeFunction()), rows_of(1.0), 1, loop.time() + 5.0)
        assert "ZeroDivisionError" in batcher.failures(60.0)[0]

    scenario(main)


def test_stranded_work_turns_liveness_red() -> None:
    async def main() -> None:
        bench = Bench()
        task = bench.send(1.0)
        await turns(1)  # pushed, not yet dispatched
        assert bench.batcher.queue.rows == 1
        assert bench.batcher.failures(60.0) == []
        assert "although a device is free" in bench.batcher.failures(-1.0)[0]
        assert (
            repr(bench.batcher)
            == "<Batcher <RequestQueue 1/100 rows, 8 bytes (m/serving_default: 1)>, <DeviceSlots 1 of 1 free>>"
        )
        await task

    scenario(main)


def test_no_error_goes_unseen_in_asyncio() -> None:
    async def main() -> None:
        complaints: list[object] = []
        bench = Bench()
        bench.loop.set_exception_handler(lambda _, context: complaints.append(context))
        with pytest.raises(ServingError):
            await bench.send(-1.0, rows=30)
        await bench.batcher.drain()
        gc.collect()
        await turns()
        assert complaints == []

    scenario(main)


def test_a_request_that_leaves_while_its_batch_is_computed_harms_no_other() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher._slots.free = [LateDevice()]
        staying, leaving, late = bench.send(1.0), bench.send(2.0), bench.send(3.0, timeout_s=0.5)
        await turns()
        leaving.cancel()
        assert (await staying).outputs["y"].tolist() == [[2.0, 2.0]]
        with pytest.raises(DeadlineExceeded):
            await late

    scenario(main)


# --- quick functions ---


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
            bench.batcher.submit_coalesced(KEY, bench.function, rows_of(2.0, 3), 3, reply, arrivals_s=arrivals_s)
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
            assert batcher.submit_coalesced(KEY, function, rows_of(1.0, rows), rows, reply, arrivals_s=[now] * rows)
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
        bench.batcher.submit_coalesced(KEY, bench.function, rows_of(2.0, 4), 4, reply, arrivals_s=arrivals_s)
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
        handle = bench.batcher.submit_coalesced(KEY, bench.function, rows_of(2.0, 4), 4, reply, arrivals_s=arrivals_s)
        assert handle is None
        assert not reply.done()
        await asyncio.gather(*waiting)

    scenario(main)


def test_after_a_batch_on_the_event_loop_what_was_read_meanwhile_shares_the_next_one() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        bench.function = batch_function(bench.model, initial_estimates=QUICK)

        def submit(*values: float) -> None:
            for value in values:
                bench.batcher.submit(KEY, bench.function, rows_of(value), 1, FakeReply())

        submit(1, 2, 3, 4, 5)
        bench.loop.call_soon(submit, 6, 7, 8)
        await turns()
        assert bench.model.calls == [[1, 2, 3, 4], [5, 6, 7, 8]]

    scenario(main)


QUICK = {1: 0.001, 2: 0.001, 4: 0.001}


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
        batcher = Batcher(devices, SelfTuning(), 10, clock=loop.time)
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
        bench.batcher.submit(KEY, bench.function, rows_of(1.0, 1), 1, broken)
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
        bench.batcher._completion._listener = tell_all({BatchExecuted: lambda event: 1 / 0})
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


# --- without awaiting ---


def test_a_request_is_answered_once_and_cancelled_without_harm() -> None:
    async def main() -> None:
        bench = Bench()
        reply = FakeReply()
        handle = bench.batcher.submit(KEY, bench.function, rows_of(3.0), 1, reply)
        assert not reply.answers
        await asyncio.sleep(2.0)
        (answer,) = reply.answers
        assert isinstance(answer, Answer)
        assert answer.outputs["y"].tolist() == [[6.0, 6.0]]
        handle.cancel()
        assert bench.function.requests_under_way == 0

    scenario(main)


def test_a_cancelled_request_is_never_computed() -> None:
    async def main() -> None:
        bench = Bench()
        replies = [FakeReply(), FakeReply()]
        running = bench.batcher.submit(KEY, bench.function, rows_of(1.0), 1, replies[0])
        await asyncio.sleep(0.5)
        waiting = bench.batcher.submit(KEY, bench.function, rows_of(2.0, 9), 9, replies[1])
        running.cancel()
        waiting.cancel()
        await asyncio.sleep(5.0)
        assert bench.model.calls == [[1]]
        assert not replies[1].answers
        assert bench.function.requests_under_way == 0

    scenario(main)


def test_what_was_cancelled_keeps_no_memory() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        inputs = rows_of(1.0)
        array = ref(inputs["x"])
        handle = bench.batcher.submit(KEY, bench.function, inputs, 1, FakeReply())
        handle.cancel()
        del inputs
        assert array() is None
        await blocker

    scenario(main)


def test_drain_ends_when_all_that_waits_is_cancelled_before_it_is_dispatched() -> None:
    async def main() -> None:
        bench = Bench()
        handle = bench.batcher.submit(KEY, bench.function, rows_of(1.0), 1, FakeReply())
        bench.batcher.begin_drain()
        handle.cancel()
        await bench.batcher.drain()
        assert (bench.now, bench.model.calls) == (0.0, [])

    scenario(main)


def test_a_request_without_a_priority_stands_behind_one_with_any() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        for value, more in ((1.0, {}), (2.0, {"priority_offset_s": 0.5}), (3.0, {})):
            bench.batcher.submit(KEY, bench.function, rows_of(value), 1, FakeReply(), **more)
        await bench.batcher.drain()
        assert bench.model.computed == [2.0, 1.0, 3.0]

    scenario(main)


# --- whose turn it is ---


def test_the_earliest_deadline_goes_first_between_lanes() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        bench.devices[0].seconds = 0.1
        blocker = bench.send(0.0)
        await turns()
        a, b, c, d = (LaneKey("m", 1, name) for name in "abcd")
        tasks = [
            bench.send(1.0, key=a),
            bench.send(2.0, timeout_s=0.8, key=b),
            bench.send(3.0, timeout_s=0.7, key=c),
            bench.send(4.0, timeout_s=0.9, key=d, priority_offset_s=0.3),
            bench.send(5.0, timeout_s=0.55, key=a),  # 1 stands before it in its lane
        ]
        await asyncio.gather(blocker, *tasks)
        assert bench.model.computed == [0, 1, 5, 4, 3, 2]

    scenario(main)


def test_a_request_without_a_deadline_does_not_starve() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        patient, hasty = LaneKey("m", 1, "patient"), LaneKey("m", 1, "hasty")
        blocker = bench.send(0.0, key=hasty)
        await turns()
        waiting = bench.send(1.0, key=patient)
        crowd = []
        while not waiting.done() and bench.now < 20:
            crowd.append(bench.send(2.0, timeout_s=1.5, key=hasty))
            await asyncio.sleep(0.4)
        assert bench.now < 4
        await asyncio.gather(blocker, *crowd, return_exceptions=True)

    scenario(main)


def test_of_lanes_that_are_not_due_the_next_one_sets_the_timer() -> None:
    async def main() -> None:
        bench = Bench(delay_s=5.0)
        ordinary = bench.send(1.0, key=LaneKey("m", 1, "a"))
        await asyncio.sleep(0.2)
        urgent = bench.send(2.0, key=LaneKey("m", 1, "b"), priority_offset_s=0.4)
        answer = await ordinary
        assert answer.timing.queue_s == pytest.approx(5.0)
        await urgent

    scenario(main)


def test_what_has_expired_is_not_computed_even_if_the_timer_is_late() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        late = bench.send(1.0, timeout_s=1.0)  # due at the very instant at which the device becomes free
        with pytest.raises(DeadlineExceeded):
            await late
        await blocker
        await bench.batcher.drain()
        assert bench.model.computed == [0]

    scenario(main)


@pytest.mark.parametrize("with_another", [True, False])
def test_if_the_timer_is_late_a_dispatch_answers_what_has_expired(with_another: bool) -> None:
    async def main() -> None:
        loop, model, late_s = asyncio.get_running_loop(), FakeFunction(), [0.0]
        batcher = Batcher([FakeDevice()], SelfTuning(), 10, clock=lambda: loop.time() + late_s[0])
        function, expired, fine = batch_function(model), FakeReply(), FakeReply()
        batcher.submit(KEY, function, rows_of(1.0), 1, expired, deadline_s=loop.time() + 0.5)
        if with_another:
            batcher.submit(KEY, function, rows_of(2.0), 1, fine)
        late_s[0] = 0.5
        await turns()
        assert [type(each) for each in expired.answers] == [DeadlineExceeded]
        await batcher.drain()
        assert model.computed == ([2.0] if with_another else [])
        assert batcher.failures(0.0) == []

    scenario(main)


def test_a_bulk_request_delays_an_interactive_one_by_no_more_than_one_batch() -> None:
    async def main() -> None:
        bench = Bench()
        bulk = bench.send(1.0, rows=40)
        await asyncio.sleep(0.5)
        start_s = bench.now
        await bench.send(2.0)
        assert bench.now - start_s == 2.5  # the call under way, one batch of the bulk request, its own
        answer = await bulk
        assert answer.outputs["y"].tolist() == [[2.0, 2.0]] * 40
        assert bench.now == 11.0  # it rode along: no call was spent on it alone
        assert bench.batcher.queue.rows == 0

    scenario(main)


def test_a_bulk_request_that_expires_is_answered_at_once_and_its_rest_never_computed() -> None:
    async def main() -> None:
        bench = Bench(devices=2)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, rows=40, timeout_s=1.5)
        assert bench.now == 1.5
        assert bench.batcher.queue.rows == 0
        await bench.batcher.drain()
        assert sum(map(len, bench.model.calls)) == 16
        assert bench.function.requests_under_way == 0

    scenario(main)


# --- admission and tuning ---


def test_a_request_that_would_be_late_is_rejected_at_once_with_a_time_to_retry() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(Overloaded, match="has 1000 ms left, and answers take 3173 ms") as rejected:
            await bench.send(1.0, timeout_s=1.0)
        assert bench.now == 1.0
        assert rejected.value.retry_after_s == pytest.approx(3 + 0.1 * sqrt(3) - 0.99)
        in_time = bench.send(1.0, timeout_s=4.0)
        await asyncio.gather(*tasks, in_time)
        assert bench.function.requests_under_way == bench.batcher.queue.rows == 0

    scenario(main)


def test_an_idle_device_takes_whatever_comes_or_it_would_never_learn_better() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=0.5)
        await bench.batcher.drain()

    scenario(main)


def test_without_admission_what_would_be_late_expires() -> None:
    async def main() -> None:
        bench = Bench(admission=False)
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=1.0)
        await asyncio.gather(*tasks)

    scenario(main)


def test_what_is_late_by_a_little_is_rejected_too() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(2)]  # the first is computed, the second waits
        await turns()
        with pytest.raises(Overloaded, match="has 3100 ms left, and answers take 3173 ms"):
            await bench.send(1.0, timeout_s=3.1)
        await asyncio.gather(*tasks)

    scenario(main)


def test_options_are_changed_from_the_next_batch_on_for_one_model() -> None:
    async def main() -> None:
        bench = Bench()
        tasks = [bench.send(float(value)) for value in range(8)]
        await turns()
        bench.batcher.tune("m", SelfTuning(BatchingOptions(max_batch_size=2)))
        bench.batcher.tune("another", SelfTuning(BatchingOptions(max_batch_size=1)))
        await asyncio.gather(*tasks)
        assert [len(call) for call in bench.model.calls] == [4, 2, 2]
        bulk = await bench.send(1.0, rows=5)  # larger than a batch now
        assert bulk.outputs["y"].shape == (5, 2)
        assert [len(call) for call in bench.model.calls[3:]] == [2, 2, 1]

    scenario(main)


def test_options_without_a_weight_give_none() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher.tune("m", SelfTuning())
        assert not bench.batcher._scheduler.fair_queueing
        bench.batcher.tune("m", SelfTuning(), 2.0)
        assert bench.batcher._scheduler.fair_queueing

    scenario(main)


def test_a_shorter_delay_holds_for_waiting_requests() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        task = bench.send(1.0)
        await asyncio.sleep(1.0)
        bench.batcher.tune("m", SelfTuning())
        await task
        assert bench.now == 2.0

    scenario(main)


def test_a_shorter_delay_of_one_model_holds_although_another_has_waited_for_longer() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        other = bench.send(1.0, key=LaneKey("n", 1, "f"))
        await asyncio.sleep(1.0)
        task = bench.send(2.0)
        await asyncio.sleep(1.0)
        bench.batcher.tune("m", SelfTuning())
        await task
        assert bench.now == 3.0
        await other
        assert bench.now == 11.0

    scenario(main)


def test_room_is_kept_for_models_by_their_weight_while_they_are_served() -> None:
    async def main() -> None:
        bench = Bench(max_rows=40)
        for model in "mn":
            bench.batcher.add_version(model)
        bench.batcher.tune("n", SelfTuning(), 3.0)
        blocker, first, second = bench.send(0.0), bench.send(1.0), bench.send(1.0, rows=25)
        with pytest.raises(Overloaded, match="2 of 40 rows wait, 15 are kept for other models, 25 more do not fit"):
            await second
        await asyncio.gather(blocker, first)
        bench.batcher.remove_version("n")
        blocker, first, second = bench.send(0.0), bench.send(1.0), bench.send(1.0, rows=25)
        assert (await second).outputs["y"].shape == (25, 2)
        await asyncio.gather(blocker, first)

    scenario(main)


def test_the_slowest_call_is_remembered_and_fades() -> None:
    async def main() -> None:
        bench = Bench()
        bench.devices[0].seconds = 4.0
        await bench.send(1.0)
        assert bench.batcher._slowest_call_s == pytest.approx(4.0)
        bench.devices[0].seconds = 1.0
        for _ in range(69):
            await bench.send(1.0)
        assert bench.batcher._slowest_call_s == pytest.approx(2.0, rel=0.01)

    scenario(main)


def test_a_call_that_begins_counts_as_what_it_is_expected_to_take() -> None:
    async def main() -> None:
        bench = Bench()
        bench.function = batch_function(bench.model, initial_estimates={1: 3.0})
        call = bench.send(1.0)
        await turns()
        assert bench.batcher._slowest_call_s == 3.0
        await call

    scenario(main)


# --- callers that sent bad requests ---


def test_requests_of_a_caller_that_sent_a_bad_one_share_no_call_with_others_for_a_while() -> None:
    async def main() -> None:
        bench = Bench(largest=8)

        def send(*values: float) -> None:
            for value in values:
                caller = "careless" if value < 0 or value > 100 else str(value)
                bench.batcher.submit(KEY, bench.function, rows_of(value), 1, FakeReply(), caller=caller)

        send(1.0, 2.0, -3.0, 4.0)
        await asyncio.sleep(60)
        calls_before = len(bench.model.calls)
        assert calls_before > 1
        send(-3.0)
        await asyncio.sleep(1.5)
        send(1.0, 101.0, -3.0, 4.0)  # 101 is sound, and of the same caller
        await asyncio.sleep(60)
        together = [[value for value in call if value > 0] for call in bench.model.calls[calls_before:]]
        assert [1.0, 4.0] in together
        assert [101.0] in together
        assert not any(1.0 in call and 101.0 in call for call in together)
        send(1.0, 101.0)
        await bench.batcher.drain()
        assert bench.model.calls[-1] == [1.0, 101.0]  # a minute later it is forgotten

    scenario(main)


def outcomes(reply: Coalesced) -> list[object]:
    """The value of each of the coalesced requests, or the type of its error."""
    assert all(len(own.answers) == 1 for own in reply.own)
    answers = [own.answers[0] for own in reply.own]
    return [each.outputs["y"][:, 0].tolist() if isinstance(each, Answer) else type(each) for each in answers]


@pytest.mark.parametrize("at_once", [True, False])
def test_of_coalesced_requests_that_the_model_rejects_only_the_bad_one_fails(at_once: bool) -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0, rows=4 if at_once else 1)
        reply, _ = bench.coalesce(2.0, -3.0, 4.0, 5.0)
        await asyncio.sleep(10.0)
        assert outcomes(reply) == [[4.0], InvalidRequest, [8.0], [10.0]]
        assert not reply.answers  # it was taken apart
        assert not bench.function.requests_under_way
        batches = [event for event in bench.events if isinstance(event, BatchExecuted)]
        assert sum(len(list(batch.queue_s)) for batch in batches) == 1 + 4  # each counts once
        assert sum(batch.failed for batch in batches) == 1

    scenario(main)


def test_coalesced_requests_that_were_accepted_before_a_drain_are_answered_though_one_of_them_is_bad() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        reply, _ = bench.coalesce(2.0, -3.0, 4.0, 5.0)
        await bench.batcher.drain()
        assert outcomes(reply) == [[4.0], InvalidRequest, [8.0], [10.0]]

    scenario(main)


def test_coalesced_requests_that_are_run_apart_keep_their_deadline_and_may_be_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        reply, _ = bench.coalesce(-2.0, 3.0, 4.0, 5.0, timeout_s=2.5)
        await asyncio.sleep(1.5)  # they failed together, and the first two run again
        reply.own[3].set_exception(InvalidRequest("its client has gone"))
        await asyncio.sleep(5.0)
        assert outcomes(reply)[2:] == [DeadlineExceeded, InvalidRequest]
        assert 4.0 not in [value for call in bench.model.calls[2:] for value in call]
        assert bench.batcher.idle
        assert not bench.function.requests_under_way

    scenario(main)


def test_coalesced_requests_of_which_outputs_do_not_follow_rows_run_one_by_one() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        bench.function.run = lambda inputs: {"y": inputs["x"].sum(keepdims=True)}
        reply, _ = bench.coalesce(2.0, 3.0)
        waiting, _ = bench.coalesce(4.0, 5.0)
        await asyncio.sleep(10.0)
        assert outcomes(reply) == [[4.0], [6.0]]
        assert outcomes(waiting) == [[8.0], [10.0]]

    scenario(main)


def test_coalesced_requests_are_not_cut_into_parts() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        reply, _ = bench.coalesce(2.0, 3.0, 4.0)
        bench.batcher.tune("m", SelfTuning(BatchingOptions(max_batch_size=2)))
        assert bench.batcher.coalescable_rows("m", bench.function) == 2
        await asyncio.sleep(10.0)
        assert [len(call) for call in bench.model.calls[1:]] == [4]
        (answer,) = reply.answers
        assert isinstance(answer, Answer)

    scenario(main)


# --- beside what is computed ---


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
