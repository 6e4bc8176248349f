"""Which lane is first, as requests come and leave; and that what is out of date is thrown away."""

from __future__ import annotations

from typing import Any

from app.batching.policy import BatchingOptions
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.waiting.lane_order import LaneOrder
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeFunction, batch_function, pending


class Waiting:
    def __init__(self, delay_ms: float = 0.0) -> None:
        self.queue = RequestQueue(10**6)
        self.scheduler = Scheduler(WorkConserving(BatchingOptions(max_batch_delay_ms=delay_ms)), {})
        self.function = batch_function(FakeFunction(), 4)

    def push(self, lane: str, arrival_s: float, deadline_s: float = 1e9, rows: int = 1) -> PendingRequest:
        request = pending(rows=rows, arrival_s=arrival_s, deadline_s=deadline_s)
        self.queue.push(LaneKey("m", 1, lane), self.function, request)
        return request

    def first(self, now: float = 100.0) -> str:
        _, lane = self.scheduler.first_due(self.queue, now)
        return lane.key.signature

    @property
    def order(self) -> LaneOrder:
        return self.queue.orders["m"]


def test_a_lane_is_less_urgent_when_its_urgent_request_has_left() -> None:
    waiting = Waiting()
    waiting.push("b", 10.5)
    waiting.push("a", 10.8)
    urgent = waiting.push("a", 10.9, deadline_s=11.0)
    assert [waiting.first() for _ in range(2)] == ["a", "a"]
    waiting.queue.remove(urgent)
    assert [waiting.first() for _ in range(2)] == ["b", "b"]


def test_a_lane_is_less_urgent_when_a_part_of_its_large_request_was_taken() -> None:
    waiting = Waiting()
    waiting.push("a", 10.0, rows=9)
    waiting.push("b", 10.5)
    assert waiting.first() == "a"
    waiting.queue.take(waiting.queue.lane(LaneKey("m", 1, "a")), 4, 4, 11.0)
    assert waiting.first() == "b"


def test_of_lanes_that_are_as_urgent_the_one_that_waits_longest_is_first_then_the_oldest() -> None:
    waiting = Waiting()
    waiting.push("late", 10.6, deadline_s=11.0)
    waiting.push("early", 10.0)
    waiting.push("as early", 10.0)
    assert waiting.first() == "early"


def test_entries_that_are_out_of_date_are_thrown_away() -> None:
    waiting = Waiting()
    stays = waiting.push("stays", 0.0)
    for number in range(1000):
        gone = [waiting.push(f"other {number}", 1.0), waiting.push("stays", 2.0, deadline_s=2.1 - number / 1e4)]
        for request in gone:
            waiting.queue.remove(request)
    assert waiting.order.lanes == 1
    assert len(waiting.order._awake) < 70
    assert waiting.first() == "stays"
    assert waiting.queue.lane(LaneKey("m", 1, "stays")).first is stays


def test_entries_of_lanes_that_sleep_are_thrown_away_too() -> None:
    waiting = Waiting(delay_ms=5000)
    for number in range(1000):
        request = waiting.push(f"lane {number}", 0.0)
        waiting.push("stays", number / 1000)
        waiting.first(1.0)
        waiting.queue.remove(request)
    assert waiting.order.lanes == 1
    assert len(waiting.order._asleep) < 70
    assert len(waiting.order._awake) < 70
    assert waiting.first(1.0) == "stays"


def test_valid_entries_are_kept_however_many_are_thrown_away() -> None:
    waiting = Waiting()
    for number in range(200):
        waiting.push(str(number), 50.0 - number / 10)
    for turn in range(400):
        waiting.queue.remove(waiting.push("0", 90.0, deadline_s=60.0 - turn / 100))
    firsts = []
    while waiting.queue.rows:
        firsts.append(int(waiting.first()))
        waiting.queue.take(waiting.queue.lane(LaneKey("m", 1, str(firsts[-1]))), 4, 4, 100.0)
    assert firsts == sorted(firsts, reverse=True)
    assert len(firsts) == 200


class Stands:
    """What stands in an order, with nothing else about it."""

    start, waiting_since_s = 0.0, 0.0
    asleep = less_urgent = False

    def __init__(self, number: int, key_s: float) -> None:
        self.serial = number
        self.scheduling_key_s = key_s
        self.place: object = None
        self.lane: Any = None


def test_a_lane_is_looked_at_again_at_the_time_at_which_it_is_due() -> None:
    order, lane = LaneOrder[Stands](), Stands(1, 7.0)
    order.place(lane)
    order.sleep(lane, 5.0)
    order.wake(4.9)
    assert order.first_awake() is None
    order.wake(5.0)
    assert order.first_awake() is lane.place
    assert not lane.asleep


def test_the_order_is_kept_when_entries_are_thrown_away() -> None:
    order = LaneOrder[Stands]()
    stand = [Stands(number, float(number * 389 % 1000)) for number in range(1000)]
    for lane in stand:
        order.place(lane)
    for lane in stand:
        if lane.serial % 5:
            order.remove(lane)
    order.place(Stands(1000, 1000.0))  # more than half are out of date: they are thrown away
    assert len(order._awake) < 300
    keys = []
    while (entry := order.first_awake()) is not None:
        keys.append(entry[0])
        order.remove(entry[-1])
    assert keys == sorted(keys)
    assert len(keys) == 201
