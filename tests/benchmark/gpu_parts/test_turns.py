from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st

from bench.gpu_parts.turns import Turns, repeated


class Clock:
    """Seconds that pass when a way is run."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def way(self, name: str, seconds: float, turns: list[str]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            self.now_s += seconds
            turns.append(name)
            return seconds

        return run


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.floats(-10, 30))
def test_ways_alternate_and_end_in_time_but_for_one_round(one_s: float, other_s: float, left_s: float) -> None:
    clock, turns = Clock(), list[str]()
    begin_s = clock.now_s
    ways = {"A": clock.way("A", one_s, turns), "B": clock.way("B", other_s, turns)}
    rates = asyncio.run(Turns(begin_s + left_s, 0.1, clock=clock).take(ways))
    rounds = len(rates["A"])
    assert rates == {"A": [one_s] * rounds, "B": [other_s] * rounds}
    assert "".join(turns) == "AB" * (rounds + 1)  # the first warms up
    round_s = one_s + other_s
    assert clock.now_s - begin_s <= max(2 * round_s, left_s) + 1e-9
    assert rounds == 1 or (rounds + 1) * round_s <= left_s + 1e-9
    assert (rounds + 2) * round_s > left_s - 1e-9


def test_no_more_rounds_are_made_than_asked_for() -> None:
    clock, turns = Clock(), list[str]()
    asyncio.run(Turns(1e9, 0.1, 1, clock).take({"A": clock.way("A", 1.0, turns)}))
    assert turns == ["A", "A"]


def test_what_a_piece_leaves_over_goes_to_those_after_it() -> None:
    clock = Clock()
    turns = Turns(clock.now_s + 12, 0.1, clock=clock)
    assert turns.piece(0, 3).left_s == 4
    clock.now_s += 2
    assert turns.piece(1, 3).left_s == 5
    clock.now_s += 10
    assert turns.piece(2, 3).left_s == 0


def test_a_way_repeats_its_call_for_its_seconds_and_once_at_least() -> None:
    clock = Clock()

    def call() -> None:
        clock.now_s += 0.25

    assert asyncio.run(repeated(call, 1.0, 3.0, clock)()) == 12.0
    assert clock.now_s == 101.0
    assert asyncio.run(repeated(call, 0.0, 1.0, clock)()) == 4.0
