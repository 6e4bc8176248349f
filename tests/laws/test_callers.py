"""With fairness among callers one that sends much neither delays nor keeps out the others; order holds within each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import create_policy
from app.batching.request import LaneKey
from app.core.errors import Overloaded
from app.core.inference import Array
from app.core.reply import Answer
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    fake_time,
    rows_of,
    run_in_fake_time,
)

MAX_ROWS = 4
MOST_ROWS = 6
CAPACITY = 60
KEY = LaneKey("m", 1, "f")


@dataclass(frozen=True)
class Call:
    at_s: float
    caller: str
    rows: int
    gone_after_s: float


calls = st.builds(
    Call,
    at_s=st.sampled_from([0.0, 0.0, 0.0, 0.5, 2.5, 6.5]),
    caller=st.sampled_from("aaaabc"),
    rows=st.integers(1, MOST_ROWS),
    gone_after_s=st.sampled_from([99.0, 99.0, 99.0, 1.2]),
)


class Run:
    """Plays a schedule, and holds the laws while it does.

    1. Of two callers that wait none gets ahead of the other by more than a batch and two requests of each.
    2. A caller that has nothing waiting is accepted if its rows fit at all, any other if they are no more than fit.
    3. Everyone is answered once, and the requests of one caller begin in order.
    """

    def __init__(self, schedule: list[Call], devices: int) -> None:
        self.schedule = schedule
        self.loop = asyncio.get_running_loop()
        self.computed: list[int] = []
        self.ahead: dict[tuple[str, str], list[int]] = {}
        self.replies: list[FakeReply] = []
        self.function = batch_function(self.compute, MAX_ROWS)
        self.batcher = Batcher(
            [FakeDevice(1.0, f"fake:{number}") for number in range(devices)],
            create_policy("work_conserving"), CAPACITY, clock=self.loop.time, admission=False, fair_callers=True,
        )  # fmt: skip

    @property
    def waiting(self) -> Counter[str]:
        rows = Counter[str]()
        for lane in self.batcher.queue.lanes:
            for request in lane:
                rows[request.caller] += request.rows
        return rows

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        numbers = inputs["x"][:, 0].astype(int).tolist()
        self.computed += numbers
        rows, waiting = Counter(self.schedule[number].caller for number in numbers), self.waiting
        for pair in combinations("abc", 2):
            if not (waiting[pair[0]] and waiting[pair[1]]):
                self.ahead.pop(pair, None)
                continue
            values = self.ahead.setdefault(pair, [0])
            values.append(values[-1] + rows[pair[0]] - rows[pair[1]])
            assert max(values) - min(values) <= 4 * MOST_ROWS + MAX_ROWS, (pair, values)
        return {"y": inputs["x"]}

    def send(self, number: int) -> None:
        call, reply = self.schedule[number], FakeReply()
        own, free = self.waiting[call.caller], CAPACITY - self.batcher.queue.rows
        inputs = rows_of(float(number), call.rows)
        try:
            handle = self.batcher.submit(KEY, self.function, inputs, call.rows, reply, caller=call.caller)
        except Overloaded:
            assert own + call.rows > free
            assert own or call.rows > free
            return
        self.replies.append(reply)

        def leave() -> None:
            if not reply.done():
                reply.set_result("gone")
            handle.cancel()

        self.loop.call_later(call.gone_after_s, leave)

    async def play(self) -> None:
        for number, call in enumerate(self.schedule):
            self.loop.call_later(call.at_s + number / 1000, self.send, number)
        await asyncio.sleep(300)
        await self.batcher.drain()
        assert all(isinstance(reply.answers[0], Answer) or reply.answers == ["gone"] for reply in self.replies)
        assert self.batcher.queue.rows == 0
        assert not self.batcher.queue.room._callers
        arrived = sorted(range(len(self.schedule)), key=lambda number: self.schedule[number].at_s + number / 1000)
        for caller in "abc":
            begun = [number for number in dict.fromkeys(self.computed) if self.schedule[number].caller == caller]
            assert begun == [number for number in arrived if number in begun]


@settings(max_examples=200, deadline=None)
@given(schedule=st.lists(calls, min_size=1, max_size=40), devices=st.integers(1, 2))
def test_laws(schedule: list[Call], devices: int) -> None:
    async def main() -> None:
        await Run(schedule, devices).play()

    run_in_fake_time(main())


class LoadTest:
    """A load test sends 10,000 rows at once; ten other callers send a row every half second."""

    def __init__(self, fair: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.refused = Counter[str]()
        self.waits_s: list[float] = []
        self.function = batch_function(FakeFunction(), 64)
        policy = create_policy("work_conserving")
        self.batcher = Batcher(
            [FakeDevice(1.0)], policy, 8192, clock=self.loop.time, admission=False, fair_callers=fair
        )

    def send(self, caller: str, reply: FakeReply) -> None:
        try:
            self.batcher.submit(KEY, self.function, rows_of(1.0), 1, reply, caller=caller)
        except Overloaded:
            self.refused[caller] += 1

    async def play(self) -> None:
        for _ in range(10_000):
            self.send("load test", FakeReply())
        for _ in range(20):
            await asyncio.sleep(0.5)
            for number in range(10):
                self.send(f"client {number}", Timed(self.waits_s))
        await asyncio.sleep(300)


class Timed(FakeReply):
    """Notes how long it took."""

    def __init__(self, waits_s: list[float]) -> None:
        super().__init__()
        self.waits_s, self.sent_s = waits_s, fake_time()

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.waits_s.append(fake_time() - self.sent_s)


@pytest.mark.parametrize("fair", [False, True])
def test_a_load_test_starves_no_other_caller_if_callers_are_told_apart(fair: bool) -> None:
    async def main() -> LoadTest:
        load = LoadTest(fair)
        await load.play()
        return load

    load = run_in_fake_time(main())
    assert load.refused["load test"] > 0
    if fair:
        assert set(load.refused) == {"load test"}
        assert max(load.waits_s) <= 2.1  # the call in flight, and its own
    else:
        assert max([0.0, *load.waits_s]) > 20 or len(load.refused) > 1


def test_order_of_arrival_alone_counts_unless_callers_are_told_apart() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], create_policy("work_conserving"), 100, clock=loop.time)
        model = FakeFunction()
        function = batch_function(model, 2)
        for number in range(6):
            batcher.submit(KEY, function, rows_of(float(number)), 1, FakeReply(), caller="b" if number == 5 else "a")
        await asyncio.sleep(10)
        assert model.computed == [0, 1, 2, 3, 4, 5]

    run_in_fake_time(main())
