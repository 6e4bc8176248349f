from __future__ import annotations

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.costs.cost_model import CallSeconds
from app.batching.function import BatchFunction
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.waiting.lane import Lane
from app.batching.waiting.work import call_seconds
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function

PLACE_S = 1 / 1024


def function(rows_per_s: int = 0, seconds: tuple[float, ...] = (1.0, 1.5, 2.0)) -> BatchFunction:
    """Calls of 1, 2 and 4 rows; so many rows come a second."""
    sizes = [2**power for power in range(len(seconds))]
    made = batch_function(FakeFunction(), sizes[-1], initial_estimates=dict(zip(sizes, seconds, strict=True)))
    costs = made.costs(())
    costs.record_dispatch(0, 0.0)
    costs.record_dispatch(rows_per_s // 8, 0.125)
    assert costs.rows_per_s == rows_per_s
    return made


# --- the calls of a lane ---


@pytest.mark.parametrize(
    ("rows", "seconds"), [(0, 0.0), (1, 1.0), (2, 1.5), (3, 2.0), (4, 2.0), (5, 3.0), (8, 4.0), (9, 5.0), (0.5, 1.0)]
)
def test_rows_take_full_calls_and_one_for_the_rest(rows: float, seconds: float) -> None:
    assert call_seconds(Lane(KEY, function()), rows, 0.0, 4).seconds == seconds


def test_a_full_call_may_be_smaller_than_the_largest() -> None:
    assert call_seconds(Lane(KEY, function()), 3, 0.0, 2).seconds == 1.5 + 1.0


@pytest.mark.parametrize(
    ("rows", "wait_s", "seconds"),
    [(1, 0.0, 1.0), (1, 0.125, 1.5), (1, 0.15, 2.0), (1, 9.0, 2.0), (5, 0.0, 4.0), (2, 0.125, 2.0)],
)
def test_the_last_call_has_rows_that_come_meanwhile(rows: int, wait_s: float, seconds: float) -> None:
    """Eight rows a second."""
    assert call_seconds(Lane(KEY, function(8)), rows, wait_s, 4).seconds == seconds


@pytest.mark.parametrize(("wait_s", "last_rows"), [(0.0, 4), (0.125, 4), (0.25, 8)])
def test_rows_come_while_the_calls_before_the_last_one_run(wait_s: float, last_rows: int) -> None:
    """Of 65 rows 64 are in a call of a quarter of a second; eight rows come a second, and calls have powers of two."""
    lane = Lane(KEY, function(8, tuple(2**power / 256 for power in range(7))))
    assert call_seconds(lane, 65, wait_s, 64).seconds == 0.25 + last_rows / 256


def test_calls_vary_independently() -> None:
    lane = Lane(KEY, function())
    lane.costs.deviation = 0.5
    assert call_seconds(lane, 10, 0.0, 4) == (5.5, 0.25 * (2**2 + 2**2 + 1.5**2))
    assert call_seconds(lane, 0, 1.0, 4) == call_seconds(lane, -1, 1.0, 4) == (0.0, 0.0)


def test_nothing_is_known_of_calls_that_were_never_made() -> None:
    assert call_seconds(Lane(KEY, batch_function(FakeFunction())), 9, 1.0, 4) == (0.0, 0.0)


# --- the calls of all lanes ---


class Work:
    """Lanes of several models, a second for each row; nobody comes meanwhile."""

    def __init__(self) -> None:
        self.queue = RequestQueue(10**6)
        self.function = function(seconds=(1.0,))
        self.rows: dict[LaneKey, list[PendingRequest]] = {}

    def push(self, lane: int, arrival_s: float, model: str = "m") -> PendingRequest:
        key = LaneKey(model, 1, str(lane))
        request = PendingRequest({}, 1, FakeReply(), arrival_s)
        self.queue.push(key, self.function, request)
        return request

    def before(self, key_s: float, lane: Lane, flying_s: float = 0.0, devices: int = 1) -> CallSeconds:
        return self.queue.work.before(key_s, lane, flying_s, devices)

    def expected(self, key_s: float, lane: Lane) -> float:
        place = floor(key_s / PLACE_S)
        lanes = [each for each in self.queue.lanes if each is not lane]
        return float(sum(each.rows for each in lanes if floor(each.scheduling_key_s / PLACE_S) <= place))

    def lane_of(self, request: PendingRequest) -> Lane:
        assert request.lane is not None
        return self.queue.lane(request.lane)


@pytest.mark.parametrize("lanes", [1, 7, 8, 9, 40, 400])
def test_the_work_before_a_key_is_that_of_all_lanes_up_to_it_but_its_own(lanes: int) -> None:
    work = Work()
    requests = [work.push(number % lanes, number / 10) for number in range(lanes + lanes // 2)]
    for request in (requests[0], requests[len(requests) // 2], requests[-1]):
        lane = work.lane_of(request)
        for key_s in (lane.scheduling_key_s, lane.scheduling_key_s - PLACE_S, lane.scheduling_key_s + PLACE_S, 1e6):
            assert work.before(key_s, lane).seconds == pytest.approx(work.expected(key_s, lane))


def test_keys_of_one_place_count_as_equal() -> None:
    work = Work()
    first, second = work.push(1, 10.0), work.push(2, 10.0 + 0.9 * PLACE_S)
    work.push(3, 10.0 + PLACE_S)
    assert work.before(first.scheduling_key_s, work.lane_of(first)).seconds == 1.0
    assert work.before(second.scheduling_key_s, work.lane_of(second)).seconds == 1.0


def test_work_varies_as_all_calls_do() -> None:
    work = Work()
    late, own = work.push(1, 20.0), work.push(2, 10.0)
    for _ in range(2):
        work.push(3, 5.0)
    lane = work.lane_of(own)
    lane.costs.deviation = 0.5  # all lanes have the same costs
    variance = 0.25
    gone = work.push(4, 1.0)
    work.before(0.0, lane)
    work.queue.remove(gone)
    assert work.before(late.scheduling_key_s, lane) == (3.0, 3 * variance)
    assert work.before(own.scheduling_key_s, lane) == (2.0, 2 * variance)
    assert work.before(0.0, lane) == (0.0, 0.0)


def test_the_work_of_a_model_is_that_of_its_other_lanes() -> None:
    work = Work()
    own = work.push(1, 0.0)
    for lane, model in ((1, "m"), (2, "m"), (2, "m"), (3, "m"), (1, "other")):
        work.push(lane, 9.0, model)
    lane = work.lane_of(own)
    lane.costs.deviation = 0.5
    work.before(0.0, lane)
    assert work.queue.work.of_model(lane) == (3.0, 0.75)
    alone = work.push(1, 9.0, "alone")
    assert work.queue.work.of_model(work.lane_of(alone)) == (0.0, 0.0)


class Growing(Work):
    """A lane to which eight rows come a second, with one that waits; and another of which the work before is asked."""

    def __init__(self, grows_at_s: float) -> None:
        super().__init__()
        self.made = function(8)
        self.own = self.push(1, 9.0)
        self.grow(grows_at_s)

    def grow(self, at_s: float) -> None:
        self.queue.push(LaneKey("m", 1, "grows"), self.made, PendingRequest({}, 1, FakeReply(), at_s))

    def ask(self, flying_s: float = 0.0, devices: int = 1) -> float:
        return self.before(1e6, self.lane_of(self.own), flying_s, devices).seconds


def test_a_lane_does_not_wait_for_itself_nor_for_what_is_less_urgent() -> None:
    work = Growing(5.0)
    assert work.ask() == 1.0
    work.grow(5.0)
    assert work.ask() == 1.5, "two rows, and none that comes while it is counted"


def test_rows_come_to_a_lane_while_more_urgent_ones_are_served() -> None:
    work = Growing(5.0)
    work.push(2, 4.0)
    work.grow(5.0)
    assert work.ask() == 1.0 + 2.0


@pytest.mark.parametrize(("flying_s", "devices", "seconds"), [(0.125, 1, 1.5), (0.2, 1, 2.0), (0.125, 4, 1.5)])
def test_rows_come_to_a_lane_while_devices_are_busy(flying_s: float, devices: int, seconds: float) -> None:
    assert Growing(5.0).ask(flying_s, devices) == seconds


def test_several_devices_share_the_calls_that_a_lane_waits_for() -> None:
    work = Growing(5.0)
    work.push(2, 4.0)
    work.ask(devices=8)  # which counts what changed
    work.grow(5.0)
    work.queue.remove(work.queue.lane(LaneKey("m", 1, "grows")).first)
    assert work.ask(devices=8) == 1.0 + 1.5  # an eighth of a second, in which one row comes


@pytest.mark.parametrize("others", [0, 200])
def test_when_nothing_waits_sums_begin_at_nothing_again(others: int) -> None:
    """Of a tenth of a second beside 1e20 seconds nothing is left when these go."""
    work = Work()
    work.push(0, 0.0)
    requests = [work.push(number, 0.0) for number in range(1, 10)]
    work.function = function(seconds=(1e20,))
    requests.append(work.push(100, 0.0))
    work.function = function(seconds=(1.0,))
    requests += [work.push(1000 + number, 1 + number / 20) for number in range(others)]
    lane = work.queue.lane(LaneKey("m", 1, "0"))
    assert work.before(1e6, lane).seconds == pytest.approx(1e20)
    for request in (requests[9], *requests[:9], *requests[10:], lane.first):
        work.queue.remove(request)

    first, second = work.push(1, 0.0), work.push(2, 0.0)
    assert work.before(1e6, work.lane_of(first)).seconds == 1.0
    assert work.queue.work.of_model(work.lane_of(second)).seconds == 1.0


steps = st.lists(
    st.tuples(st.sampled_from(["push", "push", "remove", "ask"]), st.integers(0, 20), st.floats(0.0, 60.0)),
    min_size=5,
    max_size=60,
)


@given(steps)
def test_whatever_came_and_left_the_work_is_that_of_what_waits(steps: list[tuple[str, int, float]]) -> None:
    work = Work()
    waiting = [work.push(99, 0.0)]
    for step, number, at_s in steps:
        if step == "push":
            waiting.append(work.push(number, at_s))
        elif step == "remove" and len(waiting) > 1:
            work.queue.remove(waiting.pop(1 + number % (len(waiting) - 1)))
        elif step == "ask":
            lane = work.lane_of(waiting[number % len(waiting)])
            assert work.before(at_s, lane).seconds == pytest.approx(work.expected(at_s, lane))
            others = sum(each.rows for each in work.queue.lanes if each is not lane)
            assert work.queue.work.of_model(lane).seconds == pytest.approx(others)
