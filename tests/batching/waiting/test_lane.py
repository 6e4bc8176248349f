from __future__ import annotations

import pytest

from app.batching.request import PendingRequest
from app.batching.waiting.lane import Lane
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function


def request(arrival_s: float, rows: int = 1, offset_s: float = 0.0, timeout_s: float = 30.0) -> PendingRequest:
    return PendingRequest({}, rows, FakeReply(), arrival_s, arrival_s + timeout_s, offset_s)


def lane_of(*requests: PendingRequest) -> Lane:
    lane = Lane(KEY, batch_function(FakeFunction(), 4))
    for each in requests:
        lane.add(each)
        lane.rows += each.weight
    return lane


def test_a_lane_has_the_time_of_its_first_request() -> None:
    assert lane_of(request(1.5, timeout_s=2.0), request(1.0, timeout_s=9.0)).timeout_s == 2.0


def test_without_fairness_callers_take_no_turns() -> None:
    assert lane_of().turns is None
    assert Lane(KEY, batch_function(FakeFunction()), fair_callers=True).turns is not None


@pytest.mark.parametrize(
    ("offset_s", "before"), [(0.0, 10.0), (5.0, 5 / 9 * 10), (10.0, 0.0), (99.0, 0.0), (-9.0, 10.0)]
)
def test_the_rows_before_a_request_with_a_priority_are_spread_evenly_over_time(offset_s: float, before: float) -> None:
    last = request(10.0, offset_s=offset_s)
    lane = lane_of(*[request(float(second)) for second in range(10)], last)
    assert lane.rows_before(last) == pytest.approx(before)


def test_of_requests_as_urgent_as_the_last_one_all_are_before_it() -> None:
    last = request(10.5, offset_s=0.5)
    assert lane_of(request(10.0), request(10.0), last).rows_before(last) == 2.0


def test_a_request_says_whether_its_lane_may_be_more_urgent_by_it() -> None:
    lane = lane_of()
    assert lane.add(request(1.0, timeout_s=5.0))
    assert not lane.add(request(2.0, timeout_s=5.0))
    assert lane.add(request(2.0, timeout_s=0.5))
    assert lane.add(request(2.0, timeout_s=5.0, offset_s=0.1))
    assert not lane.add(request(2.0, timeout_s=6.0))
    assert lane.scheduling_key_s == pytest.approx(2.0)
