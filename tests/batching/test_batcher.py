"""The batcher as a whole: what shares a call, what is rejected, how it ends. More of it lies in batcher/."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from app.batching.batcher import Batcher
from app.batching.devices import Device
from app.batching.policy import BatchPlan, LaneView, SelfTuning
from app.batching.request import LaneKey
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    Overloaded,
    ServingError,
    ShuttingDown,
)
from app.core.events import BatchExecuted, BatchRejected
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    LateDevice,
    batch_function,
    infer,
    rows_of,
)


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

    def plan(self, *_: object) -> BatchPlan:
        raise ZeroDivisionError


def test_a_policy_that_fails_turns_liveness_red_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        devices: list[Device] = [FakeDevice()]
        batcher = Batcher(devices, SelfTuning(), 100, clock=loop.time)
        batcher.tune("broken", BrokenPolicy())
        assert batcher.failures(60.0) == []
        asked = [
            infer(batcher, KEY._replace(model=model), batch_function(FakeFunction()), rows_of(value), 1)
            for value in (1.0, 2.0)
            for model in ("broken", "m")
        ]
        assert [answer.outputs["y"][0, 0] for answer in await asyncio.gather(*asked)] == [2.0, 2.0, 4.0, 4.0]
        assert batcher.failures(60.0) == ["The batcher failed: ZeroDivisionError()"]
        assert len(caplog.messages) == 1

    scenario(main)


def test_a_failing_loop_turns_liveness_red_and_requests_still_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench()
        monkeypatch.setattr("app.batching.scheduler.Scheduler.first_due", BrokenPolicy.plan)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=5.0)
        assert "ZeroDivisionError" in bench.batcher.failures(60.0)[0]

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
