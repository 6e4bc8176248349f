"""Which lane is first where callers take turns."""

from __future__ import annotations

from collections.abc import Callable

from app.batching.batch import BatchInFlight
from app.batching.policy import BatchingOptions
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.waiting.caller_order import CallerOrder
from app.batching.waiting.callers import Callers
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeFunction, FakeReply, batch_function
from tests.support.steps import steps_of


class Waiting:
    """Lanes of several models; a call takes a second."""

    def __init__(self, delay_ms: float = 0.0, **weights: float) -> None:
        callers = Callers()
        self.scheduler = Scheduler(WorkConserving(BatchingOptions(max_batch_delay_ms=delay_ms)), weights, callers)
        self.queue = RequestQueue(10**7, callers=callers)
        self.function = batch_function(FakeFunction(), 4, initial_estimates={1: 1.0, 4: 1.0})
        self.now = 0.0

    def push(self, caller: str, lane: str, model: str = "m", timeout_s: float = 1e9) -> PendingRequest:
        self.now += 0.01
        request = PendingRequest({}, 1, FakeReply(), self.now, self.now + timeout_s, caller=caller)
        self.queue.push(LaneKey(model, 1, lane), self.function, request)
        return request

    def call(self) -> str:
        plan, lane = self.scheduler.first_due(self.queue, self.now)
        taken = self.queue.take(lane, plan.rows, plan.most_rows, self.now)
        batch = BatchInFlight(lane, taken, plan.reason)
        self.scheduler.record_start(batch)
        self.scheduler.record_end(batch, 1.0)
        return f"{lane.key.signature}:" + "".join(request.caller for request in taken)

    def calls(self, count: int) -> list[str]:
        return [self.call() for _ in range(count)]


def test_a_callers_single_request_waits_for_a_call_of_the_other_at_most() -> None:
    waiting = Waiting()
    for number in range(40):
        waiting.push("a", str(number))
    assert waiting.calls(2) == ["0:a", "1:a"]
    waiting.push("b", "z")
    assert waiting.calls(3) == ["z:b", "2:a", "3:a"]


def test_who_waits_longest_stays_first_when_it_sends_more() -> None:
    waiting = Waiting()
    waiting.push("a", "0")
    waiting.push("b", "1")
    waiting.push("a", "2")
    assert waiting.call() == "0:a"


def test_nothing_is_kept_of_callers_that_left() -> None:
    waiting = Waiting()
    waiting.push("stays", "x")
    for number in range(1000):
        waiting.queue.remove(waiting.push(f"caller {number}", "y"))
    order = waiting.queue.orders["m"]
    assert isinstance(order, CallerOrder)
    assert len(order._callers) == order.lanes == 1
    assert len(order._fair_heap._heap) < 100
    assert waiting.call() == "x:stays"


def test_callers_take_turns_across_models() -> None:
    waiting = Waiting()
    for number in range(4):
        waiting.push("a", str(number), "m")
    for number in range(4, 8):
        waiting.push("b", str(number), "other")
    assert waiting.calls(8) == ["0:a", "4:b", "1:a", "5:b", "2:a", "6:b", "3:a", "7:b"]


def test_weights_choose_the_model_before_the_caller() -> None:
    waiting = Waiting(m=3.0, other=1.0)
    for number in range(30):
        waiting.push("a", str(number), "m")
        waiting.push("b", str(number), "other")
    assert "".join(call[-1] for call in waiting.calls(40)).count("a") == 30


def test_a_lane_comes_by_its_first_caller_and_takes_the_others_along() -> None:
    waiting = Waiting()
    for lane in "xyz":
        waiting.push("a", lane)
        waiting.push("a", lane)
    waiting.push("b", "z")
    assert waiting.calls(3) == ["x:aa", "z:baa", "y:aa"]


def test_of_a_callers_lanes_the_most_urgent_one_is_first_whatever_others_wait_in_it() -> None:
    waiting = Waiting()
    waiting.push("a", "early")
    waiting.push("b", "late")
    waiting.push("a", "late", timeout_s=0.5)
    urgent = waiting.push("b", "other", timeout_s=0.2)
    assert waiting.call() == "late:ba"
    waiting.queue.remove(urgent)
    assert waiting.call() == "early:a"


def test_lanes_that_wait_for_more_requests_sleep_and_wake_for_all_of_their_callers() -> None:
    waiting = Waiting(delay_ms=400)
    waiting.push("a", "x")
    waiting.push("b", "x")
    waiting.push("a", "y")
    plan, lane = waiting.scheduler.first_due(waiting.queue, waiting.now)
    assert (lane.key.signature, round(plan.due_s, 6)) == ("x", 0.41)
    assert waiting.queue.orders["m"].first_awake() is None
    for _ in range(2):
        waiting.push("b", "y")
    assert waiting.scheduler.first_due(waiting.queue, waiting.now)[0].due_s > waiting.now
    waiting.push("b", "y")
    assert waiting.call() == "y:abbb", "it is full"
    waiting.now = 0.5
    assert waiting.call() == "x:ab"
    assert not waiting.queue.orders


def test_what_a_request_costs_does_not_grow_with_lanes_callers_and_requests() -> None:
    fills: dict[str, Callable[[Waiting, int], object]] = {
        "a caller in each lane": lambda waiting, number: waiting.push(f"caller {number}", str(number)),
        "a caller in all lanes": lambda waiting, number: waiting.push("a", str(number)),
        "all callers in a lane": lambda waiting, number: waiting.push(f"caller {number}", "x"),
        "a caller in a lane": lambda waiting, _: waiting.push("a", "x"),
        "some in some": lambda waiting, number: waiting.push(f"caller {number % 7}", str(number % 11)),
    }
    for name, fill in fills.items():
        steps = []
        for requests in (100, 3000):
            waiting = Waiting()
            for number in range(requests):
                fill(waiting, number)
            waiting.calls(3)

            def act(waiting: Waiting = waiting) -> None:
                for number in range(10):
                    waiting.push("a", str(number))
                    waiting.push("b", "x")
                    waiting.queue.remove(waiting.push(f"other {number}", f"new {number}"))
                    waiting.calls(2)

            steps.append(steps_of(act))
        assert steps[1] < 2 * steps[0], name
