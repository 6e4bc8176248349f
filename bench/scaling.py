"""Does `ferry plan` say the truth, and what do load balancers do to it? Many replicas in simulated time.

    python -m bench.scaling [--quick] [--curve FILE] [--seeds 1,2,3] [--json FILE] [--markdown FILE]

Each replica is the very batching core that serves, under a clock that jumps (bench/simulator/replicas.py); calls cost
what the curve says. The first table compares what was planned with what was played, for several shapes of traffic and
numbers of calls at the same time; replicas are chosen at random, as the plan assumes. The second one is the same load
behind each balancer. It ends with 1 if a plan is further from the truth than the bounds say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from app.planning.batch_queue import QueueFigures
from app.planning.measured_curve import MeasuredCurve
from app.planning.replica_plan import Demand, ReplicaPlan, plan
from bench.simulator.arrivals import PATTERNS
from bench.simulator.balancers import BALANCERS
from bench.simulator.replicas import ReplicasOutcome, simulate_replicas
from bench.support.figures import save

#: Bounds of the planned p99, as a multiple of the simulated one, and of the busy share. Chosen: a plan should not
#: promise what does not come true, and not cost much more than it has to.
P99_RATIOS, BUSY_RATIOS = (0.85, 1.3), (0.9, 1.1)

#: By pattern of arrivals: how many times the mean rate comes in its bursts.
BURSTS = {"poisson": 1.0, "bursty": 1.8}

#: Seconds that are played: some thirty bursts.
SECONDS = {"poisson": 10.0, "bursty": 20.0}

TARGETS_MS = (50.0, 100.0, 200.0)

#: Requests a second of the demand.
RATE = 3000.0

#: A device whose calls cost 8 ms and 0.8 ms a row, and vary by a few percent: a transformer on a CPU costs about that.
CURVE = MeasuredCurve(
    "cpu",
    "example",
    "serving_default",
    {rows: 0.008 + 0.0008 * rows for rows in (1, 2, 4, 8, 16, 32, 64)},
    spread=(0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One plan: of a number of replicas behind a balancer, and what came of it, by seed."""

    pattern: str
    slots: int
    target_ms: float
    balancer: str
    replicas: int
    planned: QueueFigures
    by_seed: Sequence[ReplicasOutcome]

    def played(self, figure: str) -> float:
        return median(getattr(each, figure) for each in self.by_seed)

    @property
    def p99_ratio(self) -> float:
        """Planned, as a multiple of simulated."""
        return self.planned.p99_s / self.played("p99_s")

    @property
    def busy_ratio(self) -> float:
        return self.planned.busy / self.played("busy")

    @property
    def good(self) -> bool:
        (least_p99, most_p99), (least_busy, most_busy) = P99_RATIOS, BUSY_RATIOS
        return least_p99 <= self.p99_ratio <= most_p99 and least_busy <= self.busy_ratio <= most_busy


def planned_and_played(curve: MeasuredCurve, quick: bool, seeds: Sequence[int]) -> Iterator[Compared]:
    """At the highest rate that the plan allows (no spare node), and, where it has three, with spare nodes."""
    for slots in (1, 2):
        for pattern in BURSTS:
            for target_ms in TARGETS_MS[1:2] if quick else TARGETS_MS:
                for spare in (0, 3):
                    planned = planned_for(replace(curve, slots=slots), pattern, target_ms, spare)
                    yield played(planned, pattern, "random", quick, seeds)


def behind_balancers(curve: MeasuredCurve, quick: bool, seeds: Sequence[int]) -> Iterator[Compared]:
    for pattern in BURSTS:
        planned = planned_for(curve, pattern, TARGETS_MS[1], 0)
        for balancer in BALANCERS:
            yield played(planned, pattern, balancer, quick, seeds)


def planned_for(curve: MeasuredCurve, pattern: str, target_ms: float, spare: int) -> ReplicaPlan:
    return plan(curve, Demand(RATE, target_ms / 1e3, burst=BURSTS[pattern], spare_nodes=spare))


def played(planned: ReplicaPlan, pattern: str, balancer: str, quick: bool, seeds: Sequence[int]) -> Compared:
    seconds = 3.0 if quick else SECONDS[pattern]

    def outcome(seed: int) -> ReplicasOutcome:
        random = np.random.default_rng(seed)
        arrivals = PATTERNS[pattern](random, RATE, seconds)
        choose = BALANCERS[balancer](random, planned.replicas)
        return simulate_replicas(arrivals, planned.curve, planned.replicas, choose, planned.demand.p99_s)

    outcomes = [outcome(seed) for seed in seeds]
    target_ms = 1e3 * planned.demand.p99_s
    return Compared(pattern, planned.curve.slots, target_ms, balancer, planned.replicas, planned.usual, outcomes)


# --- tables ---


def markdown(compared: Sequence[Compared], balanced: Sequence[Compared], curve: MeasuredCurve) -> str:
    seconds = ", ".join(f"{1e3 * each:.3g}" for each in curve.costs.seconds)
    lines = [
        "# Plans, and what came of them in simulated time",
        "",
        f"{RATE:g} requests a second of one row. Calls of {', '.join(map(str, curve.costs.sizes))} rows take {seconds} "
        f"ms. Bursts: {BURSTS['bursty']:g} times the rate for 0.3 s on average. Medians over "
        f"{len(compared[0].by_seed)} seeds; a ratio is planned / simulated.",
        "",
        "| arrivals | calls at once | target ms | replicas | p99 ms: planned | simulated | ratio | busy %: planned |"
        " simulated | ratio | rows a call: planned | simulated |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.pattern} | {each.slots} | {each.target_ms:g} | {each.replicas} | {_pair(each, 'p99_s', 1e3)} "
        f"| {each.p99_ratio:.3f} | {_pair(each, 'busy', 100)} | {each.busy_ratio:.3f} "
        f"| {each.planned.batch_rows:.1f} | {each.played('mean_batch'):.1f} |"
        for each in compared
    ]
    lines += [
        "",
        f"Behind balancers, one call at a time, target {TARGETS_MS[1]:g} ms. Share: what the busiest replica got, as a "
        "multiple of an equal part.",
        "",
        "| arrivals | replicas | balancer | p99 ms | times random's | worst seed, ms | share | busy % | rows a call |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    at_random = {each.pattern: each.played("p99_s") for each in balanced if each.balancer == "random"}
    lines += [
        f"| {each.pattern} | {each.replicas} | {each.balancer} | {1e3 * each.played('p99_s'):.0f} "
        f"| {each.played('p99_s') / at_random[each.pattern]:.2f} "
        f"| {1e3 * max(outcome.p99_s for outcome in each.by_seed):.0f} | {each.played('most_share'):.2f} "
        f"| {100 * each.played('busy'):.1f} | {each.played('mean_batch'):.1f} |"
        for each in balanced
    ]
    return "\n".join(lines)


def _pair(each: Compared, figure: str, times: float) -> str:
    return f"{times * getattr(each.planned, figure):.1f} | {times * each.played(figure):.1f}"


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one target, three seconds")
    parser.add_argument("--curve", type=Path, help="a file of `ferry plan --save-curve`, else 8 ms + 0.8 ms a row")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], help="of the arrivals, by commas")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    parser.add_argument("--markdown", type=Path, help="write the tables here, too")
    options = parser.parse_args()
    curve = MeasuredCurve.read(options.curve) if options.curve else CURVE
    compared = list(_told(planned_and_played(curve, options.quick, options.seeds)))
    balanced = list(_told(behind_balancers(curve, options.quick, options.seeds)))
    tables = markdown(compared, balanced, curve)
    print(tables)
    save(options.json, [asdict(each) for each in (*compared, *balanced)])
    if options.markdown:
        options.markdown.write_text(tables + "\n")
    sys.exit(0 if all(each.good for each in compared) else 1)


def _told(each_compared: Iterator[Compared]) -> Iterator[Compared]:
    for each in each_compared:
        print(f"{each.pattern}, {each.balancer}: p99 planned / simulated {each.p99_ratio:.3f}", file=sys.stderr)
        yield each


if __name__ == "__main__":
    main()
