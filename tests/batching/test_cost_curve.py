from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.cost_model import CostCurve

SIZES = (1, 2, 4, 8, 16, 32, 64)
measured = st.dictionaries(st.sampled_from(SIZES), st.floats(1e-5, 10), min_size=1)


@given(measured)
def test_more_rows_never_cost_less_and_no_guess_contradicts_a_measurement(measured: Mapping[int, float]) -> None:
    curve = CostCurve.through(SIZES, measured)
    assert list(curve.seconds) == sorted(curve.seconds)
    assert all(seconds > 0 for seconds in curve.seconds)
    assert all(curve.call_s(size) <= seconds for size, seconds in measured.items())
    assert curve.efficient_rows in SIZES


@given(st.sets(st.sampled_from(SIZES), min_size=2), st.floats(1e-4, 1), st.floats(0, 1))
def test_sizes_not_seen_lie_on_the_line_through_those_that_were(seen: set[int], fixed: float, slope: float) -> None:
    curve = CostCurve.through(SIZES, {size: fixed + slope * size for size in seen})
    assert curve.seconds == pytest.approx([fixed + slope * size for size in SIZES])


def test_a_single_measurement_says_nothing_of_other_sizes() -> None:
    assert CostCurve.through(SIZES, {8: 0.5}).seconds == (0.5,) * 7


def test_a_small_call_that_was_held_up_is_noise() -> None:
    assert CostCurve.through((1, 2, 4), {1: 9.0, 2: 1.0, 4: 2.0}).seconds == (1.0, 1.0, 2.0)


@given(measured, st.integers(1, 64))
def test_what_is_taken_first_is_cheaper_by_the_row_or_all_are_done_sooner(
    measured: Mapping[int, float], rows: int
) -> None:
    curve = CostCurve.through(SIZES, measured)
    first, whole_s = curve.first_rows(rows), curve.call_s(rows)
    assert 1 <= first <= rows
    if first < rows and curve.call_s(first) / first >= whole_s / rows:
        seconds, left = 0.0, rows
        while left:
            first = curve.first_rows(left)
            seconds += curve.call_s(first)
            left -= first
        assert seconds <= whole_s


@pytest.mark.parametrize(("rows", "first"), [(9, 8), (13, 13), (17, 16), (22, 16), (24, 24), (32, 32)])
def test_rows_are_not_padded_where_the_next_smaller_call_is_clearly_cheaper_by_the_row(rows: int, first: int) -> None:
    """What is left shares the next call with those who come meanwhile."""
    assert CostCurve(SIZES, tuple(8 + 0.8 * size for size in SIZES)).first_rows(rows) == first


@pytest.mark.parametrize(("seconds", "first"), [((1, 2, 4, 8), 4), ((5, 5, 6, 7), 5), ((1, 2, 4, 5.1), 5)])
def test_five_rows_run_as_four_and_one_or_as_eight_whichever_is_clearly_sooner(
    seconds: tuple[float, ...], first: int
) -> None:
    assert CostCurve((1, 2, 4, 8), seconds).first_rows(5) == first


def test_the_rows_that_fit_a_time() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 1.5, 3.0))
    assert [curve.rows_within(seconds) for seconds in (0.1, 1.0, 1.6, 3.0, 9.0)] == [1, 1, 2, 4, 4]
    assert CostCurve((1, 2, 4), (1.0, 1.1, 3.0)).rows_within(0.1) == 2


def test_the_work_of_many_rows() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 1.5, 3.0))
    assert curve.work_s(9, 4) == 3 + 3 + 1
    assert curve.work_s(8, 4) == 6
    assert curve.work_s(0, 4) == 0


def test_of_the_sizes_that_are_quick_enough_the_largest_whose_rows_are_cheap() -> None:
    curve = CostCurve((1, 2, 4, 8), (1.0, 1.5, 2.0, 8.0))
    limits = [(9.0, 8), (9.0, 100), (9.0, 5), (2.0, 8), (1.9, 8), (9.0, 3), (9.0, 1)]
    assert [curve.efficient_within(*limit) for limit in limits] == [4, 4, 4, 4, 2, 3, 1]


def test_the_next_larger_size_is_bounded_by_time_and_rows() -> None:
    curve = CostCurve.through((1, 2, 4, 8), {1: 1.0, 2: 2.0, 4: 8.0, 8: 9.0})
    limits = [(2, 8.0, 8), (2, 7.9, 8), (2, 9.0, 3), (1, 9.0, 8), (4, 9.0, 8), (8, 9.0, 8), (5, 9.0, 5)]
    assert [curve.larger_within(*limit) for limit in limits] == [4, 2, 3, 2, 8, 8, 5]
