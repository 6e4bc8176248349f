from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.cost_model import CostCurve, Costs
from app.core.batch_sizes import BatchSizes

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


def test_a_call_without_rows_says_nothing_of_what_rows_cost() -> None:
    costs = Costs(BatchSizes((1, 8, 64)))
    costs.record_call(0, 1e-4)
    assert costs.curve is None
    costs.record_call(8, 1.0)
    deviation = costs.deviation
    costs.record_call(0, 1e-4)
    assert (costs.measured, costs.deviation) == ({8}, deviation)


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
    assert [curve.efficient_within(*limit) for limit in limits] == [4, 4, 4, 4, 2, 3, 1]


def test_the_next_larger_size_is_bounded_by_time_and_rows() -> None:
    curve = CostCurve.through((1, 2, 4, 8), {1: 1.0, 2: 2.0, 4: 8.0, 8: 9.0})
    limits = [(2, 8.0, 8), (2, 7.9, 8), (2, 9.0, 3), (1, 9.0, 8), (4, 9.0, 8), (8, 9.0, 8), (5, 9.0, 5)]
    assert [curve.larger_within(*limit) for limit in limits] == [4, 2, 3, 2, 8, 8, 5]


def test_costs_follow_what_calls_take() -> None:
    costs = Costs(BatchSizes((1, 4)))
    assert costs.curve is None
    costs.record_call(4, 1.0)
    assert costs.curve is not None
    assert costs.curve.seconds == (1.0, 1.0)
    for _ in range(200):
        costs.record_call(4, 3.0)
    assert costs.curve.call_s(4) == pytest.approx(3.0, rel=0.12)


def test_after_sixteen_calls_two_thirds_of_a_change_are_known() -> None:
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    for _ in range(50):
        costs.record_call(4, 1.0)
    for _ in range(16):
        costs.record_call(4, 2.0)
    assert costs.curve is not None
    assert 1.45 < costs.curve.call_s(4) < 1.7


@pytest.mark.parametrize(("batches", "seconds"), [(100, 1.0), (127, 1.0), (128, 1.5), (400, 1.5)])
def test_an_average_that_is_old_counts_as_much_as_the_next_call(batches: int, seconds: float) -> None:
    costs = Costs(BatchSizes((1, 4)), initial_estimates={4: 1.0})
    for _ in range(50):
        costs.record_call(4, 1.0)
    for _ in range(batches):
        costs.record_dispatch(1, 0.0)
    costs.record_call(4, 2.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == pytest.approx(seconds)


def test_rows_come_as_fast_as_they_came_lately_but_for_silence() -> None:
    costs = Costs(BatchSizes((1, 64)))
    now = 0.0
    assert costs.rows_per_s == inf
    costs.record_dispatch(1, now)
    assert costs.rows_per_s == inf
    for rows, interval_s, calls, rows_per_s in (
        (1, 0.125, 1, 8.0),
        (1, 0.125, 60, 8.0),
        (2, 0.125, 8, 13.25),  # two thirds of the way to 16
        (2, 0.125, 60, 16.0),
        (64, 0.25, 5, 16.0),  # after a silence requests are no sign of how fast they come
        (64, 0.3, 5, 16.0),
        (2, 0.2, 90, 10.0),
    ):
        for _ in range(calls):
            now += interval_s
            costs.record_dispatch(rows, now)
        assert costs.rows_per_s == pytest.approx(rows_per_s, rel=0.02)


def test_a_call_that_was_held_up_says_little() -> None:
    costs = Costs(BatchSizes((1, 4)), initial_estimates={4: 1.0})
    for _ in range(20):
        costs.record_call(4, 1.0)
    costs.record_call(4, 1000.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) < 1.3


def test_seeds_are_the_first_measurements() -> None:
    curve = Costs(BatchSizes((1, 2, 4)), initial_estimates={1: 1.0, 4: 4.0}).curve
    assert curve is not None
    assert curve.seconds == pytest.approx((1.0, 2.0, 4.0))


def test_a_seed_counts_as_one_call_before_the_first_batch() -> None:
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    for _ in range(127):
        costs.record_dispatch(4, 0.0)
    costs.record_call(4, 1.05)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 1.0  # it hardly differs
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    for _ in range(128):
        costs.record_dispatch(4, 0.0)
    costs.record_call(4, 1.05)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 1.025  # but the seed is old
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    costs.record_call(4, 2.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 1.5


def test_a_guess_holds_until_the_first_call_and_says_nothing_of_it() -> None:
    assert Costs(BatchSizes((1, 4))).scaled(2.0) == {}
    costs = Costs(BatchSizes((1, 4)), guess={1: 1.0, 4: 4.0})
    assert costs.curve is not None
    assert costs.curve.seconds == (1.0, 4.0)
    assert (costs.scaled(2.0), set(costs.measured), costs.undisturbed_s(1)) == ({1: 2.0, 4: 8.0}, set(), inf)
    margin = costs.margin
    costs.record_call(4, 40.0)
    assert (costs.curve.seconds, costs.margin) == ((40.0, 40.0), margin)
    costs.record_call(4, 20.0)
    assert costs.curve.call_s(4) == 30.0
    assert costs.margin == pytest.approx(margin + (4 * 0.5 - margin) / 16)  # it took half as long as the first one


def test_an_average_is_as_old_as_the_last_call() -> None:
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    for _ in range(200):
        costs.record_dispatch(4, 0.0)
        costs.record_call(4, 1.0)
    costs.record_call(4, 2.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 1.0  # by a sixteenth longer, which is not worth a new curve


def test_the_margin_is_four_mean_deviations() -> None:
    costs = Costs(BatchSizes((4,)), initial_estimates={4: 1.0})
    assert 0 < costs.margin <= 0.1  # nothing is known yet
    for call in range(500):
        costs.record_call(4, 1.0 + (0.05 if call % 2 else -0.05))
    assert costs.margin == pytest.approx(0.2, rel=0.1)
    for _ in range(500):
        costs.record_call(4, 1.0)
    assert costs.margin == pytest.approx(0.0, abs=0.05)


@given(st.lists(st.floats(0, 1e3)))
def test_a_margin_has_bounds_whatever_calls_take(seconds: list[float]) -> None:
    costs = Costs(BatchSizes((4,)))
    for each in seconds:
        costs.record_call(4, each)
    assert 0 <= costs.margin <= 4


def test_what_was_measured_is_told_from_what_was_fitted() -> None:
    costs = Costs(BatchSizes(SIZES), {1: 0.1})
    assert set(costs.measured) == {1}
    costs.record_call(8, 0.2)
    assert set(costs.measured) == {1, 8}


# --- exploration ---

TRUE_S = {size: 0.01 + 0.001 * size for size in SIZES}
LARGEST = SIZES[-1]


def work(costs: Costs, calls: int, true_s: dict[int, float] = TRUE_S) -> list[int]:
    """Makes so many calls of the size that is thought best; many rows wait all the time."""
    called = []
    for call in range(calls):
        assert costs.curve is not None
        size = costs.curve.efficient_within(inf, LARGEST)
        if costs.explores:
            size = costs.curve.larger_within(size, inf, LARGEST)
        costs.record_dispatch(size, float(call))
        costs.record_call(size, true_s[size])
        called.append(size)
    return called


@settings(max_examples=15, deadline=None)
@given(st.fixed_dictionaries({size: st.floats(0.5, 2) for size in SIZES}))
def test_whatever_the_first_measurements_say_the_best_size_is_found(wrong: dict[int, float]) -> None:
    """Each may be wrong by a factor of two."""
    costs = Costs(BatchSizes(SIZES), {size: wrong[size] * seconds for size, seconds in TRUE_S.items()})
    work(costs, 10_000)
    called = work(costs, 500)
    best = [size for size in called if TRUE_S[size] / size <= TRUE_S[LARGEST] / LARGEST / 0.9]
    assert len(best) == len(called)


def test_a_size_that_was_slow_once_is_tried_again_and_estimates_follow_measurements_alone() -> None:
    costs = Costs(BatchSizes(SIZES), {**TRUE_S, LARGEST: 3 * TRUE_S[LARGEST]})
    curve = costs.curve
    assert curve is not None
    assert curve.efficient_within(inf, LARGEST) == 32
    called = work(costs, 10_000)
    first = called.index(LARGEST)
    assert first == 255
    assert called[:first] == [32] * first
    assert curve.call_s(LARGEST) == 3 * TRUE_S[LARGEST]
    assert costs.curve is not None
    assert costs.curve.call_s(LARGEST) == pytest.approx(TRUE_S[LARGEST], rel=0.1)
    assert costs.curve.efficient_rows == LARGEST


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_a_size_that_is_dear_is_seldom_tried(times: float) -> None:
    true_s = {**TRUE_S, LARGEST: times * TRUE_S[LARGEST]}
    called = work(Costs(BatchSizes(SIZES), true_s), 10_000, true_s)
    assert 30 < called.count(LARGEST) < 50
    assert set(called) == {32, LARGEST}


def test_smaller_sizes_are_not_tried_for_nothing() -> None:
    assert set(work(Costs(BatchSizes(SIZES), TRUE_S), 10_000)) == {LARGEST}


def test_a_server_that_measured_larger_sizes_in_a_bad_moment_does_not_stay_at_two_rows() -> None:
    """As a server of the transformer once did, which cost it a fifth of its goodput."""
    true_s = {size: 0.002 + 0.004 * size for size in SIZES}
    costs = Costs(BatchSizes(SIZES), {size: (2 if size > 2 else 1) * seconds for size, seconds in true_s.items()})
    assert set(work(costs, 100, true_s)) == {2}
    work(costs, 10_000, true_s)
    assert set(work(costs, 500, true_s)) == {LARGEST}


# --- calls on the event loop ---


def test_a_call_that_was_never_made_is_not_known_to_be_quick() -> None:
    costs = Costs(BatchSizes((1, 2, 4)))
    assert costs.undisturbed_s(1) == inf
    costs.record_undisturbed(2, 1.0)
    assert costs.undisturbed_s(1) == costs.undisturbed_s(2) == pytest.approx(1.1)  # and its margin
    assert costs.undisturbed_s(4) == inf


def test_what_was_measured_at_warm_up_is_known() -> None:
    costs = Costs(BatchSizes((1, 2)), initial_estimates={1: 1.0, 2: 3.0})
    assert (costs.undisturbed_s(1), costs.undisturbed_s(2)) == (pytest.approx(1.1), pytest.approx(3.3))


def test_where_rows_do_not_tell_the_work_a_call_of_more_elements_is_not_known() -> None:
    costs = Costs(BatchSizes((1,)))
    costs.record_undisturbed(1, 1.0, 100)
    assert costs.undisturbed_s(1, 127) == pytest.approx(1.1)  # of the same power of two
    assert costs.undisturbed_s(1, 128) == inf
    costs.record_undisturbed(1, 50.0, 10_000)
    assert (costs.undisturbed_s(1, 90), costs.undisturbed_s(1, 200)) == (pytest.approx(1.1), pytest.approx(55.0))


def test_of_a_call_whose_elements_are_counted_others_say_nothing() -> None:
    costs = Costs(BatchSizes((1,)), initial_estimates={1: 1.0})
    costs.record_undisturbed(1, 1.0)
    assert costs.undisturbed_s(1, 1) == inf


def test_a_call_that_failed_soon_does_not_look_quick() -> None:
    costs = Costs(BatchSizes((1,)))
    costs.record_undisturbed(1, 0.001, succeeded=False)
    assert costs.undisturbed_s(1) == inf
    costs.record_undisturbed(1, 1.0)
    costs.record_undisturbed(1, 0.001, succeeded=False)
    assert costs.undisturbed_s(1) == pytest.approx(1.1)
    costs.record_undisturbed(1, 160.0, succeeded=False)
    assert costs.undisturbed_s(1) > 10.0


def test_calls_that_vary_have_a_margin_of_a_quarter_at_most() -> None:
    costs = Costs(BatchSizes((1,)))
    for seconds in [1.0, 3.0] * 20:
        costs.record_call(1, seconds)
        costs.record_undisturbed(1, seconds)
    assert costs.margin > 1.0
    assert 1.0 < costs.undisturbed_s(1) <= 1.25 * 1.2


@given(
    st.lists(st.tuples(st.sampled_from(SIZES), st.floats(0, 1), st.integers(0, 100)), max_size=8),
    st.sampled_from(SIZES),
    st.integers(0, 100),
    st.floats(0, 2),
)
def test_a_call_is_quick_if_undisturbed_it_takes_less(
    calls: list[tuple[int, float, int]], rows: int, elements: int, limit_s: float
) -> None:
    costs = Costs(BatchSizes(SIZES))
    for size, seconds, of_call in calls:
        costs.record_undisturbed(size, seconds, of_call)
        costs.record_call(size, seconds)
    assert costs.is_quick(rows, limit_s, elements) == (costs.undisturbed_s(rows, elements) < limit_s)
