"""What `ferry plan` says, beside Ferry's batching core in simulated time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import scaling as script
from bench.scaling import BURSTS, CURVE, Compared, planned_for, played
from bench.simulator.balancers import BALANCERS


@pytest.mark.parametrize("pattern", BURSTS)
@pytest.mark.parametrize(("slots", "target_ms", "spare"), [(1, 100.0, 0), (1, 50.0, 3), (2, 100.0, 3)])
def test_a_plan_comes_true(pattern: str, slots: int, target_ms: float, spare: int) -> None:
    compared = played(planned_for(replace(CURVE, slots=slots), pattern, target_ms, spare), pattern, "random", True, [1])
    assert compared.good, (compared.p99_ratio, compared.busy_ratio)


def test_a_target_that_just_allows_a_size_does_not_overload() -> None:
    """The deviation by which the core chooses sizes is itself not steady; 50 ms just allow calls of 16 rows."""
    compared = played(planned_for(CURVE, "poisson", 50.0, 0), "poisson", "random", True, [2])
    assert compared.played("p99_s") <= 0.05


def test_the_script_writes_tables_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what was played for a moment: the tests above have the figures."""
    quick = played(planned_for(CURVE, "poisson", 100.0, 0), "poisson", "random", True, [1])
    calls: list[tuple[str, str]] = []

    def once(planned: object, pattern: str, balancer: str, is_quick: bool, seeds: object) -> Compared:
        calls.append((pattern, balancer))
        return replace(quick, pattern=pattern, balancer=balancer)

    monkeypatch.setattr(script, "played", once)
    figures, table = tmp_path / "figures.json", tmp_path / "table.md"
    monkeypatch.setattr(sys, "argv", ["scaling", "--quick", "--json", str(figures), "--markdown", str(table)])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    assert {balancer for _, balancer in calls} == set(BALANCERS)
    assert len(json.loads(figures.read_text())) == len(calls)
    assert table.read_text() == capsys.readouterr().out
    assert f"| {quick.p99_ratio:.3f} |" in table.read_text()


def test_a_plan_that_does_not_come_true_is_not_good() -> None:
    quick = played(planned_for(CURVE, "poisson", 100.0, 0), "poisson", "random", True, [1])
    assert not replace(quick, planned=replace(quick.planned, p99_s=0.8 * quick.planned.p99_s)).good
    assert not replace(quick, planned=replace(quick.planned, busy=0.8 * quick.planned.busy)).good
