"""When batches are started, and what is told where none is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.batching.batch import BatchInFlight, Execution
from app.batching.batcher import Batcher
from app.batching.costs.cost_model import Costs
from app.batching.devices import Device
from app.batching.policy import BatchPlan, LaneView, SelfTuning
from app.batching.request import PendingRequest
from app.batching.state import BatcherOptions
from app.batching.waiting.lane import Lane
from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import KEY, FakeDevice, FakeFunction, FakeReply, batch_function, infer, rows_of


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
        batcher = Batcher(devices, SelfTuning(), BatcherOptions(100), clock=loop.time)
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


def test_a_group_that_nobody_starts_is_told_after_so_many_seconds() -> None:
    async def main() -> None:
        bench = Bench()
        await asyncio.sleep(7.0)
        requests = [PendingRequest(rows_of(1.0), 1, FakeReply(), 0.0) for _ in range(2)]
        rejection = Execution([], 0.0, 0.0, 0, 0.0, InvalidRequest("no"))
        lane = Lane(KEY, bench.function)
        bench.batcher.state.isolations.record_end(BatchInFlight(lane, requests, "idle"), rejection, bench.loop.time())
        await asyncio.sleep(5.0)
        assert bench.batcher.failures(5.0) == []
        assert bench.batcher.failures(4.9) == ["A batch is due for more than 4.9 s although a device is free"]
        free, bench.batcher.state.slots.free = bench.batcher.state.slots.free, []
        assert bench.batcher.failures(4.9) == []
        bench.batcher.state.slots.free = free

    scenario(main)


class BrokenOnce(FakeDevice):
    """Takes no work at the start of this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._left -= 1
        if not self._left:
            raise RuntimeError("can't start new thread")
        super().start(work, done)


@pytest.mark.parametrize("number", [1, 2])
def test_a_device_that_takes_no_work_once_gets_what_waits_in_other_lanes(number: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([BrokenOnce(number)], SelfTuning(), BatcherOptions(100), clock=loop.time)
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
