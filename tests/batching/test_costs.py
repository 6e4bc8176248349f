from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.cost_model import Costs
from app.core.batch_sizes import BatchSizes

SIZES = (1, 2, 4, 8, 16, 32, 64)


def test_costs_follow_what_calls_take() -> None:
    costs = Costs(BatchSizes((1, 4)))
    assert costs.curve is None
    costs.note(4, 1.0)
    assert costs.curve is not None
    assert costs.curve.seconds == (1.0, 1.0)
    for _ in range(200):
        costs.note(4, 3.0)
    assert costs.curve.call_s(4) == pytest.approx(3.0, rel=0.12)


def test_a_call_that_was_held_up_says_little() -> None:
    costs = Costs(BatchSizes((1, 4)), seeds={4: 1.0})
    for _ in range(20):
        costs.note(4, 1.0)
    costs.note(4, 1000.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) < 1.3


def test_seeds_are_the_first_measurements() -> None:
    curve = Costs(BatchSizes((1, 2, 4)), seeds={1: 1.0, 4: 4.0}).curve
    assert curve is not None
    assert curve.seconds == pytest.approx((1.0, 2.0, 4.0))


def test_the_margin_is_four_mean_deviations() -> None:
    costs = Costs(BatchSizes((4,)), seeds={4: 1.0})
    assert 0 < costs.margin <= 0.1  # nothing is known yet
    for call in range(500):
        costs.note(4, 1.0 + (0.05 if call % 2 else -0.05))
    assert costs.margin == pytest.approx(0.2, rel=0.1)
    for _ in range(500):
        costs.note(4, 1.0)
    assert costs.margin == pytest.approx(0.0, abs=0.05)


@given(st.lists(st.floats(0, 1e3)))
def test_a_margin_has_bounds_whatever_calls_take(seconds: list[float]) -> None:
    costs = Costs(BatchSizes((4,)))
    for each in seconds:
        costs.note(4, each)
    assert 0 <= costs.margin <= 4


def test_what_was_measured_is_told_from_what_was_fitted() -> None:
    costs = Costs(BatchSizes(SIZES), {1: 0.1})
    assert set(costs.measured) == {1}
    costs.note(8, 0.2)
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
        costs.taken(size, float(call))
        costs.note(size, true_s[size])
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
    assert called[:first] == [32] * first
    assert curve.call_s(LARGEST) == 3 * TRUE_S[LARGEST]
    assert costs.curve is not None
    assert costs.curve.call_s(LARGEST) == pytest.approx(TRUE_S[LARGEST], rel=0.1)
    assert costs.curve.efficient_rows == LARGEST


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_a_size_that_is_dear_is_seldom_tried(times: float) -> None:
    true_s = {**TRUE_S, LARGEST: times * TRUE_S[LARGEST]}
    called = work(Costs(BatchSizes(SIZES), true_s), 10_000, true_s)
    assert 0 < called.count(LARGEST) < 50
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
