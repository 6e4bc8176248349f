"""The queue before a replica, held to formulas that others proved."""

from __future__ import annotations

from math import exp, factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.costs.curve import CostCurve
from app.planning.batch_queue import Calls, play
from tests.planning.curves import curve_of


def calls_of_rows(call_s: float, most_rows: int = 1, slots: int = 1, spread: tuple[float, ...] = (1.0,)) -> Calls:
    """Any number of rows takes the same time."""
    return Calls(CostCurve((most_rows,), (call_s,)), most_rows, slots=slots, spread=spread)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_row_a_call_waits_as_pollaczek_and_khinchine_say(load: float) -> None:
    """M/D/1: the mean wait is load * s / (2 * (1 - load))."""
    figures = play(calls_of_rows(0.01), load / 0.01)
    assert figures.mean_s == pytest.approx(0.01 + load * 0.01 / (2 * (1 - load)), rel=0.04)
    assert figures.busy == pytest.approx(load, rel=0.02)
    assert figures.batch_rows == 1.0


def test_calls_that_vary_make_the_queue_longer_as_their_second_moment_says() -> None:
    """M/G/1: the mean wait is rate * E[s^2] / (2 * (1 - load))."""
    spread, load = (0.5, 0.5, 0.5, 2.5), 0.6
    second_moment = sum((0.01 * each) ** 2 for each in spread) / len(spread)
    figures = play(calls_of_rows(0.01, spread=spread), load / 0.01)
    assert figures.mean_s == pytest.approx(0.01 + load / 0.01 * second_moment / (2 * (1 - load)), rel=0.03)


@pytest.mark.parametrize("slots", [2, 4])
def test_several_calls_at_once_wait_as_cosmetatos_says(slots: int) -> None:
    """M/D/c: half of the wait of M/M/c (Erlang), with the correction of Cosmetatos (1975)."""
    load, call_s = 0.8, 0.01
    offered = slots * load
    all_busy = offered**slots / factorial(slots) / (1 - load)
    waits = all_busy / (sum(offered**k / factorial(k) for k in range(slots)) + all_busy)
    correction = 1 + (1 - load) * (slots - 1) * ((4 + 5 * slots) ** 0.5 - 2) / (16 * load * slots)
    wait_s = correction / 2 * waits * call_s / (slots * (1 - load))
    figures = play(calls_of_rows(call_s, slots=slots), offered / call_s)
    assert figures.mean_s - call_s == pytest.approx(wait_s, rel=0.05)
    assert figures.busy == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("load", [0.05, 0.2, 0.5, 0.8])
def test_latencies_of_batches_without_limit_are_just_within_inoues_bound(load: float) -> None:
    """Inoue (2021), theorem 2: calls of a * rows + t seconds, batches of all that waits; the bound is tight."""
    t, a = 0.008, 0.0008
    rate, sizes = load / a, range(1, 2049)
    calls = Calls(CostCurve(tuple(sizes), tuple(t + a * rows for rows in sizes)), sizes[-1])
    bound_s = min(
        (a + t) / (2 * (1 - load)) * (1 + 2 * rate * t + (1 - rate * t) / (1 + load)),
        3 / 2 * t / (1 - load) + a / 2 * (load + 2) / (1 - load**2),
    )
    assert 0.93 * bound_s <= play(calls, rate).mean_s <= 1.02 * bound_s


def test_a_lone_request_takes_its_call() -> None:
    figures = play(Calls(curve_of(0.008, 0.0008).costs, 64), 0.1)
    assert figures.p99_s == pytest.approx(0.0088)
    assert figures.busy == pytest.approx(0.00088, rel=0.02)


def test_an_idle_device_is_busy_for_the_share_in_which_requests_come() -> None:
    """Bailey's queue where calls take one time and everything that waits: idle after a call with probability e^-rt."""
    call_s, rate = 0.01, 100.0
    figures = play(calls_of_rows(call_s, most_rows=1000), rate)
    idle_s = exp(-rate * call_s) / rate  # after each call, on average
    assert figures.busy == pytest.approx(call_s / (call_s + idle_s), rel=0.02)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 0.01), st.floats(1e-5, 1e-3), st.floats(0.1, 0.9), st.integers(1, 3), st.integers(1, 4))
def test_busy_is_rows_by_what_their_calls_cost(
    fixed_s: float, row_s: float, load: float, slots: int, request_rows: int
) -> None:
    calls = Calls(curve_of(fixed_s, row_s).costs, 64, request_rows, slots)
    figures = play(calls, load * calls.capacity)
    assert request_rows <= figures.batch_rows <= 64
    assert 0 < figures.busy <= 1
    assert fixed_s + row_s * request_rows <= figures.p50_s * (1 + 1e-9)
    assert figures.p50_s <= figures.p99_s


def test_bursts_are_slower_than_none_and_faster_than_their_rate_for_good() -> None:
    calls = Calls(curve_of(0.008, 0.0008).costs, 64)
    steady, bursts, faster = play(calls, 400.0), play(calls, 400.0, 1.8), play(calls, 720.0)
    assert steady.p99_s < bursts.p99_s < 1.2 * faster.p99_s
    assert bursts.busy < steady.busy


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.2, 90_000.0])
def test_bursts_of_hardly_any_requests_and_of_very_many_are_played(rate: float) -> None:
    figures = play(Calls(curve_of(1e-6, 1e-6).costs, 64), rate, 1.8)
    assert figures.p50_s == pytest.approx(2e-6, rel=0.5)
    assert 0 < figures.busy < 0.5


def test_the_same_is_found_again() -> None:
    calls = Calls(curve_of(0.008, 0.0008, spread=(0.9, 1.1)).costs, 64)
    assert play(calls, 300.0, 1.5) == play(calls, 300.0, 1.5)
