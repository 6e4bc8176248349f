"""Which goals are met, from results as the benchmark writes them."""

import json
from typing import Any

import pytest

from bench.peers.descriptor import find_peers
from bench.support.goals import GOALS, HEAVY, all_met, goals_table, of_script, outcomes
from bench.support.scripts import SCRIPTS
from bench.support.workloads import WORKLOADS

TITLES = {name: peer.title for name, peer in find_peers().items()}


def peer(*rates: float, not_run: str = "") -> dict[str, Any]:
    return {
        "closed": {n: {"rate": rate, "p50_ms": 2.0, "p99_ms": 6.0} for n, rate in enumerate(rates)},
        "not_run": not_run,
    }


def results(workloads: dict[str, dict[str, Any]], **scripts: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "titles": TITLES,
        "workloads": [{"name": name, "peers": peers} for name, peers in workloads.items()],
        "scripts": {name: {"figures": figures} for name, figures in scripts.items()},
    }


def outcome(what: str, document: dict[str, Any]) -> tuple[float, bool] | None:
    found = next(each for each in outcomes(document) if what in each.goal.what)
    return (found.spread.median, bool(found.met)) if found.spread else None


def test_ratios_are_taken_within_a_round_and_their_median_decides() -> None:
    """Where the machine was half as fast, it was for both."""
    mlp = {"ferry": peer(130.0, 65.0, 10.0), "mosec": peer(100.0, 50.0, 100.0)}
    assert outcome("mosec", results({"mlp": mlp})) == (1.3, True)
    mlp = {"ferry": peer(129.0, 64.0, 1000.0), "mosec": peer(100.0, 50.0, 100.0)}
    assert outcome("mosec", results({"mlp": mlp})) == (1.29, False)


def test_results_read_from_a_file_give_the_same() -> None:
    """Rounds are numbers in memory and texts in JSON."""
    document = results({"mlp": {"ferry": peer(130.0, 65.0), "mosec": peer(100.0, 50.0)}})
    assert goals_table(json.loads(json.dumps(document))) == goals_table(document)


@pytest.mark.parametrize("theirs", [{}, {"mosec": peer(100.0, not_run="died")}, {"mosec": peer()}])
def test_what_did_not_run_to_the_end_is_not_measured(theirs: dict[str, Any]) -> None:
    assert outcome("mosec", results({"mlp": {"ferry": peer(130.0), **theirs}})) is None


def test_the_tail_may_be_five_times_the_median() -> None:
    assert outcome("p99 / p50", results({"mlp": {"ferry": peer(1.0)}})) == (3.0, True)


def test_the_best_peer_is_neither_a_limit_nor_a_loop_nor_ferry() -> None:
    carried = {
        "ferry": peer(300.0, 400.0),
        "ferry_v2": peer(250.0, 500.0),
        "asgi_echo": peer(900.0, 900.0),
        "tf_batching": peer(900.0, 900.0),
        "mosec": peer(50.0, 200.0),
        "pytriton": peer(100.0, 100.0),
    }
    assert outcome("best peer", results({"carry-json": carried})) == (2.75, False)


def test_heavy_models_stand_against_each_loop() -> None:
    first, second = HEAVY
    document = results(
        {
            first: {"ferry": peer(96.0), "bare_loop": peer(50.0)},
            second: {"ferry": peer(90.0), "bare_loop": peer(90.0)},
        },
        heavy_models={f"{first}_to_loops": [0.96], f"{second}_to_loops": [0.9]},
    )
    assert outcome(f"{first}: rows/s / as many bare loops", document) == (0.96, True)
    assert outcome(f"{second}: rows/s / as many bare loops", document) == (0.9, False)
    assert outcome("geometric mean", document) == (pytest.approx(1.92**0.5), True)


def test_scripts_bring_their_own_figures() -> None:
    document = results(
        {},
        hostile={"livez_p99_ms": [40.0, 70.0, 50.0]},
        memory={"growth_percent": [5.1]},
        frontends={"ratios": [1.1, 0.9]},
    )
    assert outcome("/livez p99", document) == (50.0, True)
    assert outcome("RSS growth", document) == (5.1, False)
    assert outcome("frontends", document) == (1.0, True)


def test_where_one_miss_is_one_too_many_the_worst_decides() -> None:
    overload = {"without_retry_after": [0.0, 0.0, 1.0], "rss_growth_percent": [1.0, 3.0, 5.1]}
    document = results({}, simulate={"real_differs_percent": [0.0, 16.0]}, overload=overload)
    assert outcome("simulator's", document) == (16.0, False)
    assert outcome("Retry-After", document) == (1.0, False)
    assert outcome("growth of memory", document) == (5.1, False)


def test_every_goal_has_a_row_and_says_where_nothing_was_measured() -> None:
    rows = goals_table(results({}))[2:]
    assert len(rows) == len(GOALS)
    assert all(row.endswith("| not measured |") for row in rows)


def test_goals_name_parts_that_exist() -> None:
    assert {"mlp", "carry-json", *HEAVY} <= set(WORKLOADS)
    assert {"mosec", "pytriton", "litserve", "asgi_echo", "ferry_loop", "bare_loop", "tf_batching"} <= set(TITLES)
    assert all(WORKLOADS[name].rounds >= 5 for name in ("mlp", "carry-json", *HEAVY))


class Asked(dict[str, Any]):
    """Figures of no script. Remembers whose were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default


def test_make_bench_runs_each_script_that_a_goal_names() -> None:
    scripts = Asked()
    goals_table(results({}) | {"scripts": scripts})
    assert scripts.names == set(SCRIPTS)


def test_one_scripts_figures_stand_alone_and_what_was_not_measured_is_not_asked_for() -> None:
    document = of_script("memory", {"growth_percent": [4.0]})
    assert all_met(document)
    assert len(goals_table(document, measured_only=True)) == 3
    assert not all_met(of_script("memory", {"growth_percent": [6.0]}))
