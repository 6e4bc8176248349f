"""The batcher as a whole: deadlines, large requests, bad requests. More of it lies in batcher/ and dispatch/."""

from __future__ import annotations

import asyncio
import gc

import pytest

from app.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    ServingError,
)
from app.core.events import BatchExecuted, BatchRejected
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import (
    KEY,
    FakeReply,
    LateDevice,
    request_now,
    rows_of,
)


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


def test_a_large_request_is_cut_and_joined() -> None:
    async def main() -> None:
        bench = Bench()
        answer = await bench.send(1.0, rows=10)
        assert answer.outputs["y"].shape == (10, 2)
        assert [len(call) for call in bench.model.calls] == [4, 4, 2]
        assert answer.timing.rows == 4
        assert answer.timing.queue_s == pytest.approx(2.0)

    scenario(main)


def test_a_request_larger_than_the_queue_is_computed_in_parts_while_less_than_half_of_the_queue_is_taken() -> None:
    async def main() -> None:
        bench = Bench(max_rows=8)
        answer = await bench.send(1.0, rows=9)
        assert answer.outputs["y"].shape == (9, 2)
        assert [len(call) for call in bench.model.calls] == [4, 4, 1]
        first, waits, large = (bench.send(1.0, rows=rows) for rows in (1, 2, 9))
        await asyncio.gather(first, waits, large)
        first, waits, large = (bench.send(1.0, rows=rows) for rows in (1, 3, 9))
        with pytest.raises(Overloaded, match="4 of 8 rows wait, 9 more do not fit"):
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
        bench.batcher.state.slots.free = [LateDevice()]
        staying, leaving, late = bench.send(1.0), bench.send(2.0), bench.send(3.0, timeout_s=0.5)
        await turns()
        leaving.cancel()
        assert (await staying).outputs["y"].tolist() == [[2.0, 2.0]]
        with pytest.raises(DeadlineExceeded):
            await late

    scenario(main)


def test_a_request_without_a_priority_stands_behind_one_with_any() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        for value, more in ((1.0, {}), (2.0, {"priority_offset_s": 0.5}), (3.0, {})):
            bench.batcher.submit(
                KEY, bench.function, request_now(bench.batcher, rows_of(value), 1, FakeReply(), **more)
            )
        await bench.batcher.drain()
        assert bench.model.computed == [2.0, 1.0, 3.0]

    scenario(main)
