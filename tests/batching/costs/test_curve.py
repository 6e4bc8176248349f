from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.costs.curve import CostCurve

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


def test_sizes_in_between_follow_the_line_as_far_as_their_neighbours_allow() -> None:
    assert CostCurve.through((1, 2, 4, 8), {1: 1.0, 2: 3.0, 4: 3.5}).seconds[:3] == (1.0, 3.0, 3.5)
    assert CostCurve.through((1, 2, 4, 8), {1: 1.0, 4: 1.5, 8: 9.0}).seconds[1] == 1.5
    assert CostCurve.through((1, 4, 8, 64), {1: 1.0, 4: 10.0, 64: 11.0}).seconds[2] == 10.0
    # No call costs less than nothing, so the line begins at nothing.
    assert CostCurve.through((1, 2, 4, 8), {2: 1.0, 4: 4.0}).seconds == pytest.approx((2.5 / 3, 1.0, 4.0, 20 / 3))


def test_a_row_may_cost_a_tenth_more_in_a_larger_call() -> None:
    assert CostCurve((1, 2), (0.9, 2.0)).efficient_rows == 2
    assert CostCurve((1, 2), (0.9, 2.01)).efficient_rows == 1
    assert CostCurve((1, 2, 4), (1.0, 1.0, 4.0)).efficient_rows == 2


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=20))
def test_the_largest_size_at_which_a_row_costs_hardly_more_than_at_any_smaller_one(seconds: list[float]) -> None:
    sizes = tuple(range(1, len(seconds) + 1))
    curve = CostCurve(sizes, tuple(seconds))
    row_s = [each / size for each, size in zip(seconds, sizes, strict=True)]
    for most in sizes:
        best = max(size for size in sizes[:most] if row_s[size - 1] <= min(row_s[:most]) / 0.9)
        assert curve._efficient[most - 1] == best


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


@pytest.mark.parametrize(
    ("sizes", "seconds", "rows", "first"),
    [
        ((1, 2, 4, 8), (0.1, 2, 4, 5), 5, 4),  # a row costs more in four, but four and one are done sooner
        ((1, 2, 4, 8), (0.1, 0.2, 4, 5), 7, 4),  # four, two and one
        ((1, 2, 4, 8), (0.1, 0.2, 4.25, 5), 7, 7),  # which would be later
        ((1, 2, 4, 8), (3, 4, 6, 10), 6, 6),  # just a tenth cheaper by the row
        ((1, 2, 4, 8), (1.5, 3, 7.5, 10), 5, 5),  # just a tenth sooner
        ((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.2), 8, 8),  # nothing is padded
        ((4, 8), (1, 9), 2, 2),  # there is no smaller size
        ((4, 8), (1, 9), 4, 4),
        ((4, 8), (1, 1), 9, 8),  # more than a call takes
        ((1, 4096), (1, 10), 4000, 4000),  # no sizes in between, which is 4,000 calls of one
        ((1, 4096), (1, 10), 8, 1),
    ],
)
def test_what_is_taken_of_rows_that_fill_no_call_or_more_than_one(
    sizes: tuple[int, ...], seconds: tuple[float, ...], rows: int, first: int
) -> None:
    assert CostCurve(sizes, seconds).first_rows(rows) == first


def test_more_rows_than_a_call_takes_cost_a_full_call() -> None:
    assert CostCurve((1, 4), (1.0, 2.0)).call_s(100) == 2.0


def test_the_rows_that_fit_a_time() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 1.5, 3.0))
    assert [curve.rows_within(seconds) for seconds in (0.1, 1.0, 1.6, 3.0, 9.0)] == [1, 1, 2, 4, 4]
    assert CostCurve((1, 2, 4), (1.0, 1.1, 3.0)).rows_within(0.1) == 2


def test_of_the_sizes_that_are_quick_enough_the_largest_whose_rows_are_cheap() -> None:
    curve = CostCurve((1, 2, 4, 8), (1.0, 1.5, 2.0, 8.0))
    limits = [(9.0, 8), (9.0, 100), (9.0, 5), (2.0, 8), (1.9, 8), (9.0, 3), (9.0, 1)]
    sizes = [curve.efficient_within(min(rows, curve.rows_within(seconds))) for seconds, rows in limits]
    assert sizes == [4, 4, 4, 4, 2, 3, 1]


def test_the_next_larger_size_is_bounded_by_time_and_rows() -> None:
    curve = CostCurve.through((1, 2, 4, 8), {1: 1.0, 2: 2.0, 4: 8.0, 8: 9.0})
    limits = [(2, 8.0, 8), (2, 7.9, 8), (2, 9.0, 3), (1, 9.0, 8), (4, 9.0, 8), (8, 9.0, 8), (5, 9.0, 5)]
    assert [curve.larger_within(*limit) for limit in limits] == [4, 2, 3, 2, 8, 8, 5]
