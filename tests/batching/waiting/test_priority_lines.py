from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.request import PendingRequest
from app.batching.waiting.lane import Lane
from app.batching.waiting.priority_lines import PriorityLines
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function
from tests.support.steps import steps_of


def request(deadline_s: float, arrival_s: float = 0.0, offset_s: float = 0.0) -> PendingRequest:
    return PendingRequest({}, 1, FakeReply(), arrival_s, deadline_s, offset_s)


def urgent(lane: Lane) -> int:
    """The entries of the heap of requests with early deadlines."""
    return sum([len(line.urgent) for line in lane._lines._lines.values()])


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
        assert urgent(lane) <= 2 * 102 + 64 + 1, "entries that are out of date are thrown away"
    while stay:
        assert lane.scheduling_key_s == min(each.scheduling_key_s for each in lane) == stay[-1].deadline_s
        lane.remove([stay.pop()])
    assert lane.scheduling_key_s == 0.99
    assert urgent(lane) == 0


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


class Waiting:
    """Lines, and beside them the same requests in a plain list, in the order in which they entered."""

    def __init__(self) -> None:
        self.lines = PriorityLines()
        self.requests: list[PendingRequest] = []
        self.latest_s: dict[float, float] = {}  # the latest deadline since each line began
        self.now = 100.0

    def enter(self, time_s: float, priority: float) -> None:
        """One that has so much time; whether its deadline is before that of an earlier one of its priority is told."""
        self.now += 0.25
        new = request(self.now + time_s, self.now, priority)
        new.lane = KEY
        if all(each.priority_offset_s != priority for each in self.requests):
            assert self.lines.add(new)
            self.latest_s[priority] = new.deadline_s
        else:
            assert self.lines.add(new) == (new.deadline_s < self.latest_s[priority])
            self.latest_s[priority] = max(new.deadline_s, self.latest_s[priority])
        self.requests.append(new)

    def leave(self, number: int) -> None:
        gone = self.requests.pop(number % len(self.requests))
        gone.lane = None
        self.lines.remove([gone])

    def enter_again(self, number: int) -> None:
        again = self.requests.pop(number % len(self.requests))
        self.now += 0.25
        again.entered_s = self.now
        self.lines.requeue(again)
        self.requests.append(again)

    def check(self) -> None:
        by_key = sorted(self.requests, key=lambda each: (each.order_key_s, each.entered_s))
        assert list(self.lines) == by_key
        assert len(self.lines) == len(by_key)
        if by_key:
            assert self.lines.first is by_key[0]
            assert self.lines.order_keys_s == (by_key[0].order_key_s, by_key[-1].order_key_s)
            assert self.lines.waiting_since_s == min(each.entered_s for each in by_key)
            assert self.lines.scheduling_key_s == min(each.scheduling_key_s for each in by_key)
            assert self.lines.reordered == (len({each.priority_offset_s for each in by_key}) > 1)


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just(Waiting.enter),
                st.sampled_from([0.0, 0.25, 0.5, 0.75, 2.0]),
                st.sampled_from([0.0, 0.0, 0.0, 0.5, -0.5]),
            ),
            st.tuples(st.sampled_from([Waiting.leave, Waiting.enter_again]), st.integers(0, 50)),
        ),
        max_size=40,
    )
)
def test_the_lines_agree_with_a_sorted_list(events: list[tuple[Any, ...]]) -> None:
    waiting = Waiting()
    for event, *arguments in events:
        if event is Waiting.enter or waiting.requests:
            event(waiting, *arguments)
        waiting.check()


def test_the_most_urgent_of_many_is_found_after_others_were_thrown_away() -> None:
    """Of 1000 with deadlines up and down most leave at once."""
    lane = Lane(KEY, batch_function(FakeFunction()))
    lane.add(request(0.999))
    stay = []
    for number in range(1000):
        new = request(number * 389 % 1000 / 1001)
        lane.add(new)
        if number % 8:
            lane.remove([new])
        else:
            stay.append(new)
    for each in sorted(stay, key=lambda each: each.deadline_s):
        assert lane.scheduling_key_s == each.deadline_s
        lane.remove([each])


@pytest.mark.parametrize("waiting", [20, 1000])
def test_adding_an_urgent_request_looks_at_no_others(waiting: int) -> None:
    lines = PriorityLines()
    requests = [request(1.0 - number / 10_000) for number in range(waiting + 3)]
    for each in requests:
        each.lane = KEY
    first, second, third, *others, last = requests
    few = PriorityLines()
    few.add(first)
    few.add(second)  # one that is alone has no line
    of_few = steps_of(lambda: few.add(third))
    for each in (first, second, third, *others):
        lines.add(each)
    assert steps_of(lambda: lines.add(last)) == of_few


def test_a_request_that_entered_again_is_found_behind_patient_ones() -> None:
    lines = PriorityLines()
    again, patient = request(8.5, 0.0), request(99.0, 8.0)
    for each in (again, patient):
        each.lane = KEY
        lines.add(each)
    again.entered_s = 8.2
    lines.requeue(again)
    assert list(lines) == [patient, again]
    assert lines.scheduling_key_s == 8.5


def test_a_request_due_together_with_those_before_it_is_no_more_urgent() -> None:
    lines = PriorityLines()
    assert lines.add(request(9.0))
    assert not lines.add(request(9.0, 1.0))
    assert lines.add(request(8.9, 1.0))


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 5), st.booleans()), min_size=1), st.randoms(use_true_random=False)
)
def test_later_steps_keep_the_arrival_of_the_whole_and_the_most_urgent_request_is_always_found(
    entries: list[tuple[float, float, bool]], random: Any
) -> None:
    lines, waiting, now = PriorityLines(), list[PendingRequest](), 10.0
    for age_s, time_s, late in entries:
        now += 0.25
        new = request(now + time_s, now - age_s if late else now)
        new.lane, new.later_step, new.again = KEY, late, late and random.random() < 0.3
        lines.add(new)
        waiting.append(new)
        if random.random() < 0.3:
            gone = waiting.pop(random.randrange(len(waiting)))
            gone.lane = None
            lines.remove([gone])
        if waiting:
            assert lines.scheduling_key_s == min(each.scheduling_key_s for each in waiting)
            assert set(lines) == set(waiting)
            direct = [each for each in lines if not each.later_step]
            assert direct == sorted(direct, key=lambda each: each.entered_s)
            first_late = next((each for each in lines if each.later_step), None)
            assert first_late is None or lines.first.entered_s <= first_late.entered_s
