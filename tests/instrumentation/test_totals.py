"""Totals are added and subtracted attribute by attribute."""

from __future__ import annotations

from collections import Counter

from app.instrumentation.histogram import SECONDS, Histogram
from app.instrumentation.totals import Totals


class Seen(Totals):
    def __init__(self) -> None:
        self.number = 0
        self.names: Counter[str] = Counter()
        self.seconds = Histogram(SECONDS)

    def see(self, name: str, seconds: float) -> None:
        self.number += 1
        self.names[name] += 1
        self.seconds.observe(seconds)


def test_a_sum_has_the_counts_of_both() -> None:
    one, other = Seen(), Seen()
    one.see("a", 0.5)
    other.see("b", 2.0)
    both = one + other
    assert (both.number, both.names, both.seconds.count, both.seconds.total) == (2, Counter("ab"), 2, 2.5)
    assert one.number == other.number == 1


def test_a_difference_to_an_earlier_copy_has_the_counts_since_then() -> None:
    seen = Seen()
    seen.see("a", 0.5)
    before = seen - Seen()
    seen.see("a", 2.0)
    later = seen - before
    assert (before.number, later.number, later.names, later.seconds.total) == (1, 1, Counter("a"), 2.0)
