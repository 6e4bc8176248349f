from __future__ import annotations

import pytest

from app.batching.request import PendingRequest
from app.batching.waiting.lane import Lane
from app.batching.waiting.priority_lines import PriorityLines
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function


def request(deadline_s: float, arrival_s: float = 0.0, offset_s: float = 0.0) -> PendingRequest:
    return PendingRequest({}, 1, FakeReply(), arrival_s, deadline_s, offset_s)


def hasty(lane: Lane) -> int:
    """The entries of the heap of requests with early deadlines."""
    return sum([len(line.hasty) for line in lane._lines._lines.values()])


def test_the_most_urgent_request_is_found_as_urgent_ones_come_and_leave() -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    lane.add(request(0.99))
    stay = [request(0.9 - number / 1000) for number in range(100)]
    for each in stay:
        lane.add(each)
    for number in range(1000):
        gone = request(0.5 - number / 10_000)
        assert lane.add(gone)
        lane.remove([gone])
        assert hasty(lane) <= 2 * 102 + 64 + 1, "entries that are out of date are thrown away"
    while stay:
        assert lane.scheduling_key_s == min(each.scheduling_key_s for each in lane) == stay[-1].deadline_s
        lane.remove([stay.pop()])
    assert lane.scheduling_key_s == 0.99
    assert hasty(lane) == 0


def test_valid_entries_survive_when_others_are_thrown_away() -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    lane.add(request(0.99))
    urgent = [request(deadline_s) for deadline_s in (0.3, 0.1, 0.2)]
    for each in urgent:
        lane.add(each)
    for _ in range(200):
        gone = request(0.5)
        lane.add(gone)
        lane.remove([gone])
    keys = []
    for each in (urgent[1], urgent[2], urgent[0]):
        keys.append(lane.scheduling_key_s)
        lane.remove([each])
    assert keys == [0.1, 0.2, 0.3]


def test_a_request_that_entered_again_has_a_new_key() -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    lane.add(request(9.0))
    again = request(8.5)
    lane.add(again)
    assert lane.scheduling_key_s == 1.0  # both may wait for a second
    lane.requeue(again, 1, 8.0)
    assert lane.scheduling_key_s == 1.0
    lane.remove([lane.first])
    assert lane.scheduling_key_s == 8.5


def test_lines_are_merged_by_their_keys() -> None:
    lines = PriorityLines()
    calm, urgent, late = request(30.0, 1.0, -0.5), request(30.0, 1.2, 0.4), request(30.0, 2.0)
    for each in (calm, urgent, late):
        each.lane = KEY
        lines.add(each)
    assert (list(lines), len(lines), lines.reordered) == ([urgent, calm, late], 3, True)
    assert lines.order_keys_s == pytest.approx((0.8, 2.0))
    assert lines.waiting_since_s == 1.0
    assert lines.scheduling_key_s == pytest.approx(1.8)
    lines.remove([urgent, calm])
    assert (list(lines), len(lines), lines.reordered) == ([late], 1, False)
    assert lines.order_keys_s == (2.0, 2.0)


def test_of_equal_keys_the_request_that_entered_first_is_first() -> None:
    lines = PriorityLines()
    urgent, early = request(30.0, 1.5, 0.5), request(30.0, 1.0)
    for each in (urgent, early):
        lines.add(each)
    assert list(lines) == [early, urgent]
