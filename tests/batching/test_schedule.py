from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import BatchingOptions, BatchPlan, LaneView, SelfTuning
from app.batching.queue import Lane, RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Schedule
from tests.support.fakes import FakeFunction, FakeReply, batch_function

NOW = 10.0
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.floats(9.0, NOW), st.floats(0.5, 60.0)), min_size=1, max_size=12
)


def queue_of(arrivals: list[tuple[int, int, float, float]]) -> RequestQueue:
    """Of each its lane, rows, time of arrival and seconds until the deadline."""
    queue = RequestQueue(1000)
    function = batch_function(FakeFunction(), 8, seeds={1: 0.1, 8: 0.3})
    for lane, rows, arrival_s, timeout_s in sorted(arrivals, key=lambda each: each[2]):
        request = PendingRequest({}, rows, FakeReply(), arrival_s, arrival_s + timeout_s)
        queue.push(LaneKey("m", 1, str(lane)), function, request)
    return queue


@given(ARRIVALS, st.sampled_from([0.0, 400.0]))
def test_the_most_urgent_of_those_that_are_due_goes_first_else_who_is_due_next(
    arrivals: list[tuple[int, int, float, float]], delay_ms: float
) -> None:
    lanes = queue_of(arrivals).lanes
    policy = SelfTuning(BatchingOptions(max_batch_delay_ms=delay_ms))
    plans = [(policy.plan(lane), lane) for lane in lanes]

    def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float]:
        plan, lane = planned
        due = plan.due_s <= NOW
        return not due, lane.scheduling_key_s if due else plan.due_s, lane.oldest_arrival_s

    assert Schedule(policy, {}).first_due(lanes, NOW) == min(plans, key=place)


@pytest.mark.parametrize("lanes", [1, 500])
def test_however_many_lanes_wait_one_is_planned(lanes: int) -> None:
    """Shapes are the callers' choice, and planning each of them would hold up the event loop."""

    class Counting(SelfTuning):
        plans = 0

        def plan(self, lane: LaneView) -> BatchPlan:
            self.plans += 1
            return super().plan(lane)

    policy = Counting()
    queue = queue_of([(lane, 1, 9.0 + lane / 1000, 5.0) for lane in range(lanes)])
    _, lane = Schedule(policy, {}).first_due(queue.lanes, NOW)
    assert (lane.key.signature, policy.plans) == ("0", 1)
