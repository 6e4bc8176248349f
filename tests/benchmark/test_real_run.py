"""What the simulator is given of a real run, and what is said of both."""

from dataclasses import replace

import pytest

from app.bench.open_loop import OpenLoop, arrivals
from bench.heavy_server import metrics_of
from bench.real_run import LOADS, Pair, calls_between, curve_alone, differences, report, simulated_like

ALONE = {1: 0.01, 2: 0.012, 4: 0.016, 8: 0.024, 16: 0.04, 32: 0.072, 64: 0.136}

PAGE = """
# TYPE ferry_batch_rows histogram
ferry_batch_rows_bucket{{model="transformer",version="1",signature="serving_default",le="1.0"}} {one}
ferry_batch_rows_bucket{{model="transformer",version="1",signature="serving_default",le="2.0"}} {two}
ferry_batch_rows_bucket{{model="transformer",version="1",signature="serving_default",le="4.0"}} {four}
ferry_batch_rows_bucket{{model="transformer",version="1",signature="serving_default",le="+Inf"}} {four}
ferry_batch_rows_bucket{{model="digits",version="1",signature="serving_default",le="1.0"}} 99
# TYPE ferry_compute_seconds histogram
ferry_compute_seconds_sum{{model="transformer",version="1",signature="serving_default"}} {seconds}
"""


def test_calls_are_read_off_the_servers_counts() -> None:
    before = metrics_of(PAGE.format(one=1, two=3, four=3, seconds=0.5))
    after = metrics_of(PAGE.format(one=4, two=6, four=10, seconds=2.0))
    assert calls_between(before, after) == ({1: 3, 4: 4}, 1.5)
    assert calls_between({}, after) == ({1: 4, 2: 2, 4: 4}, 2.0)


def real(load: float, seconds: float = 2.0) -> OpenLoop:
    rate = load * 64 / ALONE[64]
    count = len(list(arrivals(rate, seconds, 1)))
    return OpenLoop(rate, seconds, count, [0.05] * count)


def test_it_is_simulated_with_the_arrivals_and_costs_of_the_real_run() -> None:
    run = real(0.7)
    same = simulated_like(run, ALONE, seed=1)
    assert same.arrived == run.intended
    assert same.in_time > 0.97 * same.arrived  # nobody is refused but by chance
    slow = simulated_like(run, {size: 2.5 * seconds for size, seconds in ALONE.items()}, seed=1)
    assert slow.in_time < 0.8 * same.in_time


def test_the_median_of_a_loads_rounds_decides() -> None:
    all_of_it = real(0.7)
    half = replace(all_of_it, latencies_s=all_of_it.latencies_s[::2])
    simulated = simulated_like(all_of_it, ALONE, seed=1)
    pairs = [Pair(LOADS[0], 1.0, run, 1.0, simulated) for run in (all_of_it, all_of_it, half)]
    pairs.append(Pair(LOADS[1], 1.0, half, 1.0, simulated))
    assert differences(pairs) == pytest.approx([0, 50], abs=3)
    assert len(list(report(pairs))) == 4 + len(pairs) + 1 + len(LOADS)


def test_each_size_is_called_alone() -> None:
    called: list[int] = []
    assert set(curve_alone(called.append, 0.0)) == set(ALONE)
    assert set(called) == set(ALONE)
