"""The virtual times of callers, and the heap of turns. tests/laws/test_callers.py has the laws of whole schedules."""

from __future__ import annotations

import pytest

from app.batching.waiting.callers import Caller, Callers, Turns


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


class Item:
    def __init__(self, start: float) -> None:
        self.caller = Caller(start)
        self.turn: object = None


def test_turns_go_by_virtual_times_as_they_are_now() -> None:
    turns, items = Turns[Item](), [Item(start) for start in (3.0, 1.0, 2.0, 1.0, 5.0)]
    for item in items:
        turns.push(item)
    assert [items.index(item) for _, item in turns] == [1, 3, 2, 0, 4]
    items[1].caller.start, items[2].caller.start = 9.0, 4.0
    turns.discard(items[0])
    assert [(start, items.index(item)) for start, item in turns] == [(1.0, 3), (4.0, 2), (5.0, 4), (9.0, 1)]
    turns.discard(items[3])
    turns.discard(items[3])
    assert turns.first() is items[2]
    for item in items:
        turns.discard(item)
    assert turns.first() is None
    assert list(turns) == []


def test_entries_that_are_out_of_date_are_thrown_away() -> None:
    turns, stays = Turns[Item](), Item(0.0)
    turns.push(stays)
    for _ in range(1000):
        item = Item(1.0)
        turns.push(item)
        turns.discard(item)
    assert len(turns._heap) < 100
    assert turns.first() is stays
