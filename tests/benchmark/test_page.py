"""The page, from figures as the benchmark writes them."""

from collections.abc import Sequence
from typing import Any

import pytest

from bench.page import markdown
from bench.peers.plan import NOT_MADE
from bench.support.wrk import read_report

MEASURED = {"commit": "abc", "when": "today", "load_average": 0.5}


def run(rate: float, **more: float) -> dict[str, float]:
    return {"rate": rate, "p50_ms": 1.0, "p99_ms": 2.0, "failed": 0, "intended": 100, "late_p99_ms": 0.1, **more}


def peer(*rates: float, not_run: str = "", open_loop: bool = False, failures: Sequence[str] = ()) -> dict[str, Any]:
    closed = {number: run(rate, rss_mib=300.0) for number, rate in enumerate(rates)}
    opened = {0: run(50.0, failed=1)} if open_loop else {}
    return {"closed": closed, "open": opened, "own": opened, "about": "", "not_run": not_run, "failures": [*failures]}


def page(scripts: dict[str, Any] | None = None, **peers: dict[str, Any]) -> str:
    workload = {"name": "mlp", "about": "tiny", "rounds": 5, "seconds": 5.0, "connections": 64, **MEASURED}
    return markdown(
        {
            "name": "peers",
            "machine": "2 cores",
            "titles": {"slow": "Slow & Co", "mosec": "mosec", "ferry": "ferry", "limit": "limit: echo"},
            "about": {"slow": {"version": "1.0", "about": "tuned"}},
            "scripts": scripts or {},
            "workloads": [{**workload, "peers": peers}],
        }
    )


def test_requests_that_the_generator_held_back_are_told() -> None:
    limited = {**peer(200.0), "own": {0: run(140.0, held_back=25)}, "open": {0: run(50.0)}}
    (line,) = [each for each in page(ferry=limited).splitlines() if each.startswith("| ferry | 50 ")]
    assert line.endswith("| 0.0 % | 140 | 1.00 | 2.00 | 0.0 %; 25.0% waited for a connection | 0.10 |")


def test_the_fastest_stands_first_with_medians_spread_and_ratio() -> None:
    text = page(slow=peer(100.0, 50.0), ferry=peer(200.0, 150.0))
    rows = [line for line in text.splitlines() if line.startswith(("| ferry", "| Slow"))]
    assert rows[0].startswith("| ferry | 175 (150-200) |  |")
    assert rows[1].startswith("| Slow & Co | 75 (50-100) | 2.50x (2.00-3.00) | 1.00 (1.00-1.00) |")
    assert rows[2] == "| Slow & Co | 1.0 | tuned |"


def test_a_peer_that_did_not_run_is_shown_with_the_reason() -> None:
    assert "| Slow & Co | **not run: no wheel** |" in page(ferry=peer(1.0), slow=peer(not_run="no wheel"))
    assert "| Slow & Co | **not run: died** |" in page(ferry=peer(1.0), slow=peer(5.0, not_run="died"))


def test_a_run_that_failed_is_told_although_others_did_not() -> None:
    text = page(ferry=peer(1.0), slow=peer(5.0, failures=["3 requests failed under load"]))
    assert "- Slow & Co failed in a run that is left out: 3 requests failed under load" in text
    assert "is left out" not in page(slow=peer(not_run="died", failures=["died"]))


def test_the_goals_come_first_and_each_part_says_what_was_measured() -> None:
    text = page(ferry=peer(130.0), mosec=peer(100.0))
    assert "| tiny MLP as JSON: Ferry / mosec | >= 1.3x | 1.30x (1.30-1.30) | met |" in text
    assert text.index("Goals") < text.index("closed loop |")
    assert "Ferry abc, today, load average before: 0.5" in text


def test_the_rounds_that_ran_are_told_not_those_that_were_planned() -> None:
    assert "2 rounds in turn of 5 s each; 64 connections" in page(ferry=peer(1.0, 2.0), mosec=peer(1.0))


def test_scripts_show_their_reports_or_why_there_are_none() -> None:
    scripts = {
        "memory": {"about": "RSS", "report": "steady\n", "not_run": "", "figures": {}, **MEASURED},
        "frontends": {"about": "two", "report": "", "not_run": "ended with 1", "figures": {}, **MEASURED},
    }
    text = page(scripts, ferry=peer(1.0))
    assert "```\nsteady\n```" in text
    assert "**not run: ended with 1**" in text


def test_without_ferry_there_are_no_ratios() -> None:
    assert "| Slow & Co | 10 |  |" in page(slow=peer(10.0))


def test_the_open_loop_has_its_own_page() -> None:
    assert "open loop | rate" not in page(ferry=peer(1.0))
    assert "| ferry | 50 | 1.00 | 2.00 | 1.0 % | 50 |" in page(ferry=peer(1.0, open_loop=True))
    slow = peer(1.0, open_loop=True) | {"open": {}}
    assert "| Slow & Co | beyond its reach |  |  |  | 50 |" in page(slow=slow)


def test_a_peer_that_was_faster_than_ferry_is_named() -> None:
    text = page(ferry=peer(50.0), mosec=peer(100.0))
    assert "| workload | mosec |" in text
    assert "| mlp: tiny | **0.50** |" in text
    assert "- mosec was faster than Ferry in mlp (tiny): Ferry had 0.50 times its requests/s (0.50-0.50)" in text
    assert "No peer was faster than Ferry in a closed loop." in page(ferry=peer(100.0), mosec=peer(50.0))


def test_limits_are_no_peers_in_the_table_at_a_glance() -> None:
    text = page(ferry=peer(50.0), limit=peer(100.0))
    assert "| mlp: tiny |" not in text
    assert "No peer has figures." in text


def test_goals_that_were_missed_are_listed_by_themselves() -> None:
    text = page(ferry=peer(50.0), mosec=peer(100.0))
    assert "Not met:\n\n- tiny MLP as JSON: Ferry / mosec: 0.500x, wanted >= 1.3x\n" in text
    assert "Every goal that was measured is met." in page(ferry=peer(200.0), mosec=peer(100.0))


def test_the_page_says_whether_the_open_loop_was_run() -> None:
    assert "The open loop was not run." in page(ferry=peer(1.0))
    assert "Poisson arrivals" in page(ferry=peer(1.0, open_loop=True))


def test_peers_that_a_workload_was_not_made_for_share_one_line() -> None:
    text = page(ferry=peer(1.0), slow=peer(not_run=NOT_MADE))
    assert "Not made for this workload: Slow & Co." in text
    assert "**not run" not in text


def test_wrk_reports_are_read_and_their_absence_is_an_error() -> None:
    line = (
        '{"requests": 10, "seconds": 2.0, "rate": 5.5, "failed": 1, "p50_ms": 1, "p90_ms": 1, "p99_ms": 1, "max_ms": 1}'
    )
    figures = read_report(f"Running 2s test\nRESULT {line}\n")
    assert figures.rate == 5.5
    assert figures.failed == 1
    with pytest.raises(RuntimeError, match="unable to connect"):
        read_report("unable to connect")
