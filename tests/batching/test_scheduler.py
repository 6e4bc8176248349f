from __future__ import annotations

from collections import Counter
from itertools import accumulate, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import BatchInFlight
from app.batching.costs.cost_model import Costs
from app.batching.policy import BatchingOptions, BatchPlan, LaneView, SelfTuning
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import FairQueueing, Scheduler
from app.batching.waiting.lane import Lane
from app.core.batch_sizes import BatchSizes
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeFunction, FakeReply, batch_function, pending

NOW = 10.0
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.floats(9.0, NOW), st.floats(0.5, 60.0)), min_size=1, max_size=12
)


def queue_of(arrivals: list[tuple[int, int, float, float]]) -> RequestQueue:
    """Of each its lane, rows, time of arrival and seconds until the deadline."""
    queue = RequestQueue(1000)
    function = batch_function(FakeFunction(), 8, initial_estimates={1: 0.1, 8: 0.3})
    for lane, rows, arrival_s, timeout_s in sorted(arrivals, key=lambda each: each[2]):
        request = PendingRequest({}, rows, FakeReply(), arrival_s, arrival_s + timeout_s)
        queue.push(LaneKey("m", 1, str(lane)), function, request)
    return queue


@given(ARRIVALS, st.sampled_from([0.0, 400.0]))
def test_the_most_urgent_lane_that_is_due_is_first_or_the_next_one_due(
    arrivals: list[tuple[int, int, float, float]], delay_ms: float
) -> None:
    queue = queue_of(arrivals)
    policy = SelfTuning(BatchingOptions(max_batch_delay_ms=delay_ms))
    plans = [(policy.plan(lane), lane) for lane in queue.lanes]

    def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float]:
        plan, lane = planned
        due = plan.due_s <= NOW
        return not due, lane.scheduling_key_s if due else plan.due_s, lane.waiting_since_s

    assert Scheduler(policy, {}).first_due(queue, NOW) == min(plans, key=place)


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
    _, lane = Scheduler(policy, {}).first_due(queue, NOW)
    assert (lane.key.signature, policy.plans) == ("0", 1)


Call = tuple[str, float]


class Scene:
    """Models with work for ever, one device, and whose turn it was for how long."""

    def __init__(self, *models: str, calls: int = 100, **weights: float) -> None:
        self.queue = RequestQueue(10**6)
        self.functions = {model: batch_function(FakeFunction(), 1) for model in models}
        self.scheduler = Scheduler(WorkConserving(), weights)
        self.calls: list[Call] = []
        for model in models:
            self.push(model, calls)

    def push(self, model: str, calls: int = 1, *, signature: str = "f", arrival_s: float = 0.0) -> None:
        for _ in range(calls):
            self.queue.push(LaneKey(model, 1, signature), self.functions[model], pending(arrival_s=arrival_s))

    def begin(self) -> BatchInFlight:
        plan, lane = self.scheduler.first_due(self.queue, 1000.0)
        batch = BatchInFlight(lane, self.queue.take(lane, plan.rows, plan.most_rows, 1000.0), plan.reason)
        self.scheduler.record_start(batch)
        return batch

    def end(self, batch: BatchInFlight, seconds: float) -> None:
        self.scheduler.record_end(batch, seconds)
        batch.record_latency(seconds, 0.0, succeeded=True)
        self.calls.append((batch.key.model, seconds))

    def play(self, calls: int, **seconds: float) -> None:
        for _ in range(calls):
            batch = self.begin()
            self.end(batch, seconds[batch.key.model])

    @property
    def seconds(self) -> dict[str, float]:
        return {model: sum(seconds for name, seconds in self.calls if name == model) for model in self.functions}

    @property
    def turns(self) -> Counter[str]:
        return Counter(model for model, _ in self.calls)


def test_saturated_models_share_the_devices_seconds_by_their_weights() -> None:
    scene = Scene("bert", "resnet", bert=3, resnet=1)
    scene.play(80, bert=0.1, resnet=0.1)
    assert scene.turns == {"bert": 60, "resnet": 20}


def test_shares_are_of_seconds_whatever_a_call_takes() -> None:
    scene = Scene("bert", "resnet", bert=3, resnet=1)
    scene.play(100, bert=0.2, resnet=0.03)
    assert abs(scene.seconds["bert"] / 3 - scene.seconds["resnet"]) <= 0.2 / 3 + 0.03


def test_a_model_without_a_weight_counts_one_beside_weights() -> None:
    scene = Scene("bert", "resnet", bert=2)
    scene.play(60, bert=0.1, resnet=0.1)
    assert scene.turns == {"bert": 40, "resnet": 20}


def test_without_weights_lanes_go_by_scheduling_key_alone() -> None:
    scene = Scene("bert", "resnet", calls=0)
    for second in range(5):
        scene.push("resnet", arrival_s=second)
        scene.push("bert", arrival_s=second + 100)
    scene.play(5, bert=0.1, resnet=9.0)
    assert scene.turns == {"resnet": 5}


def test_within_a_model_the_most_urgent_lane_goes_first() -> None:
    scene = Scene("bert", calls=0, bert=3)
    scene.push("bert", signature="late", arrival_s=2)
    scene.push("bert", signature="early", arrival_s=1)
    assert [scene.begin().key.signature for _ in range(2)] == ["early", "late"]


def test_an_idle_models_share_goes_to_the_others_and_is_not_saved_up() -> None:
    scene = Scene("bert", "resnet", calls=0, bert=3, resnet=1)
    scene.push("resnet", 200)
    scene.play(100, resnet=0.1)
    scene.push("bert", 100)
    scene.play(80, bert=0.1, resnet=0.1)
    assert 59 <= scene.turns["bert"] <= 61  # as if both had begun now


def test_several_devices_are_shared_by_what_calls_will_foreseeably_take() -> None:
    scene = Scene("bert", "resnet", bert=3, resnet=1)
    scene.play(8, bert=0.1, resnet=0.1)  # costs are known now
    under_way = [scene.begin() for _ in range(4)]
    assert Counter(batch.key.model for batch in under_way) == {"bert": 3, "resnet": 1}


def test_weights_change_from_the_next_call_on() -> None:
    scene = Scene("bert", "resnet", bert=3, resnet=1)
    scene.play(40, bert=0.1, resnet=0.1)
    scene.scheduler.tune("bert", WorkConserving(), weight=1)
    before = scene.turns
    scene.play(40, bert=0.1, resnet=0.1)
    assert (scene.turns - before)["bert"] == pytest.approx(20, abs=1)
    for model in ("bert", "resnet"):
        scene.scheduler.tune(model, WorkConserving(), weight=0)
    first = scene.begin()
    scene.end(first, 100.0)
    assert scene.begin().key == first.key  # nobody has a weight: of equally urgent lanes the first


@given(
    st.lists(st.floats(0.001, 10.0), min_size=2, max_size=40),
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=3),
)
def test_no_two_models_with_work_drift_apart_by_more_than_a_call_of_each(
    seconds: list[float], weights: list[float]
) -> None:
    """Theorem 1 of the paper, over every stretch of time."""
    weight_of = {f"m{number}": weight for number, weight in enumerate(weights)}
    scene = Scene(*weight_of, **weight_of)  # type: ignore[arg-type]  # none is named calls
    for each in seconds:
        scene.end(scene.begin(), each)
    served = {
        model: [0.0, *accumulate(took if name == model else 0.0 for name, took in scene.calls)] for model in weight_of
    }
    longest = max(seconds)
    for one, other in combinations(weight_of, 2):
        ahead = [
            first / weight_of[one] - second / weight_of[other]
            for first, second in zip(served[one], served[other], strict=True)
        ]
        bound = longest / weight_of[one] + longest / weight_of[other]
        assert max(ahead) - min(ahead) <= bound * (1 + 1e-9)


def test_a_weight_counts_from_when_it_is_set() -> None:
    scene = Scene("bert", "resnet", bert=1, resnet=1)
    scene.scheduler.tune("bert", WorkConserving(), weight=3)
    scene.play(80, bert=0.1, resnet=0.1)
    assert scene.turns == {"bert": 60, "resnet": 20}


def test_a_call_that_was_no_batch_is_charged_as_one() -> None:
    function = batch_function(FakeFunction())
    key = LaneKey("bert", 1, "serving_default")
    batch = BatchInFlight(Lane(key, function), [pending(1.0)], "idle")
    by_batch, by_call = FairQueueing({"bert": 2.0}), FairQueueing({"bert": 2.0})
    for _ in range(3):
        by_batch.record_start(batch)
        by_batch.record_end(batch, 5.0)
        by_call.record_call("bert", 5.0)
        assert by_call.start_time("bert") == by_batch.start_time("bert") > 0
        assert by_call.start_time("other") == by_batch.start_time("other")


def test_there_are_shares_only_if_a_model_has_a_weight() -> None:
    assert not FairQueueing({}).weights
    assert not FairQueueing({"bert": 0.0}).weights
    assert FairQueueing({"bert": 1.0}).weights
    assert FairQueueing({"bert": 3.0}).share("bert", ["bert", "resnet"]) == 0.75
    assert FairQueueing({"bert": 3.0}).start_time("bert") == 0.0


def test_calls_that_began_before_there_were_weights_are_not_charged() -> None:
    scene = Scene("bert", "resnet")
    before = scene.begin()
    scene.scheduler.tune("bert", WorkConserving(), weight=1)
    scene.end(before, 1000.0)
    scene.play(10, bert=0.1, resnet=0.1)
    assert abs(scene.turns["bert"] - 1 - scene.turns["resnet"]) <= 1


def test_an_idle_device_takes_every_request_at_once_if_no_policy_waits_or_limits() -> None:
    waits = WorkConserving(BatchingOptions(max_batch_delay_ms=1))
    scheduler = Scheduler(WorkConserving(), {})
    assert scheduler.eager
    scheduler.tune("bert", waits, 0)
    scheduler.tune("resnet", WorkConserving(), 0)
    assert not scheduler.eager
    scheduler.tune("bert", WorkConserving(), 0)
    assert scheduler.eager
    scheduler = Scheduler(waits, {})
    assert not scheduler.eager
    scheduler.tune("bert", WorkConserving(), 0)
    assert not scheduler.eager


def test_the_next_full_batch_tries_the_next_larger_size_now_and_then() -> None:
    """What asks for full batches only would never correct a size that was measured in a bad moment."""
    scheduler = Scheduler(SelfTuning(), {})
    costs = Costs(BatchSizes((1, 2, 4, 8)), {1: 1.0, 2: 1.5, 4: 9.0, 8: 40.0})
    sizes = set[int]()
    for number in range(600):
        full = scheduler.next_full_batch("m", costs, 8)
        assert full == scheduler.full_batch("m", costs, 8) == 2 or costs.explores
        sizes.add(full)
        costs.record_dispatch(full, float(number))
    assert sizes == {2, 4}


def test_a_model_has_its_own_policy() -> None:
    queue = queue_of([(0, 4, 9.0, 5.0)])
    (lane,) = queue.lanes
    scheduler = Scheduler(WorkConserving(), {})
    scheduler.tune("other", WorkConserving(BatchingOptions(max_batch_size=1)), 0)
    assert (scheduler.most_rows(lane), scheduler.plan(lane).rows) == (8, 8)
    scheduler.tune("m", WorkConserving(BatchingOptions(max_batch_size=2)), 0)
    assert (scheduler.most_rows(lane), scheduler.plan(lane).rows) == (2, 2)


class Delayed:
    """Lanes of two models whose devices wait for 400 ms."""

    def __init__(self) -> None:
        self.queue = RequestQueue(100)
        self.scheduler = Scheduler(WorkConserving(BatchingOptions(max_batch_delay_ms=400)), {})
        self.function = batch_function(FakeFunction(), 8)

    def push(self, lane: str, arrival_s: float, timeout_s: float = 30.0, model: str = "m") -> PendingRequest:
        request = PendingRequest({}, 1, FakeReply(), arrival_s, arrival_s + timeout_s)
        self.queue.push(LaneKey(model, 1, lane), self.function, request)
        return request

    def first(self, now: float) -> tuple[str, float]:
        plan, lane = self.scheduler.first_due(self.queue, now)
        return lane.key.signature, round(plan.due_s, 6)


def test_a_lane_that_is_due_goes_before_a_more_urgent_one_that_is_not() -> None:
    delayed = Delayed()
    delayed.push("calm", 9.5)
    delayed.push("urgent", 9.8, timeout_s=0.25, model="other")
    assert [delayed.first(9.85) for _ in range(2)] == 2 * [("calm", 9.9)]  # the next one, when nobody is due
    assert [delayed.first(9.95) for _ in range(2)] == 2 * [("calm", 9.9)]
    assert [delayed.first(10.3) for _ in range(2)] == 2 * [("urgent", 10.2)]
    delayed.push("hasty", 10.3, timeout_s=0.01)
    assert delayed.first(10.3) == ("urgent", 10.2)
    delayed.push("late", 0.0)
    assert delayed.first(10.3) == ("late", 0.4)


def test_a_lane_is_due_just_when_its_delay_is_over() -> None:
    delayed = Delayed()
    delayed.push("soon", 1.0)
    delayed.push("now", 0.0, timeout_s=30.0)
    _, lane = delayed.scheduler.first_due(delayed.queue, 0.4)
    assert lane.key.signature == "now"
    assert len(delayed.queue.take(lane, 8, 8, 0.4)) == 1
    assert delayed.first(0.4) == ("soon", 1.4)


@pytest.mark.parametrize("model", ["m", "other"])
def test_a_lane_whose_oldest_request_left_is_due_later_than_was_noted(model: str) -> None:
    delayed = Delayed()
    gone = delayed.push("first", 1.0)
    delayed.push("first", 1.3)
    delayed.push("second", 1.2, model=model)
    assert delayed.first(1.3) == ("first", 1.4)
    delayed.queue.remove(gone)
    assert [delayed.first(1.3) for _ in range(2)] == 2 * [("second", 1.6)]
    assert delayed.first(1.65) == ("second", 1.6)
    delayed.push("third", 1.55, model=model)
    assert delayed.first(1.58) == ("second", 1.6)


def test_a_lane_that_sleeps_is_looked_at_again_when_a_request_comes_or_policies_change() -> None:
    delayed = Delayed()
    delayed.push("fills", 1.0)
    assert delayed.first(1.1) == ("fills", 1.4)
    for _ in range(7):
        delayed.push("fills", 1.1)
    assert delayed.first(1.1) == ("fills", 1.0), "it is full"

    delayed = Delayed()
    for lane, model in (("a", "m"), ("b", "other")):
        delayed.push(lane, 1.0, model=model)
    assert delayed.first(1.1) == ("a", 1.4)
    for model in ("m", "other"):
        delayed.scheduler.tune(model, WorkConserving(), 0)
    delayed.queue.replan()
    assert delayed.first(1.1) == ("a", 1.0)
    delayed.queue.take(delayed.queue.lane(LaneKey("m", 1, "a")), 1, 8, 1.1)
    assert delayed.first(1.1) == ("b", 1.0)
