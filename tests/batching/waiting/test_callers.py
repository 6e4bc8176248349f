"""The virtual times of callers, and their heap. tests/laws/test_callers.py has the laws of whole schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.waiting.callers import Caller, Callers, FairHeap
from tests.support.steps import steps_of


def test_a_call_is_charged_by_rows_for_what_it_took() -> None:
    callers = Callers()
    a, b = callers.enter("a"), callers.enter("b")
    charge = callers.begin({"a": 3, "b": 1}, 100.0)
    assert (a.start, b.start) == pytest.approx((0.75, 0.25))  # a little in advance
    callers.end(charge, 8.0)
    assert (a.start, b.start) == pytest.approx((6.0, 2.0))
    assert repr(a) == "<Caller at 6 s, waits in 1 lanes>"


def test_what_was_charged_in_advance_is_not_given_back() -> None:
    callers = Callers()
    a = callers.enter("a")
    callers.end(callers.begin({"a": 1}, 100.0), 0.5)
    assert a.start == 1.0


def test_who_comes_goes_before_who_was_just_served() -> None:
    callers = Callers()
    a = callers.enter("a")
    charge = callers.begin({"a": 1}, 0.0)
    b = callers.enter("b")
    callers.end(charge, 8.0)
    c = callers.enter("c")
    assert (a.start, b.start, c.start) == (8.0, 0.0, 4.0)  # a and b had work


def test_who_only_fills_the_calls_of_others_does_not_move_the_time_of_all() -> None:
    """Otherwise who comes would wait for all calls of a caller with many small requests."""
    callers = Callers()
    filling, b = callers.enter("filling"), callers.enter("b")
    for _ in range(10):
        callers.end(callers.begin({"b": 1, "filling": 63}, 0.0), 64.0)
    assert (filling.start, b.start) == (630.0, 10.0)
    assert callers.enter("c").start <= 10.0


def test_who_left_and_comes_again_pays_what_it_owes_and_saves_nothing_up() -> None:
    callers = Callers()
    a, b = callers.enter("a"), callers.enter("b")
    callers.end(callers.begin({"b": 1}, 0.0), 50.0)
    callers.leave(b)
    assert callers.waiting == 1
    assert callers.enter("b").start == 50.0
    callers.leave(b)
    for _ in range(100):
        callers.end(callers.begin({"a": 1}, 0.0), 1.0)
    assert a.start == 100.0
    assert callers.enter("b").start == 100.0


def test_who_owes_nothing_is_forgotten() -> None:
    callers = Callers()
    callers.enter("a")
    for number in range(1000):
        caller = callers.enter(f"caller {number}")
        charge = callers.begin({f"caller {number}": 1}, 0.0)
        callers.leave(caller)
        callers.end(charge, 1.0)
        callers.end(callers.begin({"a": 1}, 0.0), 1.0)
    assert len(callers._known) < 200
    assert callers.waiting == 1


def test_who_comes_during_a_call_is_not_ahead_of_the_turn_it_found() -> None:
    callers = Callers()
    a, b = callers.enter("a"), callers.enter("b")
    callers.end(callers.begin({"a": 1}, 0.0), 8.0)
    callers.leave(b)
    assert callers.enter("c").start == 4.0
    callers.begin({"a": 1}, 0.0)
    assert (a.start, callers.enter("d").start) == (8.0, 8.0)


def test_only_the_part_of_those_in_turn_moves_the_time_of_all() -> None:
    callers = Callers()
    a, b = callers.enter("a"), callers.enter("b")
    callers.end(callers.begin({"a": 1}, 0.0), 8.0)
    callers.leave(b)
    c = callers.enter("c")
    callers.end(callers.begin({"a": 1, "c": 1}, 0.0), 8.0)  # a is ahead; a and c have work
    assert (a.start, c.start) == (12.0, 8.0)
    assert callers.enter("d").start == 4.0 + 8.0 / 2 / 2


def test_the_longest_call_is_half_forgotten_after_69_calls() -> None:
    callers = Callers()
    callers.enter("a")
    assert callers.longest_s == 0.0
    longest_s = []
    for seconds in (2.0, 8.0, *[1.0] * 69):
        callers.end(callers.begin({"a": 1}, 0.0), seconds)
        longest_s.append(callers.longest_s)
    assert longest_s[:2] == [2.0, 8.0]
    assert longest_s[-1] == pytest.approx(4.0, rel=0.01)


def test_work_begins_at_zero_again_when_nothing_waits() -> None:
    callers = Callers()
    a = callers.enter("a")
    assert a.work_s == 0.0
    for seconds in (0.1, 0.2, -0.3):
        a.work_s += seconds
    assert a.work_s != 0.0  # rounded
    callers.leave(a)
    assert a.work_s == 0.0


def test_who_waits_or_owes_is_remembered_however_many_come_and_go() -> None:
    callers = Callers()
    a, b = callers.enter("a"), callers.enter("b")
    callers.end(callers.begin({"b": 1}, 0.0), 50.0)
    callers.leave(b)
    for number in range(1000):
        callers.leave(callers.enter(str(number)))
    assert len(callers._known) < 100
    callers.end(callers.begin({"a": 1}, 0.0), 8.0)
    assert a.start == 8.0
    assert callers.enter("b").start == 50.0


def test_what_a_new_caller_costs_does_not_grow_with_those_that_wait() -> None:
    steps = []
    for waiting in (50, 1000):
        callers = Callers()
        for number in range(waiting):
            callers.enter(f"waits {number}")

        def act(callers: Callers = callers) -> None:
            for number in range(3000):
                callers.leave(callers.enter(f"comes {number}"))

        steps.append(steps_of(act))
    assert max(steps) < 1.5 * min(steps)


class Item:
    def __init__(self, start: float) -> None:
        self.caller = Caller(start)
        self.fair_place: object = None


def test_the_heap_goes_by_virtual_times_as_they_are_now() -> None:
    heap, items = FairHeap[Item](), [Item(start) for start in (3.0, 1.0, 2.0, 1.0, 5.0)]
    for item in items:
        heap.push(item)
    assert [items.index(item) for _, item in heap] == [1, 3, 2, 0, 4]
    items[1].caller.start, items[2].caller.start = 9.0, 4.0
    heap.discard(items[0])
    assert [(start, items.index(item)) for start, item in heap] == [(1.0, 3), (4.0, 2), (5.0, 4), (9.0, 1)]
    heap.discard(items[3])
    heap.discard(items[3])
    assert heap.first() is items[2]
    for item in items:
        heap.discard(item)
    assert heap.first() is None
    assert list(heap) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30))
def test_each_comes_once_whoever_was_charged_or_left_meanwhile(changes: list[tuple[int, int, bool]]) -> None:
    heap, items = FairHeap[Item](), [Item(float(start)) for start, _, _ in changes]
    for item in items:
        heap.push(item)
    for item, (_, charged, leaves) in zip(items, changes, strict=True):
        item.caller.start += charged
        if leaves:
            heap.discard(item)
    stay = [item for item, (_, _, leaves) in zip(items, changes, strict=True) if not leaves]
    found = list(heap)
    assert [start for start, _ in found] == sorted(item.caller.start for item in stay)
    assert sorted(id(item) for _, item in found) == sorted(map(id, stay))


def test_entries_that_are_out_of_date_are_thrown_away() -> None:
    heap, stays = FairHeap[Item](), Item(0.0)
    heap.push(stays)
    for _ in range(1000):
        item = Item(1.0)
        heap.push(item)
        heap.discard(item)
    assert len(heap._heap) < 100
    assert heap.first() is stays


def test_the_heap_is_in_order_after_entries_were_thrown_away() -> None:
    heap = FairHeap[Item]()
    items = [Item(float(number * 389 % 1000)) for number in range(1000)]
    for item in items:
        heap.push(item)
    for item in items[::5] + items[1::5] + items[2::5] + items[3::5]:
        heap.discard(item)
    heap.push(Item(1000.0))
    assert len(heap._heap) < 300
    starts = []
    while (first := heap.first()) is not None:
        starts.append(first.caller.start)
        heap.discard(first)
    assert starts == [*sorted(item.caller.start for item in items[4::5]), 1000.0]


def test_what_a_turn_costs_does_not_grow_with_those_that_wait() -> None:
    steps = []
    for waiting in (50, 1000):
        heap = FairHeap[Item]()
        for _ in range(waiting):
            heap.push(Item(0.0))

        def act(heap: FairHeap[Item] = heap) -> None:
            for _ in range(3000):
                item = Item(1.0)
                heap.push(item)
                heap.discard(item)
                heap.discard(item)

        steps.append(steps_of(act))
    assert max(steps) < 1.5 * min(steps)


def test_a_weight_divides_what_a_caller_is_charged() -> None:
    callers = Callers({"heavy": 4.0})
    heavy, light = callers.enter("heavy"), callers.enter("light")
    callers.end(callers.begin({"heavy": 1, "light": 1}, 0.0), 8.0)
    assert (heavy.start, light.start) == (1.0, 4.0)


@given(st.lists(st.sampled_from([0.25, 1.0, 2.0, 7.0]), min_size=2, max_size=5), st.floats(0.01, 2.0))
def test_callers_that_wait_get_seconds_in_proportion_to_their_weights(weights: list[float], longest_s: float) -> None:
    """Up to a call of each: whoever is next by virtual time gets a call."""
    callers = Callers({str(number): weight for number, weight in enumerate(weights)})
    entered = [callers.enter(str(number)) for number in range(len(weights))]
    seconds = [0.0] * len(weights)
    for turn in range(400):
        number = min(range(len(entered)), key=lambda each: entered[each].start)
        took_s = longest_s * (1 + turn % 3) / 3
        callers.end(callers.begin({str(number): 1}, 0.0), took_s)
        seconds[number] += took_s
    shares = [own / weight for own, weight in zip(seconds, weights, strict=True)]
    assert max(shares) - min(shares) <= 2 * longest_s / min(weights)


@given(st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=1, max_size=4), st.integers(1, 50))
def test_who_comes_to_callers_with_weights_is_not_behind_them_for_longer_than_a_call_of_each(
    weights: list[float], heap: int
) -> None:
    callers = Callers({str(number): weight for number, weight in enumerate(weights)})
    entered = [callers.enter(str(number)) for number in range(len(weights))]
    for _ in range(heap):
        number = min(range(len(entered)), key=lambda each: entered[each].start)
        callers.end(callers.begin({str(number): 1}, 0.0), 1.0)
    late = callers.enter("late")
    assert late.start <= min(each.start for each in entered) + 1 / min(weights)
    for each in entered:
        callers.leave(each)
    callers.leave(late)
    assert (callers.waiting, callers.weight) == (0, 0.0)
