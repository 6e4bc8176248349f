import json
import sys
from pathlib import Path

import numpy as np
import pytest

from app.batching.policy import SelfTuning
from app.core.batch_sizes import BatchSizes
from bench import simulate as script
from bench.simulate import DEADLINE_S, SIZES
from bench.simulator.arrivals import LENGTHS, PATTERNS, SHARES
from bench.simulator.bound import most_in_time
from bench.simulator.peer_policies import (
    PEERS,
    AdditiveIncrease,
    FixedTimeout,
    PreferredSizes,
    WorkConserving,
    settings_of,
)
from bench.simulator.simulation import Arrival, LinearCosts, simulate
from bench.support.figures import Spread


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_policy_is_above_the_bound_and_all_arrivals_are_accounted_for(pattern: str) -> None:
    costs = LinearCosts()
    arrivals = PATTERNS[pattern](np.random.default_rng(2), 1200.0, 0.4)
    bound = most_in_time(arrivals, costs, DEADLINE_S, SIZES.allowed)
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
    assert np.dot(LENGTHS, SHARES) == pytest.approx(1.0)  # so that a load means the same of mixed lengths
    assert sum(SHARES) == pytest.approx(1.0)


def test_a_lone_request_takes_its_call() -> None:
    outcome = simulate([Arrival(1.0)], SelfTuning(), costs=LinearCosts(0.02, 0.01), sizes=BatchSizes((1,)))
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
    monkeypatch.setattr(
        sys, "argv", ["simulate", "--quick", "--seeds", "1,7", "--json", str(figures), "--markdown", str(table)]
    )
    script.main()
    rows = json.loads(figures.read_text())
    assert [row["pattern"] for row in rows] == list(PATTERNS)
    for row in rows:
        assert set(row["who"]) == {"ferry", *PEERS}
        one, other = row["arrivals_per_s"]
        assert one != other  # each seed has its own
        for each in row["who"].values():
            assert [outcome["arrived"] for outcome in each["by_seed"]] == [one / 2, other / 2]  # in half a second
    assert table.read_text() == capsys.readouterr().out


def row_of(**goodputs: list[float]) -> script.Row:
    return {"who": {who: {"by_seed": [{"goodput": each} for each in by_seed]} for who, by_seed in goodputs.items()}}


def test_ferry_stands_beside_the_best_peer_of_each_seed() -> None:
    row = row_of(ferry=[100, 110, 90], one=[80, 110, 100], other=[100, 100, 60])
    assert script.beside(row, ["one"]) == Spread(1.0, 0.9, 1.25)
    assert script.beside(row, ["one", "other"]) == Spread(1.0, 0.9, 1.0)


def test_a_peer_stands_at_the_setting_that_is_best_over_all_seeds() -> None:
    rate = 1.2 * SIZES.largest / LinearCosts().call_s(SIZES.largest)
    streams = [PATTERNS["poisson"](np.random.default_rng(seed), rate, 0.5) for seed in (1, 2)]
    text, outcomes = script.best_of("fixed timeout", streams, LinearCosts(), quick=False)
    found = {
        each.text: sum(
            simulate(stream, each.policy(), max_queue_rows=each.queue_rows, sizes=SIZES).goodput for stream in streams
        )
        for each in settings_of("fixed timeout", quick=False)
    }
    assert text in found
    assert found[text] == max(found.values()) == sum(each.goodput for each in outcomes)
    assert min(found.values()) < found[text]


def test_a_policy_that_learns_is_a_new_one_for_each_run() -> None:
    (setting,) = settings_of("AIMD", quick=True)
    assert setting.policy() is not setting.policy()


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_under_bursts_the_defaults_are_not_behind_what_is_best_elsewhere(load: float) -> None:
    """Triton's way, at the setting that a search found for just these arrivals."""
    rate = load * SIZES.largest / LinearCosts().call_s(SIZES.largest)
    streams = [PATTERNS["bursty"](np.random.default_rng(seed), rate, 5.0) for seed in (1, 2)]
    ours = script.ferry(streams, LinearCosts())
    theirs = [simulate(each, PreferredSizes((8, 16, 32), 0.01), max_queue_rows=60, sizes=SIZES) for each in streams]
    assert sum(each.goodput for each in ours) >= 0.99 * sum(each.goodput for each in theirs)
