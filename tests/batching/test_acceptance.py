"""What is rejected at once, and how it is told; what is cancelled."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import sqrt
from weakref import ref

import pytest

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.state import BatcherOptions
from app.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, ShuttingDown
from app.core.events import RequestsRefused
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import KEY, FakeDevice, FakeFunction, FakeReply, batch_function, infer, request_now, rows_of


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0])
def test_a_request_whose_deadline_has_passed_is_rejected(timeout_s: float) -> None:
    async def main() -> None:
        bench = Bench()
        with pytest.raises(DeadlineExceeded, match="over when it arrived"):
            await bench.send(1.0, timeout_s=timeout_s)
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


def test_only_what_the_server_is_to_blame_for_is_told_as_refused() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher._acceptance.tell_rejected(InvalidRequest("the request is at fault"))
        assert not bench.events
        bench.batcher._acceptance.tell_rejected(Overloaded("the queue is full"), 3)
        assert bench.events == [RequestsRefused("queue_full", 3)]

    scenario(main)


def test_a_request_is_answered_once_and_cancelled_without_harm() -> None:
    async def main() -> None:
        bench = Bench()
        reply = FakeReply()
        handle = bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(3.0), 1, reply))
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
        running = bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(1.0), 1, replies[0]))
        await asyncio.sleep(0.5)
        waiting = bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(2.0, 9), 9, replies[1]))
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
        handle = bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, inputs, 1, FakeReply()))
        handle.cancel()
        del inputs
        assert array() is None
        await blocker

    scenario(main)


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


def test_by_default_what_would_be_late_is_rejected() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher, function = (
            Batcher([FakeDevice()], SelfTuning(), BatcherOptions(100), clock=loop.time),
            batch_function(FakeFunction()),
        )
        await infer(batcher, KEY, function, rows_of(1.0), 1)
        crowd = [asyncio.create_task(infer(batcher, KEY, function, rows_of(1.0), 1)) for _ in range(10)]
        await turns()
        with pytest.raises(Overloaded):
            await infer(batcher, KEY, function, rows_of(1.0), 1, loop.time() + 1.0)
        await asyncio.gather(*crowd)

    scenario(main)


def rejected(bench: Bench) -> Counter[str]:
    causes = Counter[str]()
    for event in bench.events:
        if isinstance(event, RequestsRefused):
            causes[event.cause] += event.number
    return causes


def test_each_request_that_is_rejected_is_told_with_its_cause() -> None:
    async def main() -> None:
        bench = Bench(max_rows=2, largest=1)
        await bench.send(1.0)
        tasks = [bench.send(1.0)]
        await turns()
        tasks += [bench.send(1.0) for _ in range(2)]
        await turns()
        for cause, timeout_s, error in (("queue_full", 100.0, Overloaded), ("expired", -1.0, DeadlineExceeded)):
            with pytest.raises(error):
                await bench.send(1.0, timeout_s=timeout_s)
            assert rejected(bench)[cause] == 1
        await asyncio.gather(*tasks)
        bench.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            await bench.send(1.0)
        assert rejected(bench) == {"queue_full": 1, "expired": 1, "shutting_down": 1}

    scenario(main)


def test_requests_that_would_be_late_and_those_that_were_are_told_apart() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        tasks = [bench.send(float(value)) for value in range(10)]
        await turns()
        with pytest.raises(Overloaded):
            await bench.send(1.0, timeout_s=1.0)
        assert rejected(bench) == {"late": 1}
        await asyncio.gather(*tasks)
        with pytest.raises(DeadlineExceeded):
            await bench.send(1.0, timeout_s=0.5)
        assert rejected(bench) == {"late": 1, "expired": 1}
        await bench.batcher.drain()

    scenario(main)


def test_the_slowest_call_is_remembered_and_fades() -> None:
    async def main() -> None:
        bench = Bench()
        bench.devices[0].seconds = 4.0
        await bench.send(1.0)
        assert bench.batcher.state.admission.slowest_call_s == pytest.approx(4.0)
        bench.devices[0].seconds = 1.0
        for _ in range(69):
            await bench.send(1.0)
        assert bench.batcher.state.admission.slowest_call_s == pytest.approx(2.0, rel=0.01)

    scenario(main)


def test_a_call_that_begins_counts_as_what_it_is_expected_to_take() -> None:
    async def main() -> None:
        bench = Bench()
        bench.function = batch_function(bench.model, initial_estimates={1: 3.0})
        call = bench.send(1.0)
        await turns()
        assert bench.batcher.state.admission.slowest_call_s == 3.0
        await call

    scenario(main)
