"""When a burst is over, and who hears of it."""

from __future__ import annotations

import pytest

from app.core.burst import LONGEST_S, Burst


class Told:
    def __init__(self) -> None:
        self.now, self.ends = 0.0, 0
        self.burst = Burst(lambda: self.now)
        self.burst.on_end(self._ended)

    def _ended(self) -> None:
        assert not self.burst.is_open
        self.ends += 1


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_burst_is_over_when_all_its_requests_have_begun(turns: int) -> None:
    told = Told()
    for _ in range(turns):
        told.burst.turn_ended(more=True)
        assert told.burst.is_open
    assert told.ends == 0
    told.burst.turn_ended(more=False)
    assert (told.burst.is_open, told.ends) == (False, 1)


def test_a_single_turn_is_no_burst() -> None:
    told = Told()
    told.burst.turn_ended(more=False)
    assert (told.burst.is_open, told.ends) == (False, 0)


def test_requests_without_end_are_bursts_one_after_the_other() -> None:
    told = Told()
    for turn in range(1000):
        told.now = turn * LONGEST_S / 10
        told.burst.turn_ended(more=True)
    assert told.ends == 1000 // 11
