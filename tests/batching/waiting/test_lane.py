from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.costs.cost_model import CallSeconds
from app.batching.request import LaneKey, PendingRequest
from app.batching.waiting.caller_order import CallerOrder
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.batching.waiting.lane_callers import LaneCallers
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function


def request(
    arrival_s: float, rows: int = 1, offset_s: float = 0.0, timeout_s: float = 30.0, caller: str = ""
) -> PendingRequest:
    return PendingRequest({}, rows, FakeReply(), arrival_s, arrival_s + timeout_s, offset_s, caller)


#: Each test begins with new ones.
CALLERS = Callers()


@pytest.fixture(autouse=True)
def _new_callers() -> None:
    CALLERS.__init__()  # type: ignore[misc]  # made anew, where others refer to it


def charge(request: PendingRequest, rows: int) -> None:
    """So many rows of it were computed, a second each."""
    CALLERS.end(CALLERS.begin({request.caller: rows}, 0.0), float(rows))


def lane_of(*requests: PendingRequest, largest: int = 4, fair: bool = False) -> Lane:
    """A lane with its sums, as the queue keeps them."""
    lane = Lane(KEY, batch_function(FakeFunction(), largest))
    if fair:
        lane.callers = LaneCallers(lane, CALLERS, CallerOrder())
    for each in requests:
        lane.add(each)
        lane.rows += each.counted_rows
        lane.deferred_rows += lane.deferred(each.counted_rows)
        lane.unfilled_rows += lane.unfilled(each.counted_rows)
    return lane


# --- what a lane is made of ---


def test_a_new_lane_knows_its_function_and_its_costs_and_nothing_of_requests() -> None:
    function = batch_function(FakeFunction(), 8)
    lane = Lane(LaneKey("m", 1, "f", (), ((7,),)), function)
    assert lane.function is function
    assert lane.costs is function.costs(((7,),))
    assert (lane.max_rows, lane.rows, lane.deferred_rows, lane.unfilled_rows, len(lane)) == (8, 0, 0, 0, 0)
    assert (lane.has_parts, lane.asleep, lane.less_urgent, lane.place, lane.counted) == (
        False,
        False,
        False,
        None,
        (0, CallSeconds()),
    )
    assert lane.callers is None
    assert Lane(KEY, function).serial > lane.serial
    function.stop_batching("a call said so")
    assert lane.max_rows == 8, "what came to be batched is not cut"


def test_a_lane_tells_what_waits_in_it() -> None:
    assert repr(lane_of(request(1.0, 3), request(2.0, 9))) == "<Lane m/1/serving_default: 12 rows of 2 requests>"


def test_a_row_of_a_lane_costs_its_share_of_the_next_call() -> None:
    lane = lane_of(*[request(1.0, 2) for _ in range(3)])
    assert lane.row_s == 1.0, "unknown"
    lane.costs.record_call(2, 6.0)
    lane.costs.record_call(4, 8.0)
    assert lane.row_s == 2.0


def test_without_fairness_callers_take_no_turns() -> None:
    assert lane_of().callers is None
    lane = lane_of(*[request(1.0, caller=caller) for caller in "aab"])
    assert "".join(each.caller for each in lane) == "aab"
    lane.requeue(lane.first, 1, 2.0)
    assert "".join(each.caller for each in lane) == "aba"


# --- who is in it, and in which order ---


def test_a_request_knows_the_lane_that_it_waits_in() -> None:
    one, other = request(1.0), request(2.0)
    lane = lane_of(one, other)
    assert one.lane == other.lane == KEY
    assert not lane.less_urgent
    lane.remove([one])
    assert lane.less_urgent, "the first one left"
    assert (one.lane, other.lane, list(lane), len(lane)) == (None, KEY, [other], 1)


def test_what_enters_again_is_behind_all_and_begins_to_wait_anew() -> None:
    large, small = request(1.0, 9), request(2.0)
    lane = lane_of(large, small)
    assert lane.waiting_since_s == 1.0
    lane.requeue(large, 4, 3.0)
    assert lane.has_parts
    assert lane.less_urgent
    assert list(lane) == [small, large]
    assert (lane.first, lane.waiting_since_s, large.entered_s, large.lane) == (small, 2.0, 3.0, KEY)


def test_callers_take_turns_by_what_was_taken_of_them() -> None:
    lane = lane_of(*[request(float(second), 2, caller=caller) for second, caller in enumerate("aaabb")], fair=True)
    assert "".join(each.caller for each in lane) == "ababa"
    first = lane.first
    charge(first, first.counted_rows)
    lane.remove([first])
    assert "".join(each.caller for each in lane) == "baba"
    assert len(lane) == 4


def test_a_part_of_a_request_counts_as_a_turn_of_its_caller() -> None:
    large, small, other = request(1.0, 9, caller="a"), request(2.0, 2, caller="a"), request(3.0, 2, caller="b")
    lane = lane_of(large, small, other, fair=True)
    assert list(lane) == [large, other, small]
    large.rows -= 4
    charge(large, 4)
    lane.requeue(large, 4, 4.0)
    assert list(lane) == [other, small, large]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 9)), max_size=30))
def test_with_fairness_whoever_waits_gets_as_many_rows_as_others_up_to_a_request(
    events: list[tuple[str, int, int]],
) -> None:
    """Every caller has requests waiting from the beginning to the end."""
    lane, taken = lane_of(fair=True), Counter[str]()
    waiting = [request(0.0, 3, caller=caller) for caller in "abc" for _ in range(60)]
    for each in waiting:
        lane.add(each)
    for caller, rows, leaves in events:
        lane.add(request(1.0, rows, caller=caller))
        first = lane.first
        charge(first, first.counted_rows)
        taken[first.caller] += first.counted_rows
        gone = (
            [first] if leaves else [first, next(each for each in reversed(waiting) if each.lane and each is not first)]
        )
        lane.remove(gone)
        assert max(taken[each] for each in "abc") - min(taken[each] for each in "abc") <= 3
        assert not {*gone}.intersection(lane)


def test_a_request_says_whether_its_lane_may_be_more_urgent_by_it() -> None:
    lane = lane_of()
    assert lane.add(request(1.0, timeout_s=5.0))
    assert not lane.add(request(2.0, timeout_s=5.0))
    assert lane.add(request(2.0, timeout_s=0.5))
    assert lane.add(request(2.0, timeout_s=5.0, offset_s=0.1))
    assert not lane.add(request(2.0, timeout_s=6.0))
    assert lane.scheduling_key_s == pytest.approx(2.0)


def test_a_lane_has_the_time_of_its_first_request() -> None:
    assert lane_of(request(1.5, timeout_s=2.0), request(1.0, timeout_s=9.0)).timeout_s == 2.0
    times = (2.0, "a"), (3.0, "a"), (4.0, "b")
    fair = lane_of(*[request(1.0, timeout_s=time_s, caller=caller) for time_s, caller in times], fair=True)
    first = fair.first
    charge(first, 1)
    fair.remove([first])
    assert fair.timeout_s == 4.0


# --- its rows ---


@pytest.mark.parametrize(("rows", "unfilled"), [(1, 0), (2, 0), (16, 0), (13, 3), (22, 10), (33, 31), (64, 0), (65, 0)])
def test_lanes_know_what_a_request_leaves_unfilled(rows: int, unfilled: int) -> None:
    assert lane_of(largest=64).unfilled(rows) == unfilled


@given(st.sampled_from([1, 5, 7, 64, 100]), st.integers(1, 300))
def test_a_call_full_of_requests_of_one_size_is_what_they_take_and_what_they_leave(largest: int, rows: int) -> None:
    """And none leaves a row more than that takes."""
    lane = lane_of(largest=largest)
    fit, share = largest // rows, rows + lane.unfilled(rows)
    assert lane.max_rows == largest
    if fit and rows > 1:
        assert (share - 1) * fit < largest <= share * fit
    else:
        assert share == rows
    assert lane.deferred(rows) == sum(1 for row in range(rows) if row >= largest)


def test_of_two_rows_in_calls_of_an_odd_number_one_is_left_over() -> None:
    assert lane_of(largest=5).unfilled(2) == 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_the_rows_before_the_last_request_are_those_of_the_others_first_calls(all_rows: list[int]) -> None:
    """Of equal requests: exactly the rows of the full calls that they make, if each leaves a whole share."""
    requests = [request(float(number), rows) for number, rows in enumerate(all_rows)]
    lane = lane_of(*requests, largest=8)
    own = {1: 1, 2: 2, 3: 4, 4: 4}  # of a call of 8 rows; above 4 it is the whole call
    shares = [own.get(rows, 8) for rows in all_rows]
    assert lane.call_rows == sum(shares)
    assert lane.rows_before(requests[-1]) == sum(shares[:-1])


@pytest.mark.parametrize(
    ("offset_s", "before"), [(0.0, 10.0), (5.0, 5 / 9 * 10), (10.0, 0.0), (99.0, 0.0), (-9.0, 10.0)]
)
def test_the_rows_before_a_request_with_a_priority_are_spread_evenly_over_time(offset_s: float, before: float) -> None:
    last = request(110.0, offset_s=offset_s)
    lane = lane_of(*[request(100.0 + second) for second in range(10)], last)
    assert lane.rows_before(last) == pytest.approx(before)


def test_of_requests_as_urgent_as_the_last_one_all_are_before_it() -> None:
    last = request(10.5, offset_s=0.5)
    assert lane_of(request(10.0), request(10.0), last).rows_before(last) == 2.0


def test_with_fairness_only_the_turns_of_others_are_before_it() -> None:
    last = request(9.0, caller="b")
    requests = [request(float(second), caller="a") for second in range(8)]
    assert lane_of(*requests, last, fair=True).rows_before(last) == 1
    assert lane_of(*requests, last).rows_before(last) == 8
