"""With fairness among callers one that sends much neither delays nor keeps out the others; order holds within each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batch import BatchInFlight
from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.state import BatcherOptions
from app.batching.waiting.callers import Callers
from app.core.errors import Overloaded
from app.core.inference import Array
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    fake_time,
    request_now,
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
            WorkConserving(),
            BatcherOptions(CAPACITY, admission=False, fair_callers=True),
            clock=self.loop.time,
        )

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
            handle = self.batcher.submit(
                KEY, self.function, request_now(self.batcher, inputs, call.rows, reply, caller=call.caller)
            )
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


Step = tuple[str, str, int, int]

steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "call"]), st.sampled_from("aaabc"), st.integers(0, 5), st.integers(1, 9)
    ),
    min_size=5, max_size=80,
)  # fmt: skip


class Lanes:
    """Lanes of two models whose calls cost differently; what is due is computed on one device.

    Args:
        times: what calls take, as a multiple of what is expected.
    """

    def __init__(self, *, fair: bool = True, delay_ms: float = 0.0, times: Sequence[float] = (1.0,)) -> None:
        self.callers = Callers() if fair else None
        self.scheduler = Scheduler(WorkConserving(BatchingOptions(max_batch_delay_ms=delay_ms)), {}, self.callers)
        self.queue = RequestQueue(10**6, callers=self.callers)
        self.functions = [
            batch_function(FakeFunction(), 8, initial_estimates={1: first_s, 8: 8 * row_s + first_s})
            for first_s, row_s in ((1.0, 0.0), (1.0, 1.0), (0.1, 2.0), (5.0, 0.0), (0.01, 0.01), (2.0, 0.5))
        ]
        self.times = cycle(times)
        self.now = 0.0
        self.calls: list[tuple[float, list[PendingRequest]]] = []  # and how long each took
        self.longest_s = 0.0

    def push(self, caller: str, number: int, rows: int = 1, *, own: bool = False, **more: float) -> PendingRequest:
        """Puts a request into a lane; if `own`, that of its caller alone."""
        self.now += 0.001
        request = PendingRequest(rows_of(1.0, rows), rows, FakeReply(), self.now, caller=caller, **more)
        key = LaneKey("mn"[number % 2], 1, str(number), ("own" + caller,) if own else ())
        self.queue.push(key, self.functions[number], request)
        return request

    def call(self) -> None:
        plan, lane = self.scheduler.first_due(self.queue, self.now)
        self.now = max(self.now, plan.due_s)
        taken = self.queue.take(lane, plan.rows, plan.most_rows, self.now)
        batch = BatchInFlight(lane, list(taken), plan.reason)
        self.scheduler.record_start(batch)
        seconds = batch.expected_s * next(self.times)
        self.scheduler.record_end(batch, seconds)
        self.calls.append((seconds, taken))
        self.longest_s = max(self.longest_s, seconds)

    @property
    def waiting(self) -> set[str]:
        return {request.caller for lane in self.queue.lanes for request in lane}

    def seconds_of_last_call(self) -> Counter[str]:
        """The device time of each caller."""
        seconds, taken = self.calls[-1]
        rows = sum(request.rows for request in taken)
        had = Counter[str]()
        for request in taken:
            had[request.caller] += seconds * request.rows / rows  # type: ignore[assignment]  # a Counter may hold seconds
        return had


@given(steps, st.sampled_from([(1.0,), (0.5, 1.0, 2.0)]))
def test_callers_that_wait_in_whatever_lanes_get_seconds_that_differ_by_no_more_than_a_call_of_each(
    steps: list[Step], times: Sequence[float]
) -> None:
    """Theorem 1 of the paper, where callers share no calls: nobody's rest of a call is there to be filled."""
    lanes = Lanes(times=times)
    ahead: dict[tuple[str, str], list[float]] = {}  # since when both wait: what the one had more than the other
    for step, caller, number, rows in steps:
        if step == "push":
            lanes.push(caller, number, rows, own=True)
        elif lanes.queue.rows:
            lanes.call()
            had = lanes.seconds_of_last_call()
            for (one, other), values in ahead.items():
                values.append(values[-1] + had[one] - had[other])
        here = lanes.waiting
        ahead = {pair: ahead.get(pair, [0.0]) for pair in combinations("abc", 2) if here.issuperset(pair)}
        for values in ahead.values():
            assert max(values) - min(values) <= 2 * lanes.longest_s + 1e-9


@given(steps)
def test_who_comes_waits_for_two_calls_of_each_other_caller_at_most(steps: list[Step]) -> None:
    """Whatever these have waiting, in whatever lanes, shared or not."""
    lanes = Lanes()
    due: dict[PendingRequest, int] = {}  # by how many calls
    for count, (step, caller, number, rows) in enumerate(steps):
        if step == "push":
            lanes.push(caller, number, rows)
            if count % 3 == 0:
                due[lanes.push(f"new {count}", number, 1)] = len(lanes.calls) + 2 * len(lanes.waiting)
        elif lanes.queue.rows:
            lanes.call()
            for request in lanes.calls[-1][1]:
                assert len(lanes.calls) <= due.pop(request, len(lanes.calls))
    assert min(due.values(), default=inf) >= len(lanes.calls)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "push", "call", "remove"]), st.integers(0, 5), st.integers(1, 20),
            st.sampled_from([0.0, 0.0, 0.3]), st.sampled_from([inf, 0.4, 5.0]),
        ),
        max_size=60,
    ),
    st.sampled_from([0.0, 400.0]),
)  # fmt: skip
def test_a_single_caller_is_served_as_if_callers_were_not_told_apart(
    steps: list[tuple[str, int, int, float, float]], delay_ms: float
) -> None:
    begun = []
    for fair in (False, True):
        lanes = Lanes(fair=fair, delay_ms=delay_ms)
        pushed: list[PendingRequest] = []
        for step, number, rows, offset_s, timeout_s in steps:
            if step == "push":
                deadline_s = lanes.now + timeout_s
                pushed.append(lanes.push("a", number, rows, priority_offset_s=offset_s, deadline_s=deadline_s))
            elif step == "call" and lanes.queue.rows:
                lanes.call()
            elif pushed:
                lanes.queue.remove(pushed[number % len(pushed)])
        while lanes.queue.rows:
            lanes.call()
        begun.append([[(request.arrival_s, request.rows) for request in taken] for _, taken in lanes.calls])
    assert begun[0] == begun[1]


class LoadTest:
    """A load test sends 10,000 rows at once, of so many shapes; ten other callers send a row every half second."""

    def __init__(self, fair: bool, shapes: int) -> None:
        self.shapes = cycle(range(shapes))
        self.loop = asyncio.get_running_loop()
        self.rejected = Counter[str]()
        self.waits_s: list[float] = []
        self.function = batch_function(FakeFunction(), 64)
        policy = WorkConserving()
        self.batcher = Batcher(
            [FakeDevice(1.0)], policy, BatcherOptions(8192, admission=False, fair_callers=fair), clock=self.loop.time
        )

    def send(self, caller: str, reply: FakeReply) -> None:
        shape = next(self.shapes) if caller == "load test" else 0
        key = KEY._replace(model=f"m{shape % 2}", shape=((shape,),))
        try:
            self.batcher.submit(key, self.function, request_now(self.batcher, rows_of(1.0), 1, reply, caller=caller))
        except Overloaded:
            self.rejected[caller] += 1

    async def play(self) -> None:
        for _ in range(10_000):
            self.send("load test", FakeReply())
        for _ in range(20):
            await asyncio.sleep(0.5)
            for number in range(10):
                self.send(f"client {number}", Timed(self.waits_s))
        await asyncio.sleep(1000)


class Timed(FakeReply):
    """Notes how long it took."""

    def __init__(self, waits_s: list[float]) -> None:
        super().__init__()
        self.waits_s, self.sent_s = waits_s, fake_time()

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.waits_s.append(fake_time() - self.sent_s)


@pytest.mark.parametrize("shapes", [1, 8, 500])
@pytest.mark.parametrize("fair", [False, True])
def test_a_load_test_starves_no_other_caller_if_callers_are_told_apart(fair: bool, shapes: int) -> None:
    async def main() -> LoadTest:
        load = LoadTest(fair, shapes)
        await load.play()
        return load

    load = run_in_fake_time(main())
    assert load.rejected["load test"] > 0
    if fair:
        assert set(load.rejected) == {"load test"}
        assert len(load.waits_s) == 200
        assert max(load.waits_s) <= 3.1  # the call in flight, one of each, and its own
    else:
        assert max([0.0, *load.waits_s]) > 20 or len(load.rejected) > 1


def test_order_of_arrival_alone_counts_unless_callers_are_told_apart() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], WorkConserving(), BatcherOptions(100), clock=loop.time)
        model = FakeFunction()
        function = batch_function(model, 2)
        for number in range(6):
            batcher.submit(
                KEY,
                function,
                request_now(batcher, rows_of(float(number)), 1, FakeReply(), caller="b" if number == 5 else "a"),
            )
        await asyncio.sleep(10)
        assert model.computed == [0, 1, 2, 3, 4, 5]

    run_in_fake_time(main())


@settings(deadline=None)
@given(rounds=st.lists(st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 4.0])] * 2), min_size=1, max_size=4))
def test_a_caller_has_the_weight_that_it_is_given_now_from_when_it_waits_again(
    rounds: list[tuple[float, float]],
) -> None:
    """Also one that is known: a key's weight is changed in the access file while the server runs."""
    weights: dict[str, float] = {}
    callers = Callers(weights)
    for round_of in rounds:
        weights.update(zip("ab", round_of, strict=True))
        waiting = [callers.enter(name) for name in "ab"]
        had = dict.fromkeys("ab", 0)
        for _ in range(120):
            first = min(range(2), key=lambda each: waiting[each].start)
            charge = callers.begin({"ab"[first]: 1}, 1.0)
            callers.end(charge, 1.0)
            had["ab"[first]] += 1
        for each in waiting:
            callers.leave(each)
        expected = 120 * round_of[0] / sum(round_of)
        assert abs(had["a"] - expected) <= 2 + 2 * max(round_of), f"{had} by weights {round_of}"
        assert (callers.waiting, callers.weight) == (0, 0.0)
