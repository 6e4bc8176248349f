"""The laws of the batching core, under random arrival, cancellation, expiry, failure and drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil, inf

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.state import BatcherOptions
from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, Overloaded, ShuttingDown
from app.core.events import BatchExecuted, BatchRejected, CallRepeated, Event, RequestsRefused
from app.core.inference import Array
from app.core.interfaces import answer_of
from app.core.reply import Answer, Reply
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeFunction, LateDevice, batch_function, run_in_fake_time

MAX_ROWS = 4
CAPACITY = 12

#: Nothing happens so soon after something else: what is due by then has begun.
A_MOMENT_S = 0.01

#: `make schedules` takes many more.
EXAMPLES = max(300, settings.default.max_examples if settings.default else 0)


@dataclass(frozen=True)
class Call:
    """One client: when it calls, on which lane, with how many rows, and what befalls it."""

    at_s: float
    lane: int
    rows: int
    timeout_s: float
    cancel_after_s: float
    fate: str
    caller: str = ""


calls = st.builds(
    Call,
    at_s=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 4.0]),
    lane=st.integers(0, 2),
    rows=st.integers(0, 9) | st.just(2 * CAPACITY),
    timeout_s=st.sampled_from([inf, inf, 0.05, 0.7, 2.0]),
    cancel_after_s=st.sampled_from([inf, inf, inf, 0.0, 0.3, 1.2]),
    fate=st.sampled_from(["good", "good", "good", "good", "bad", "broken"]),
    caller=st.sampled_from("aab"),
)


class Run:
    """Plays a schedule and keeps what each client saw."""

    def __init__(
        self,
        schedule: list[Call],
        policy: type[SelfTuning | WorkConserving],
        *,
        devices: int,
        delay_s: float,
        late: bool,
        inline_s: float,
        drain_at_s: float,
        fair: bool,
    ) -> None:
        self.fair = fair
        self.schedule = schedule
        self.late = late
        self.drain_at_s = drain_at_s
        self.loop = asyncio.get_running_loop()
        self.start_s = self.loop.time()
        self.events: list[Event] = []
        self.seen: dict[int, list[object]] = {number: [] for number in range(len(schedule))}
        self.waited_s: dict[int, float] = {}
        self.arrivals: list[int] = []
        self.gone: set[float] = set()
        self.computed_for_nobody: set[float] = set()
        self.large: set[PendingRequest] = set()  # larger than the free room as they came
        self.most_of_large = ceil(CAPACITY / (4 if fair else 2))  # the room that one takes (waiting/room.py)
        self.overfull = False
        self.stranded: list[str] = []
        self.complaints: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self.models = [FakeFunction() for _ in range(3)]
        self.functions = [batch_function(self._watched(model, late), MAX_ROWS) for model in self.models]
        self.batcher = Batcher(
            [(LateDevice if late else FakeDevice)(1.0, f"fake:{index}") for index in range(devices)],
            policy(BatchingOptions(max_batch_delay_ms=1000 * delay_s)),
            BatcherOptions(CAPACITY, max_inline_s=inline_s, fair_callers=fair),
            self.events.append,
            self.loop.time,
        )

    def _watched(self, model: FakeFunction, late: bool) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.overfull |= self.room_taken() > CAPACITY
            if not late:  # otherwise who is gone now may have been there when the batch was cut
                self.computed_for_nobody |= self.gone & {abs(value) - 1 for value in inputs["x"][:, 0].tolist()}
            return model(inputs)

        return run

    def room_taken(self) -> int:
        """The rows that wait; of a large request a share of the room at most, and there is one at a time.

        A large request stays one when it has failed, and what is left of it waits for its caller to remove it.
        """
        waiting = [each for lane in self.batcher.queue.lanes for each in lane]
        largest = max([each.counted_rows for each in waiting if each in self.large], default=0)
        return sum([each.counted_rows for each in waiting]) - max(0, largest - self.most_of_large)

    def submit(self, call: Call, inputs: Mapping[str, Array], reply: Reply) -> RequestHandle:
        """Submits a request, and notes whether it is larger than the free room."""
        taken = self.batcher.queue.room.rows
        handle = self.batcher.submit(
            LaneKey("m", 1, str(call.lane)),
            self.functions[call.lane],
            inputs,
            call.rows,
            reply,
            deadline_s=self.loop.time() + call.timeout_s,
            caller=call.caller if self.fair else "",
        )
        if taken + (call.rows or 1) > CAPACITY:
            self.large.add(handle._request)
            self.overfull |= taken >= self.most_of_large  # others must have taken less
        return handle

    async def client(self, number: int, call: Call) -> None:
        await asyncio.sleep(call.at_s)
        for computed_s in (0.0, 1.0, 2.0):  # as it came, and when devices become free
            self.loop.call_later(computed_s + A_MOMENT_S, self.look)
        value = {"good": number + 1.0, "bad": -(number + 1.0), "broken": float("nan")}[call.fate]
        inputs = {"x": np.full((call.rows, 2), value, np.float32)}
        task = asyncio.create_task(answer_of(partial(self.submit, call, inputs)))
        called_s = self.loop.time()
        self.arrivals.append(number)
        if call.cancel_after_s != inf:
            self.loop.call_later(call.cancel_after_s, self.cancel, number, task)
        try:
            self.seen[number].append(await task)
        except asyncio.CancelledError:
            self.seen[number].append("cancelled")
        except Exception as error:
            self.seen[number].append(error)
        self.waited_s[number] = self.loop.time() - called_s
        self.gone.add(number)

    def look(self) -> None:
        """No device may be idle while something is due."""
        self.stranded += self.batcher.failures(0.0)

    def cancel(self, number: int, task: asyncio.Task[Answer]) -> None:
        task.cancel()
        self.gone.add(number)

    async def play(self) -> None:
        clients = [asyncio.create_task(self.client(number, call)) for number, call in enumerate(self.schedule)]
        await asyncio.sleep(self.drain_at_s)
        await self.batcher.drain()
        await asyncio.gather(*clients)


REJECTIONS = (DeadlineExceeded, Overloaded, ShuttingDown)
EXPECTED = (InvalidRequest, InferenceFailed, DeadlineExceeded, Overloaded, ShuttingDown)


def check_laws(run: Run) -> None:
    for number, call in enumerate(run.schedule):
        (seen,) = run.seen[number]  # answered once: not twice, not never
        assert run.waited_s[number] <= call.timeout_s + A_MOMENT_S  # late is told at once, also while devices are busy
        if isinstance(seen, Answer):
            assert call.fate == "good" or not call.rows
            np.testing.assert_array_equal(seen.outputs["y"], np.full((call.rows, 2), 2.0 * (number + 1)))
        elif isinstance(seen, Exception):
            assert isinstance(seen, EXPECTED), repr(seen)
            if isinstance(seen, InvalidRequest):
                assert call.fate == "bad"  # nobody is blamed for a neighbour
            if type(seen) is InferenceFailed:
                assert any(other.fate == "broken" and other.lane == call.lane for other in run.schedule)
            if isinstance(seen, DeadlineExceeded):
                assert call.timeout_s != inf
        else:
            assert call.cancel_after_s != inf
    for model in run.models:
        assert all(len(batch) <= MAX_ROWS for batch in model.calls)
    batches = [event for event in run.events if not isinstance(event, RequestsRefused | CallRepeated)]
    assert all(isinstance(event, BatchExecuted | BatchRejected) and event.rows <= MAX_ROWS for event in batches)
    rejected = sum(event.number for event in run.events if isinstance(event, RequestsRefused))
    errors = [seen for (seen,) in run.seen.values() if isinstance(seen, REJECTIONS)]
    assert rejected == len(errors)  # each is counted, and once
    assert all(wait_s >= 0 for event in run.events if isinstance(event, BatchExecuted) for wait_s in event.queue_s)
    assert run.batcher.queue.rows == run.batcher.queue.room.rows == 0
    assert not run.batcher.queue.lanes
    assert run.batcher.failures(0.0) == []
    assert run.stranded == []
    assert run.complaints == []


def check_order(run: Run) -> None:
    """Within a lane, and of one caller if callers take turns, computation follows arrival.

    Where callers are told apart, the requests of one that sent a bad one stand in lanes apart for a while.
    """
    suspects = {call.caller for call in run.schedule if call.fate == "bad"} if run.fair else set()
    for (lane, model), callers in product(enumerate(run.models), "ab" if run.fair else ["ab"]):
        own = [
            number + 1.0
            for number in run.arrivals
            if run.schedule[number].lane == lane and (run.schedule[number].caller or "a") in callers
        ]
        if suspects.intersection(callers):
            continue
        computed = [abs(value) for value in model.computed if abs(value) in own]
        assert computed == [value for value in own if value in computed]


def check_nothing_is_computed_for_nobody(run: Run) -> None:
    """What is cancelled, expired or failed before its batch begins, or rejected at the door, is never computed."""
    assert run.computed_for_nobody == set()
    assert not run.overfull
    if not run.late:
        assert all(event.expired == 0 for event in run.events if isinstance(event, BatchExecuted))
    for number, call in enumerate(run.schedule):
        (seen,) = run.seen[number]
        if isinstance(seen, Overloaded | ShuttingDown):
            assert number + 1.0 not in {abs(value) for value in run.models[call.lane].computed}


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    schedule=st.lists(calls, min_size=1, max_size=24),
    policy=st.sampled_from([SelfTuning, WorkConserving]),
    devices=st.integers(1, 3),
    delay_s=st.sampled_from([0.0, 0.0, 0.4]),
    late=st.booleans(),
    inline_s=st.sampled_from([0.0, 0.5, 2.0]),
    drain_at_s=st.sampled_from([0.2, 1.0, 3.0, 60.0]),
    fair=st.booleans(),
)
@example(  # what is left of a large request that failed is all that waits when its turn comes
    schedule=[Call(0.0, 2, 6, inf, inf, "good"), Call(0.1, 0, 5, inf, inf, "broken")],
    policy=WorkConserving,
    devices=1,
    delay_s=0.4,
    late=False,
    inline_s=2.0,
    drain_at_s=0.2,
    fair=False,
)
@example(  # as two devices end at once, what is left of a large request that the first has failed still waits
    schedule=[
        Call(0.0, 0, 24, inf, inf, "bad", "a"),
        Call(0.0, 0, 24, inf, inf, "good", "a"),
        Call(0.0, 0, 24, inf, inf, "good", "b"),
        Call(0.0, 1, 1, inf, inf, "good", "a"),
    ],
    policy=SelfTuning,
    devices=2,
    delay_s=0.0,
    late=True,
    inline_s=0.0,
    drain_at_s=0.2,
    fair=True,
)
@example(  # a request that is larger than the free room, but not than the queue, waits as a whole
    schedule=[Call(0.0, 0, 1, inf, inf, "good"), Call(0.1, 0, 4, inf, inf, "good"), Call(0.1, 0, 9, inf, inf, "good")],
    policy=SelfTuning,
    devices=1,
    delay_s=0.0,
    late=True,
    inline_s=0.0,
    drain_at_s=60.0,
    fair=False,
)
def test_laws(
    *,
    schedule: list[Call],
    policy: type[SelfTuning | WorkConserving],
    devices: int,
    delay_s: float,
    late: bool,
    inline_s: float,
    drain_at_s: float,
    fair: bool,
) -> None:
    async def main() -> Run:
        run = Run(
            schedule,
            policy,
            devices=devices,
            delay_s=delay_s,
            late=late,
            inline_s=inline_s,
            drain_at_s=drain_at_s,
            fair=fair,
        )
        await run.play()
        return run

    run = run_in_fake_time(main())
    check_laws(run)
    if not (late and devices > 1):  # batches begin in order; which of two late devices computes first is open
        check_order(run)
    check_nothing_is_computed_for_nobody(run)
