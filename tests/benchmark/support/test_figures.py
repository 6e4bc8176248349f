import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.support.figures import Spread, ratio_by_round

VALUES = st.lists(st.floats(0, 1e6), min_size=1)


@given(VALUES)
def test_the_median_lies_within_the_spread(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread.least == min(values) <= spread.median <= max(values) == spread.most


def test_a_spread_of_nothing_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs values"):
        Spread.of([])


def test_ratios_are_taken_within_rounds() -> None:
    """The machine was half as fast in round 1, for both: the ratio stays 2."""
    assert ratio_by_round({0: 200.0, 1: 100.0, 2: 9.0}, {0: 100.0, 1: 50.0}) == Spread(2.0, 2.0, 2.0)


def test_no_common_round_has_no_ratio() -> None:
    assert ratio_by_round({0: 1.0}, {1: 1.0}) is None
    assert ratio_by_round({0: 1.0}, {0: 0.0}) is None
