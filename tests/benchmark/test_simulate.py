import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.padding import BatchSizes
from app.batching.policy import SelfTuning, WorkConserving
from bench import simulate as script
from bench.peer_policies import AdditiveIncrease, FixedTimeout, PreferredSizes
from bench.simulate import PATTERNS, SIZES, most_in_time
from bench.simulation import Arrival, Costs, simulate

ROW_S = 0.01
LINEAR = Costs(0.0, ROW_S)

arrivals = st.lists(
    st.builds(Arrival, st.integers(0, 30).map(lambda tick: tick / 200), st.sampled_from([0.5, 1.0, 3.0])),
    min_size=1,
    max_size=7,
).map(sorted)


def in_time(schedule: tuple[Arrival, ...], deadline_s: float) -> bool:
    end_s = 0.0
    for arrival in schedule:
        end_s = max(end_s, arrival.at_s) + ROW_S * arrival.length
        if end_s > arrival.at_s + deadline_s + 1e-12:
            return False
    return True


@given(arrivals)
def test_the_bound_is_the_most_that_any_choice_has_in_time(arrivals: list[Arrival]) -> None:
    deadline_s = 0.0402  # no sum of rows ends just there
    counts = range(len(arrivals), -1, -1)
    best = next(count for count in counts if any(in_time(some, deadline_s) for some in combinations(arrivals, count)))
    assert most_in_time(arrivals, LINEAR, deadline_s) == best


@pytest.mark.parametrize("pattern", PATTERNS)
def test_nobody_is_above_the_bound_and_all_arrivals_are_accounted_for(pattern: str) -> None:
    costs = Costs()
    arrivals = PATTERNS[pattern](np.random.default_rng(2), 1200.0, 0.4)
    bound = most_in_time(arrivals, costs)
    for policy, admission in [
        (SelfTuning(), True),
        (WorkConserving(), False),
        (FixedTimeout(32, 0.01), False),
        (PreferredSizes((8, 32), 0.01), False),
        (AdditiveIncrease(0.05, 2), False),
    ]:
        outcome = simulate(arrivals, policy, costs=costs, admission=admission, sizes=SIZES)
        assert 0 < outcome.in_time <= bound
        assert outcome.in_time <= outcome.accepted <= outcome.arrived == len(arrivals)
        assert outcome.expired_executions == 0
        assert 0 < outcome.use <= 1


def test_arrivals_come_at_the_rate_asked_for() -> None:
    for make in PATTERNS.values():
        found = make(np.random.default_rng(3), 100.0, 100.0)
        assert len(found) == pytest.approx(10_000, rel=0.2)
        assert [each.at_s for each in found] == sorted(each.at_s for each in found)


def test_a_lone_request_takes_its_call() -> None:
    outcome = simulate([Arrival(1.0)], SelfTuning(), costs=Costs(0.02, 0.01), sizes=BatchSizes((1,)))
    assert outcome.p99_s == pytest.approx(0.03)
    assert outcome.goodput == 1.0


def test_additive_increase_backs_off_when_a_call_is_too_long() -> None:
    policy = AdditiveIncrease(0.05, 4.0)
    for rows, seconds in ((1, 0.01), (5, 0.01), (9, 0.09)):
        policy.called(rows, seconds)
    assert policy._rows == pytest.approx(8.1)


def test_the_script_writes_a_table_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, table = tmp_path / "figures.json", tmp_path / "table.md"
    monkeypatch.setattr(sys, "argv", ["simulate", "--quick", "--json", str(figures), "--markdown", str(table)])
    script.main()
    rows = json.loads(figures.read_text())
    assert [row["pattern"] for row in rows] == list(PATTERNS)
    assert all(set(row["who"]) == {"ferry", *script.PEERS} for row in rows)
    assert table.read_text() == capsys.readouterr().out


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_what_is_best_under_bursts_elsewhere_is_no_better_than_the_defaults_here(load: float) -> None:
    """Triton's way at the setting that a search found for these patterns: once it was up to 0.8 % ahead."""
    capacity = SIZES.largest / Costs().call_s(SIZES.largest)
    arrivals = PATTERNS["bursty"](np.random.default_rng(1), load * capacity, 5.0)
    peer = simulate(arrivals, PreferredSizes((8, 16, 32), 0.01), max_queue_rows=64, sizes=SIZES)
    assert simulate(arrivals, SelfTuning(), admission=True, sizes=SIZES).goodput >= peer.goodput
