"""What a request costs does not grow with what waits: bytecodes are counted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf

import numpy as np
import pytest

from app.batching.admission import Admission
from app.batching.devices import DeviceSlots
from app.batching.dispatch.merging import merge_buckets
from app.batching.isolation import Isolations
from app.batching.policy import BatchingOptions
from app.batching.priority import BULK, priority_offset_s
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.shapes.padding import ShapePadding
from app.batching.waiting.lane import Lane
from app.batching.waiting.work import WaitingWork
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeFunction, FakeReply, batch_function
from tests.support.steps import steps_of

FEW, MANY = 100, 2000
ROUNDS = 10


class Waiting:
    """A queue, filled by a test, and the steps of what is done to it then."""

    def __init__(self, delay_ms: float = 0.0) -> None:
        self.clock = count()
        self.scheduler = Scheduler(WorkConserving(BatchingOptions(max_batch_delay_ms=delay_ms)), {})
        self.queue = RequestQueue(10**6, self.scheduler.most_rows)
        slots = DeviceSlots([FakeDevice()], lambda: 0.0)
        self.admission = Admission(self.queue, slots, self.scheduler, Isolations(self.queue), lambda: 0.0)
        padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0}, call_cells=0.0)
        self.function = batch_function(FakeFunction(), 8, initial_estimates={1: 1e-6, 8: 2e-6}, padding=padding)
        for length in range(MANY + 10):
            padding.cells(((length,),))

    @property
    def now(self) -> float:
        """Another time whenever it is asked."""
        return 1000 + next(self.clock) / 1e5

    def push(self, lane: int = 0, *, priority: int = 0, timeout_s: float = 30.0) -> PendingRequest:
        now = self.now
        inputs = {"x": np.zeros((1, 2), np.float32)}
        request = PendingRequest(inputs, 1, FakeReply(), now, now + timeout_s, priority_offset_s(priority))
        self.queue.push(LaneKey("m", 1, "f", (), ((lane,),), True), self.function, request)
        return request

    def lane_of(self, request: PendingRequest) -> Lane:
        assert request.lane is not None
        return self.queue.lane(request.lane)

    def take(self) -> None:
        _, lane = self.scheduler.first_due(self.queue, 2000.0)
        self.queue.take(lane, 4, 8, 2000.0)

    def check(self, request: PendingRequest) -> None:
        self.admission.check_deadline(request, request.arrival_s)


def grows(fill: Callable[[Waiting, int], object], act: Callable[[Waiting], object], delay_ms: float = 0.0) -> float:
    """How many times as many steps an act takes beside many as beside few."""
    steps = []
    for waiting_requests in (FEW, MANY):
        waiting = Waiting(delay_ms)
        for number in range(waiting_requests):
            fill(waiting, number)
        steps.append(steps_of(lambda waiting=waiting: [act(waiting) for _ in range(ROUNDS)]))  # type: ignore[misc]  # mypy infers no default
    return steps[1] / steps[0]


FILLS: dict[str, Callable[[Waiting, int], object]] = {
    "one lane": lambda waiting, _: waiting.push(),
    "low priority": lambda waiting, _: waiting.push(priority=10),
    "bulk": lambda waiting, _: waiting.push(priority=BULK),
    "shorter and shorter deadlines": lambda waiting, number: waiting.push(timeout_s=100 - number / 100),
    "no deadline": lambda waiting, _: waiting.push(timeout_s=inf),
    "many lanes": lambda waiting, number: waiting.push(number),
}
ACTS: dict[str, Callable[[Waiting], object]] = {
    "submit": lambda waiting: waiting.push(),
    "submit to a new lane": lambda waiting: waiting.push(MANY + 1),
    "submit urgently": lambda waiting: waiting.push(priority=1, timeout_s=0.5),
    "take": lambda waiting: waiting.take(),
    "remove": lambda waiting: waiting.queue.remove(waiting.push()),
    "check the deadline": lambda waiting: waiting.check(waiting.push(timeout_s=20.0)),
    "merge": lambda waiting: [*merge_buckets(waiting.lane_of(waiting.push()), 1, 8, waiting.queue)],
}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("act", ACTS)
def test_a_request_costs_the_same_whatever_waits(fill: str, act: str) -> None:
    assert grows(FILLS[fill], ACTS[act]) < 2


@pytest.mark.parametrize("fill", FILLS)
def test_so_it_does_where_lanes_wait_for_more_requests(fill: str) -> None:
    def look(waiting: Waiting) -> None:
        waiting.push(next(waiting.clock) % 50)
        waiting.scheduler.first_due(waiting.queue, 1000.5)

    def fill_and_look(waiting: Waiting, number: int) -> None:
        FILLS[fill](waiting, number)
        waiting.scheduler.first_due(waiting.queue, 1000.5)

    assert grows(fill_and_look, look, delay_ms=5000.0) < 2


def test_no_more_lanes_are_counted_for_a_request_than_changed_lately() -> None:
    waiting, counted = Waiting(), []

    def most_rows(lane: Lane) -> int:
        counted.append(lane)
        return lane.max_rows

    waiting.queue.work = WaitingWork(most_rows)
    for number in range(FEW):
        waiting.push(number)
        assert len(counted) <= number + 1
    counted.clear()
    waiting.check(waiting.push(FEW))
    assert len(counted) <= 10
