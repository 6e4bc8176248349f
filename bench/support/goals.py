"""Ferry's goals: each with what was measured, met or not. Pure.

`results` is the document that bench/run.py writes: workloads with their peers' runs by round, and the scripts' figures.
A ratio is taken within a round; the median of the rounds decides. For what may never happen the worst round decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from bench.support.figures import Spread

Results = Mapping[str, Any]
ByRound = Mapping[Any, float]

HEAVY = ("image-binary", "transformer")


@dataclass(frozen=True, slots=True)
class Goal:
    """`values` finds the rounds' figures in the results, none where they were not measured."""

    what: str
    least: float | None
    most: float | None
    values: Callable[[Results], Sequence[float]]
    unit: str = ""

    @property
    def wanted(self) -> str:
        sign, bound = (">=", self.least) if self.least is not None else ("<=", self.most)
        return f"{sign} {bound:g}{self.unit}"

    def met_by(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`spread` and `met` are None where nothing was measured."""

    goal: Goal
    spread: Spread | None
    met: bool | None


def outcomes(results: Results, goals: Sequence[Goal] | None = None) -> list[Outcome]:
    """Of the benchmark's goals, or of others."""
    return [_outcome(goal, results) for goal in (GOALS if goals is None else goals)]


def of_script(name: str, figures: Mapping[str, Sequence[float]]) -> Results:
    """Results that hold what one script measured, and nothing else."""
    return {"titles": {}, "workloads": [], "scripts": {name: {"figures": figures}}}


def all_met(results: Results) -> bool:
    """What was not measured is not asked for."""
    return all(outcome.met is not False for outcome in outcomes(results))


def goals_table(results: Results, goals: Sequence[Goal] | None = None, *, measured_only: bool = False) -> list[str]:
    """Lines of Markdown; of the benchmark's goals, or of others."""
    lines = ["| goal | wanted | measured: median (least-most) | |", "|---|---|---|---|"]
    for outcome in outcomes(results, goals):
        if measured_only and outcome.spread is None:
            continue
        goal, spread = outcome.goal, outcome.spread
        measured, verdict = "", "not measured"
        if spread is not None:
            measured = f"{spread.median:.2f}{goal.unit} ({spread.least:.2f}-{spread.most:.2f})"
            verdict = "met" if outcome.met else "**not met**"
        lines.append(f"| {goal.what} | {goal.wanted} | {measured} | {verdict} |")
    return lines


def _outcome(goal: Goal, results: Results) -> Outcome:
    values = goal.values(results)
    if not values:
        return Outcome(goal, None, None)
    spread = Spread.of(values)
    return Outcome(goal, spread, goal.met_by(spread.median))


# --- where the figures stand ---


def closed(results: Results, workload: str, peer: str, key: str = "rate") -> ByRound:
    """A figure of the closed loop by round; empty where the peer did not run to the end."""
    for each in results["workloads"]:
        if each["name"] == workload:
            figures = each["peers"].get(peer, {})
            return {} if figures.get("not_run") else {n: run[key] for n, run in figures.get("closed", {}).items()}
    return {}


def ratios(mine: ByRound, theirs: ByRound) -> dict[Any, float]:
    return {n: mine[n] / theirs[n] for n in mine if theirs.get(n, 0) > 0}


def ferry_to(workload: str, peer: str) -> Callable[[Results], Sequence[float]]:
    return lambda results: [*ratios(closed(results, workload, "ferry"), closed(results, workload, peer)).values()]


def traced_to_equal(results: Results) -> Sequence[float]:
    """Requests/s of the tiny MLP with trace headers of each request's own, by those with equal heads, by round."""
    return [*ratios(closed(results, "mlp-traced", "ferry"), closed(results, "mlp", "ferry")).values()]


def tail(results: Results) -> Sequence[float]:
    """p99 by p50 under the tiny MLP's closed loop."""
    p99, p50 = (closed(results, "mlp", "ferry", key) for key in ("p99_ms", "p50_ms"))
    return [*ratios(p99, p50).values()]


def ferry_to_best_peer(workload: str) -> Callable[[Results], Sequence[float]]:
    """The best of each round, of Ferry's protocols and of the peers; limits and loops in process are no peers."""

    def values(results: Results) -> Sequence[float]:
        peers = [name for name, title in results["titles"].items() if is_peer(name, title)]
        return [*ratios(_best(results, workload, ("ferry", "ferry_v2")), _best(results, workload, peers)).values()]

    return values


def _best(results: Results, workload: str, peers: Iterable[str]) -> dict[Any, float]:
    best: dict[Any, float] = {}
    for name in peers:
        for n, rate in closed(results, workload, name).items():
            best[n] = max(rate, best.get(n, 0.0))
    return best


def is_peer(name: str, title: str) -> bool:
    """Is it another server? Limits, loops in process and Ferry itself are none."""
    return not (name.startswith("ferry") or name == "tf_batching" or title.startswith("limit"))


def geometric_mean(workloads: Sequence[str], peer: str) -> Callable[[Results], Sequence[float]]:
    """Over the workloads, of the rounds that all of them have."""

    def values(results: Results) -> Sequence[float]:
        each = [ratios(closed(results, name, "ferry"), closed(results, name, peer)) for name in workloads]
        common = set.intersection(*(set(one) for one in each))
        return [prod(one[n] for one in each) ** (1 / len(each)) for n in sorted(common)]

    return values


def script(name: str, key: str) -> Callable[[Results], Sequence[float]]:
    """Figures that one of the scripts wrote."""
    return lambda results: results["scripts"].get(name, {}).get("figures", {}).get(key, [])


def worst(values: Callable[[Results], Sequence[float]]) -> Callable[[Results], Sequence[float]]:
    """The highest figure alone."""
    return lambda results: sorted(values(results))[-1:]


GOALS = (
    Goal("tiny MLP as JSON: Ferry / mosec", 1.3, None, ferry_to("mlp", "mosec"), "x"),
    Goal("tiny MLP as JSON: Ferry / Triton (PyTriton)", 4, None, ferry_to("mlp", "pytriton"), "x"),
    Goal("tiny MLP as JSON: Ferry / LitServe", 15, None, ferry_to("mlp", "litserve"), "x"),
    Goal("tiny MLP as JSON: Ferry / plain ASGI echo", 0.6, None, ferry_to("mlp", "asgi_echo"), "x"),
    Goal(
        "the same with trace headers of each request's own: Ferry / with equal heads", 0.85, None, traced_to_equal, "x"
    ),
    Goal("the same: Ferry / mosec", 3, None, ferry_to("mlp-traced", "mosec"), "x"),
    Goal("the same: Ferry / plain ASGI echo", 0.95, None, ferry_to("mlp-traced", "asgi_echo"), "x"),
    Goal("three models in turn, traced / one model", 0.8, None, script("several_models", "three_to_one"), "x"),
    Goal("tiny MLP as JSON: p99 / p50, closed loop", None, 5, tail, "x"),
    *(
        Goal(
            f"{name}: rows/s / as many bare loops as Ferry has calls, load from a core of its own",
            0.95,
            None,
            script("heavy_models", f"{name}_to_loops"),
            "x",
        )
        for name in HEAVY
    ),
    Goal(
        f"{' and '.join(HEAVY)}: rows/s / bare loop of the plain SavedModel, geometric mean",
        1.15,
        None,
        geometric_mean(HEAVY, "bare_loop"),
        "x",
    ),
    Goal(
        "96x96x3 image as JSON at next to no model cost: Ferry / best peer",
        3,
        None,
        ferry_to_best_peer("carry-json"),
        "x",
    ),
    Goal(
        "RSS growth from the first 10^5 to the last of 10^6 requests", None, 5, script("memory", "growth_percent"), " %"
    ),
    Goal("keys, TLS, metrics and traces on / off", 0.9, None, script("protection", "all_kept"), "x"),
    Goal("2 frontends + engine / one process", 1.0, None, script("frontends", "ratios"), "x"),
    Goal("overload: goodput at 2x and 10x / its peak", 0.9, None, script("overload", "goodput_kept"), "x"),
    Goal("overload: p99 of the accepted / deadline", None, 1, script("overload", "p99_to_deadline"), "x"),
    Goal("overload: p99 until a rejection (503)", None, 50, script("overload", "rejected_p99_ms"), " ms"),
    Goal("overload: rejections without Retry-After", None, 0, worst(script("overload", "without_retry_after"))),
    Goal("overload: computed though their time was over", None, 0, worst(script("overload", "expired_executions"))),
    Goal("overload: growth of memory from 1x to 10x", None, 5, worst(script("overload", "rss_growth_percent")), " %"),
    Goal("under attack: honest clients' goodput / alone", 0.9, None, script("hostile", "goodput_kept"), "x"),
    Goal("under attack: /livez p99", None, 50, script("hostile", "livez_p99_ms"), " ms"),
    Goal("under attack: /livez at worst", None, 250, worst(script("hostile", "livez_worst_ms")), " ms"),
    Goal("under attack: growth of RSS / by the formula", None, 1, worst(script("hostile", "rss_to_bound")), "x"),
    Goal("under attack: wrong, lost and forbidden answers", None, 0, worst(script("hostile", "faults"))),
    Goal("floods of one stranger: slowest /livez", None, 100, worst(script("floods", "livez_ms")), " ms"),
    Goal("floods of one stranger: slowest small predict", None, 250, worst(script("floods", "predict_ms")), " ms"),
    Goal("floods of one stranger: growth of memory", None, 100, worst(script("floods", "grown_mib")), " MiB"),
    Goal("floods of one stranger: lost answers of others", None, 0, worst(script("floods", "failures"))),
    Goal(
        "answers/s of a real server, from the simulator's: difference at any load",
        None,
        15,
        worst(script("simulate", "real_differs_percent")),
        " %",
    ),
)
