"""What the simulator is given of a real run, and what is said of both."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.bench.open_loop import OpenLoopResult, arrivals
from bench.simulator.called import Call
from bench.simulator.real_run import LOADS, Pair, Played, costs_of, curve_alone, differences, report, simulated_like
from bench.simulator.simulation import MeasuredCosts

ALONE = {1: 0.01, 2: 0.012, 4: 0.016, 8: 0.024, 16: 0.04, 32: 0.072, 64: 0.136}


def costs(times: Sequence[float] = (1.0,), around_row_s: float = 0.0) -> MeasuredCosts:
    calls = [Call(rows, times_as_long * ALONE[rows]) for rows in (8, 64) for times_as_long in times]
    return costs_of(calls, ALONE, around_row_s, seed=1)


def test_calls_take_as_much_longer_than_alone_as_they_were_seen_to() -> None:
    found = costs((1.5, 2.5), 0.001)
    assert found.level == pytest.approx(2.0)
    assert found.call_s(32) == pytest.approx(2 * ALONE[32])
    assert {round(found.took_s(32) / ALONE[32], 6) for _ in range(50)} == {1.5, 2.5}
    assert found.around_s(32) == pytest.approx(0.032)
    assert costs_of([Call(5, 0.048)], ALONE, 0.0, seed=1).level == pytest.approx(2.0)  # padded to 8


def test_what_is_not_spent_in_calls_is_spent_around_their_rows() -> None:
    load = real(0.7)
    assert Played(load, [Call(2, 0.5), Call(8, 1.0)], 2.0).around_row_s == pytest.approx(0.05)
    assert Played(load, [Call(2, 1.0)], 0.9).around_row_s == 0.0  # calls of two devices


def real(load: float, seconds: float = 2.0) -> OpenLoopResult:
    rate = load * 64 / ALONE[64]
    count = len(list(arrivals(rate, seconds, 1)))
    return OpenLoopResult(rate, seconds, count, [0.05] * count)


def test_it_is_simulated_with_the_arrivals_and_costs_of_the_real_run() -> None:
    run = real(0.7)
    same = simulated_like(run, costs(), seed=1)
    assert same.arrived == run.intended
    assert same.in_time > 0.97 * same.arrived  # nobody is rejected but by chance
    for slow in (costs((2.5,)), costs((1.5, 3.5)), costs(around_row_s=1.5 * ALONE[64] / 64)):
        assert simulated_like(run, slow, seed=1).in_time < 0.8 * same.in_time


def test_the_median_of_a_loads_rounds_decides() -> None:
    all_of_it = real(0.7)
    half = replace(all_of_it, latencies_s=all_of_it.latencies_s[::2])
    simulated = simulated_like(all_of_it, costs(), seed=1)
    pairs = [Pair(LOADS[0], run, 1.0, simulated, costs()) for run in (all_of_it, all_of_it, half)]
    pairs.append(Pair(LOADS[1], half, 1.0, simulated, costs()))
    assert differences(pairs) == pytest.approx([0, 50], abs=3)
    assert len(list(report(pairs))) == 4 + len(pairs) + 1 + len(LOADS)


def test_sizes_are_called_in_turn() -> None:
    called: list[int] = []
    assert set(curve_alone(called.append, passes=1)) == set(ALONE)
    assert called == [*[1] * 8, *[2] * 4, 4, 4, 8, 16, 32, 64] * 2
