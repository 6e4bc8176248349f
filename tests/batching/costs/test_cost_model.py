from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.costs.cost_model import Costs
from app.core.batch_sizes import BatchSizes

SIZES = (1, 2, 4, 8, 16, 32, 64)
measured = st.dictionaries(st.sampled_from(SIZES), st.floats(1e-5, 10), min_size=1)


def test_a_call_without_rows_says_nothing_of_what_rows_cost() -> None:
    costs = Costs(BatchSizes((1, 8, 64)))
    costs.record_call(0, 1e-4)
    assert costs.curve is None
    costs.record_call(8, 1.0)
    deviation = costs.deviation
    costs.record_call(0, 1e-4)
    assert (costs.measured, costs.deviation) == ({8}, deviation)


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
        size = costs.curve.efficient_within(LARGEST)
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
    assert curve.efficient_within(LARGEST) == 32
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
