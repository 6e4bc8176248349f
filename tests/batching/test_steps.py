"""Steps of larger requests (app/pipelines): one admission, one arrival, and no pause between steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

import pytest

from app.batching.request import LaneKey, LaterSteps, RequestHandle
from app.core.errors import DeadlineExceeded, Overloaded, ShuttingDown
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import KEY, FakeReply, request_now, rows_of

NOTHING_LATER = LaterSteps(0, (), lambda: 0.0)


class Next(FakeReply):
    """Sends the next step when it is answered."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.then()


def step(
    bench: Bench,
    value: float,
    reply: FakeReply,
    *,
    rows: int = 1,
    key: LaneKey = KEY,
    arrival_s: float | None = None,
    timeout_s: float = inf,
    later: LaterSteps | None = None,
    caller: str = "",
) -> RequestHandle:
    now = bench.loop.time()
    return bench.batcher.steps.submit(
        key,
        bench.function,
        request_now(
            bench.batcher,
            rows_of(value, rows),
            rows,
            reply,
            arrival_s=now if arrival_s is None else arrival_s,
            deadline_s=now + timeout_s,
            caller=caller,
        ),
        later,
    )


async def answered(*replies: FakeReply) -> None:
    while not all(reply.done() for reply in replies):  # noqa: ASYNC110 - replies set no event, and time is simulated
        await asyncio.sleep(0.1)


def values_of(bench: Bench) -> Sequence[Sequence[float]]:
    return bench.model.calls


def test_the_device_gets_the_next_steps_before_anything_else_of_later_arrival() -> None:
    """Two requests of two steps each, and direct requests that came after them: the second steps go first."""

    async def main() -> None:
        bench = Bench(largest=2)
        last = [FakeReply(), FakeReply()]
        arrival_s = bench.loop.time()
        first = [
            Next(lambda each=each, value=value: step(bench, value, each, arrival_s=arrival_s))  # type: ignore[misc]  # a default of a lambda
            for each, value in zip(last, (3.0, 4.0), strict=True)
        ]
        for value, reply in zip((1.0, 2.0), first, strict=True):
            step(bench, value, reply, later=LaterSteps(1, (KEY.model,), lambda: 1.0))
            bench.batcher.steps.begin_flow()
        await asyncio.sleep(0.1)
        direct = [bench.send(value) for value in (5.0, 6.0)]
        await answered(*last)
        assert bench.now <= 2.2, "the device did not wait between the steps"
        assert values_of(bench)[:2] == [[1.0, 2.0], [3.0, 4.0]]
        await asyncio.gather(*direct)
        assert values_of(bench)[2:] == [[5.0, 6.0]]
        for _ in first:
            bench.batcher.steps.end_flow()
        await bench.batcher.drain()

    scenario(main)


def test_a_later_step_is_taken_though_the_queue_is_full_and_its_time_is_short() -> None:
    async def main() -> None:
        bench = Bench(max_rows=4)
        await bench.send(0.0)
        waiting = []
        for _ in range(2):  # four are computed, four wait
            waiting += [bench.send(float(value)) for value in range(4)]
            await turns()
        with pytest.raises(Overloaded, match="full"):
            step(bench, 9.0, FakeReply(), later=NOTHING_LATER)
        late = FakeReply()
        step(bench, 9.0, late, arrival_s=bench.start_s, timeout_s=2.5)
        await answered(late)
        assert isinstance(late.answers[0], Answer)
        assert 9.0 in values_of(bench)[2], "before what arrived later"
        await asyncio.gather(*waiting)
        assert bench.batcher.queue.rows == bench.batcher.queue.room.rows == 0

    scenario(main)


def test_later_steps_of_a_caller_that_sent_bad_requests_share_no_call_with_those_of_others() -> None:
    async def main() -> None:
        bench = Bench()
        bench.batcher.state.suspects.note("bad", bench.loop.time())
        busy = bench.send(0.0)
        await turns()
        replies = [FakeReply() for _ in range(3)]
        for value, (caller, reply) in enumerate(zip(("good", "bad", "other"), replies, strict=True), 1):
            step(bench, float(value), reply, caller=caller)
        await answered(*replies)
        await busy
        assert [sorted(values) for values in values_of(bench)[1:]] in ([[1.0, 3.0], [2.0]], [[2.0], [1.0, 3.0]])

    scenario(main)


def test_the_first_step_is_judged_for_all_that_follow() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        waiting = [bench.send(float(value)) for value in range(8)]
        await turns()
        for later_s, accepted in ((1.0, True), (6.0, False)):
            later = LaterSteps(3, (), lambda seconds=later_s: seconds)  # type: ignore[misc]  # a default of a lambda
            if accepted:
                step(bench, 9.0, FakeReply(), timeout_s=6.0, later=later)
            else:
                with pytest.raises(Overloaded, match="has 0 ms left"):
                    step(bench, 9.0, FakeReply(), timeout_s=6.0, later=later)
        await asyncio.gather(*waiting)

    scenario(main)


def test_first_steps_that_begin_side_by_side_have_room_since_the_first_of_them() -> None:
    async def main() -> None:
        bench = Bench(max_rows=4)
        await bench.send(0.0)
        waiting = []
        for rows in (4, 3):  # four are computed, three wait
            waiting += [bench.send(float(value)) for value in range(rows)]
            await turns()
        replies = [FakeReply(), FakeReply()]
        step(bench, 8.0, replies[0], later=LaterSteps(1, (KEY.model,), lambda: 0.0))
        with pytest.raises(Overloaded, match="full"):
            step(bench, 9.0, FakeReply(), later=LaterSteps(1, (KEY.model,), lambda: 0.0))
        step(bench, 9.0, replies[1], later=LaterSteps(1, (KEY.model,), lambda: 0.0, waiting_rows=1))
        await answered(*replies)
        await asyncio.gather(*waiting)
        assert bench.batcher.queue.rows == bench.batcher.queue.room.rows == 0

    scenario(main)


@pytest.mark.parametrize(
    ("timeout_s", "waiting_rows", "error"),
    [(0.0, 0, DeadlineExceeded), (1.5, 0, Overloaded), (9.0, 0, None), (inf, 4, Overloaded)],
)
def test_a_request_whose_calls_will_be_queued_is_judged_by_its_time_and_by_room(
    timeout_s: float, waiting_rows: int, error: type[Exception] | None
) -> None:
    """Its calls take two seconds, and nothing is queued for it itself."""

    async def main() -> None:
        bench = Bench(max_rows=4)
        await bench.send(0.0)
        waiting = []
        for rows in (4, waiting_rows):
            waiting += [bench.send(float(value)) for value in range(rows)]
            await turns()
        now = bench.loop.time()
        request = request_now(bench.batcher, rows_of(9.0), 1, FakeReply(), arrival_s=now, deadline_s=now + timeout_s)
        needs = LaterSteps(2, (KEY.model,), lambda: 2.0)
        if error is None:
            bench.batcher.steps.check_flow(request, needs)
        else:
            with pytest.raises(error):
                bench.batcher.steps.check_flow(request, needs)
        await asyncio.gather(*waiting, return_exceptions=True)

    scenario(main)


def test_there_must_be_room_at_the_models_of_all_steps() -> None:
    async def main() -> None:
        bench = Bench(max_rows=8)
        for model in ("slow", KEY.model):
            bench.batcher.add_version(model)
        slow = KEY._replace(model="slow")
        waiting = []
        for rows in (4, 6):  # four are computed, six wait: what is kept for it, and what is for all
            waiting += [bench.send(float(value), key=slow) for value in range(rows)]
            await turns()
        step(bench, 1.0, FakeReply(), later=NOTHING_LATER)
        with pytest.raises(Overloaded):
            step(bench, 1.0, FakeReply(), later=LaterSteps(1, ("slow",), lambda: 0.0))
        await asyncio.gather(*waiting)

    scenario(main)


def test_a_drain_waits_for_flows_and_their_steps_but_takes_no_new_ones() -> None:
    async def main() -> None:
        bench = Bench()
        last = FakeReply()
        first = Next(lambda: step(bench, 2.0, last))
        bench.batcher.steps.begin_flow()
        step(bench, 1.0, first, later=NOTHING_LATER)
        await turns()
        bench.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            step(bench, 1.0, FakeReply(), later=NOTHING_LATER)
        await answered(first, last)
        await turns()
        assert not bench.batcher.drained
        bench.batcher.steps.end_flow()
        await bench.batcher.drain()
        assert values_of(bench) == [[1.0], [2.0]]

    scenario(main)


def test_a_step_expires_and_is_cancelled_as_any_request() -> None:
    async def main() -> None:
        bench = Bench(largest=1)
        running = bench.send(0.0)
        await turns()
        expires, cancelled, over = FakeReply(), FakeReply(), FakeReply()
        step(bench, 1.0, expires, timeout_s=0.5)
        step(bench, 2.0, over, timeout_s=-1.0)
        step(bench, 3.0, cancelled).cancel()
        await running
        await answered(expires, over)
        assert isinstance(expires.answers[0], DeadlineExceeded)
        assert isinstance(over.answers[0], DeadlineExceeded)
        await bench.batcher.drain()
        assert values_of(bench) == [[0.0]]

    scenario(main)


def test_what_stands_ready_is_asked_for_once_while_a_batch_waits_to_be_due() -> None:
    """Its calls wait in a lane that is not due, so it offers the rest again: not in each turn of the event loop."""

    async def main() -> None:
        bench, asked = Bench(delay_s=0.4), list[float]()

        def supply() -> None:
            asked.append(bench.now)
            if len(asked) < 1000:
                bench.batcher.steps.when_free(supply)

        sent = bench.send(1.0)
        bench.batcher.steps.when_free(supply)
        await turns()
        await turns()
        assert len(asked) <= 2
        await sent
        assert bench.now == pytest.approx(1.4)

    scenario(main)


def test_a_supply_that_breaks_is_told_and_keeps_nobody_from_the_device() -> None:
    async def main() -> None:
        bench, supplied = Bench(), list[int]()

        def broken() -> None:
            raise RuntimeError("broken")

        bench.batcher.steps.when_free(broken)
        bench.batcher.steps.when_free(lambda: supplied.append(1))
        await bench.send(1.0)
        assert supplied == [1]
        assert bench.batcher.failures(10) == ["The batcher failed: RuntimeError('broken')"]

    scenario(main)


def test_what_offers_again_is_asked_again_if_nothing_came_into_the_queue() -> None:
    async def main() -> None:
        bench, asked = Bench(), list[int]()

        def supply() -> None:  # what it had failed as it was submitted
            asked.append(1)
            if len(asked) < 3:
                bench.batcher.steps.when_free(supply)

        bench.batcher.steps.when_free(supply)
        await turns()
        assert len(asked) == 3

    scenario(main)


def test_a_part_of_a_large_step_is_answered_before_the_next_batch() -> None:
    async def main() -> None:
        bench = Bench()
        step(bench, 1.0, reply := FakeReply(), rows=6, later=NOTHING_LATER)
        bench.batcher.steps.begin_flow()
        taken = bench.batcher.queue.take(next(iter(bench.batcher.queue.lanes)), 4, 4, bench.now)
        assert [each.feeds for each in taken] == [True]
        assert not reply.done()
        bench.batcher.steps.end_flow()

    scenario(main)
