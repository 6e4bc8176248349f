"""The table, from figures as the benchmark writes them."""

from typing import Any

import pytest

from bench.peers.report import markdown
from bench.wrk import read_report


def run(rate: float, **more: float) -> dict[str, float]:
    return {"rate": rate, "p50_ms": 1.0, "p99_ms": 2.0, "failed": 0, "intended": 100, "late_p99_ms": 0.1, **more}


def peer(*rates: float, not_run: str = "", open_loop: bool = False) -> dict[str, Any]:
    closed = {number: run(rate, rss_mib=300.0) for number, rate in enumerate(rates)}
    opened = {0: run(50.0, failed=1)} if open_loop else {}
    return {"closed": closed, "open": opened, "own": opened, "about": "", "not_run": not_run}


def table(**peers: dict[str, Any]) -> str:
    workload = {"name": "mlp", "about": "tiny", "peers": peers}
    return markdown(
        {
            "name": "peers",
            "machine": "2 cores",
            "load_average": 0.5,
            "load": {"rounds": 2, "seconds": 5.0, "connections": 64},
            "titles": {"slow": "Slow & Co"},
            "about": {"slow": {"version": "1.0", "about": "tuned"}},
            "workloads": [workload],
        }
    )


def test_the_fastest_stands_first_with_medians_spread_and_ratio() -> None:
    text = table(slow=peer(100.0, 50.0), ferry=peer(200.0, 150.0))
    rows = [line for line in text.splitlines() if line.startswith(("| ferry", "| Slow"))]
    assert rows[0].startswith("| ferry | 175 (150-200) |  |")
    assert rows[1].startswith("| Slow & Co | 75 (50-100) | 2.50x (2.00-3.00) | 1.00 (1.00-1.00) |")
    assert rows[2] == "| Slow & Co | 1.0 | tuned |"


def test_who_did_not_run_is_told_loudly() -> None:
    assert "| Slow & Co | **not run: no wheel** |" in table(ferry=peer(1.0), slow=peer(not_run="no wheel"))
    assert "| Slow & Co | **not run: died** |" in table(ferry=peer(1.0), slow=peer(5.0, not_run="died"))


def test_without_ferry_there_are_no_ratios() -> None:
    assert "| Slow & Co | 10 |  |" in table(slow=peer(10.0))


def test_the_open_loop_has_its_own_table() -> None:
    assert "open loop | rate" not in table(ferry=peer(1.0))
    assert "| ferry | 50 | 1.00 | 2.00 | 1.0 % | 50 |" in table(ferry=peer(1.0, open_loop=True))


def test_wrk_reports_are_read_and_their_absence_is_an_error() -> None:
    line = '{"requests": 10, "seconds": 2.0, "failed": 1, "p50_ms": 1, "p90_ms": 1, "p99_ms": 1, "max_ms": 1}'
    figures = read_report(f"Running 2s test\nRESULT {line}\n")
    assert figures.rate == 5
    assert figures.as_dict()["failed"] == 1
    with pytest.raises(RuntimeError, match="unable to connect"):
        read_report("unable to connect")
