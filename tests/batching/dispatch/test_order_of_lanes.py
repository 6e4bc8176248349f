"""Which lane goes next, and that none starves."""

from __future__ import annotations

import asyncio

import pytest

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.errors import (
    DeadlineExceeded,
)
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    request_now,
    rows_of,
)


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
        batcher = Batcher([FakeDevice()], SelfTuning(), BatcherOptions(10), clock=lambda: loop.time() + late_s[0])
        function, expired, fine = batch_function(model), FakeReply(), FakeReply()
        batcher.submit(KEY, function, request_now(batcher, rows_of(1.0), 1, expired, deadline_s=loop.time() + 0.5))
        if with_another:
            batcher.submit(KEY, function, request_now(batcher, rows_of(2.0), 1, fine))
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
