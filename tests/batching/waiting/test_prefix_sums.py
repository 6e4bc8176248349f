from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.waiting.prefix_sums import PLACES, PrefixSums


@given(st.lists(st.tuples(st.integers(1, 40) | st.integers(1, PLACES), st.integers(1, 9))), st.integers(1, PLACES))
def test_the_sum_before_a_place_is_that_of_all_lower_ones(numbers: list[tuple[int, int]], asked: int) -> None:
    sums = PrefixSums()
    for place, number in numbers:
        sums.add(place, number)
    for ask in (asked, *range(1, 42)):
        assert sums.before(ask) == sum(number for place, number in numbers if place < ask)
    for place, number in numbers[::2]:
        sums.add(place, -number, -1)
    for ask in (asked, *range(1, 42)):
        assert sums.before(ask) == sum(number for place, number in numbers[1::2] if place < ask)


def test_a_number_changes_where_it_stands() -> None:
    sums = PrefixSums()
    sums.add(3, 1.0)
    sums.add(3, 2.5, 0)
    assert sums.before(4) == 3.5
    sums.add(3, -3.5, -1)
    assert not len(sums)


def test_of_what_left_nothing_is_kept() -> None:
    sums = PrefixSums()
    for place in range(1, 1000):
        sums.add(place, 0.1)
    for place in range(1, 1000):
        sums.add(place, -0.1, -1)
    assert not len(sums)
    assert sums.before(PLACES) == pytest.approx(0.0)
    sums.add(3, 1.0)
    sums.clear()
    assert sums.before(4) == 0.0
