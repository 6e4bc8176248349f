"""Ferry's batching beside other servers' in simulated time.

    python -m bench.simulate [--seeds 1,2,3,4] [--json FILE] [--markdown FILE]
    python -m bench.simulate --real [--json FILE]       beside a real run of Ferry, see bench/simulator/real_run.py

The very batcher, queue and policies that serve, under a clock that jumps, with calls of given costs. Each seed is
another draw of all arrivals. For the other servers' policies the table shows the setting of a grid that serves an
arrival pattern best over all seeds, for Ferry always the defaults; ratios are taken within a seed.
bench/simulator/bound.py defines the bound: the optimum itself if all lengths are equal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import numpy as np

from app.batching.policy import SelfTuning
from app.core.batch_sizes import BatchSizes
from bench.simulator import real_run
from bench.simulator.arrivals import PATTERNS
from bench.simulator.bound import most_in_time
from bench.simulator.peer_policies import PEERS, Setting, settings_of
from bench.simulator.simulation import Arrival, CallCosts, LinearCosts, Outcome, simulate
from bench.support.figures import Spread, save

SIZES = BatchSizes.powers_of_two(64)
DEADLINE_S = 0.1

#: Of what a device that computes nothing but full batches of 64 rows could do.
LOADS = (0.5, 0.7, 0.9, 1.2)

#: All arrivals of a seed, in order of time.
Stream = Sequence[Arrival]
Row = dict[str, Any]


def compare(costs: LinearCosts, seconds: float, seeds: Sequence[int], quick: bool) -> list[Row]:
    """One entry for each pattern and load: by who, setting and outcomes by seed; and the bound by seed."""
    capacity = SIZES.largest / costs.call_s(SIZES.largest)
    rows = []
    for name, load in itertools.product(PATTERNS, LOADS[2:3] if quick else LOADS):
        streams = [PATTERNS[name](np.random.default_rng(seed), load * capacity, seconds) for seed in seeds]
        found = {"ferry": ("its defaults", ferry(streams, costs))}
        found |= {peer: best_of(peer, streams, costs, quick) for peer in PEERS}
        rows.append(
            {
                "pattern": name,
                "load": load,
                "arrivals_per_s": [len(each) / seconds for each in streams],
                "bound": [most_in_time(each, costs, DEADLINE_S, SIZES.allowed) / each[-1].at_s for each in streams],
                "who": {
                    who: {"setting": setting, "by_seed": [asdict(each) for each in outcomes]}
                    for who, (setting, outcomes) in found.items()
                },
            }
        )
    return rows


def ferry(streams: Sequence[Stream], costs: CallCosts) -> list[Outcome]:
    return [
        simulate(each, SelfTuning(), costs=costs, deadline_s=DEADLINE_S, admission=True, sizes=SIZES)
        for each in streams
    ]


def best_of(peer: str, streams: Sequence[Stream], costs: CallCosts, quick: bool) -> tuple[str, list[Outcome]]:
    """The setting with the most goodput over all streams."""

    def outcome(stream: Stream, setting: Setting) -> Outcome:
        policy, most = setting.policy(), setting.queue_rows
        return simulate(stream, policy, costs=costs, deadline_s=DEADLINE_S, max_queue_rows=most, sizes=SIZES)

    runs = [(setting.text, [outcome(stream, setting) for stream in streams]) for setting in settings_of(peer, quick)]
    return max(runs, key=lambda run: sum(each.goodput for each in run[1]))


# --- tables ---


def figures(row: Row, who: str, key: str) -> list[float]:
    """By seed."""
    return [each[key] for each in row["who"][who]["by_seed"]]


def beside(row: Row, peers: Sequence[str]) -> Spread:
    """Ferry's goodput by that of the best of these peers, each seed's by itself."""
    theirs = zip(*(figures(row, peer, "goodput") for peer in peers), strict=True)
    return Spread.of([mine / max(each) for mine, each in zip(figures(row, "ferry", "goodput"), theirs, strict=True)])


def beside_the_bound(row: Row) -> Spread:
    return Spread.of([mine / bound for mine, bound in zip(figures(row, "ferry", "goodput"), row["bound"], strict=True)])


def markdown(rows: Sequence[Row], costs: LinearCosts, seeds: Sequence[int]) -> str:
    lines = [
        "# Batching policies in simulated time",
        "",
        f"A call takes {1e3 * costs.fixed_s:g} ms + {1e3 * costs.row_s:g} ms a row (times its length), padded to "
        f"powers of two up to {SIZES.largest}; deadline {1e3 * DEADLINE_S:g} ms. Goodput: answers in time per second. "
        f"Medians over seeds {', '.join(map(str, seeds))}; in brackets the least ratio of a seed.",
        "",
        "| arrivals | load | per s | bound | who | goodput | Ferry is | p99 ms | device use | setting |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        per_s, bound = (median(row[key]) for key in ("arrivals_per_s", "bound"))
        head = f"| {row['pattern']} | {row['load']:g} | {per_s:.0f} | {bound:.0f} |"
        for who, each in row["who"].items():
            goodput, p99_s, use = (median(figures(row, who, key)) for key in ("goodput", "p99_s", "use"))
            ratio = "" if who == "ferry" else _ratio_text(beside(row, [who]))
            shown = f"{who} | {goodput:.0f} | {ratio} | {1e3 * p99_s:.0f} | {100 * use:.0f} %"
            lines.append(f"{head} {shown} | {each['setting']} |")
            head = "| | | | |"
    return "\n".join([*lines, "", *summary(rows)])


def summary(rows: Sequence[Row]) -> list[str]:
    """Ferry beside the best peer, and beside the bound, of each row and seed."""
    lines = ["| arrivals | load | Ferry, times the best peer: median (least) | times the bound |", "|---|---|---|---|"]
    for row in rows:
        of_peers, of_bound = (_ratio_text(each) for each in (beside(row, PEERS), beside_the_bound(row)))
        lines.append(f"| {row['pattern']} | {row['load']:g} | {of_peers} | {of_bound} |")
    return lines


def _ratio_text(ratio: Spread) -> str:
    return f"{ratio.median:.3f} ({ratio.least:.3f})"


def beside_a_real_run(quick: bool, file: Path | None) -> NoReturn:
    """Exits with 1 where both differ too much."""
    pairs = real_run.compare(rounds=1 if quick else 2, seconds=1.0 if quick else 5.0)
    print("\n".join(real_run.report(pairs)))
    differences = real_run.differences(pairs)
    if file:
        file.write_text(json.dumps({"real_differs_percent": differences}))
    sys.exit(max(differences) > real_run.MOST_PERCENT)


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="how far a real run is from the simulated one, a minute")
    parser.add_argument("--quick", action="store_true", help="one load, one setting of each peer, half a second")
    parser.add_argument("--seeds", type=numbers, default=[1], help="of the arrivals, by commas; 3 minutes each")
    parser.add_argument("--fixed-ms", type=float, default=8.0, help="what a call costs beside its rows")
    parser.add_argument("--row-ms", type=float, default=0.8, help="what a row costs")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    parser.add_argument("--markdown", type=Path, help="write the table here, too")
    options = parser.parse_args()
    if options.real:
        beside_a_real_run(options.quick, options.json)
    costs = LinearCosts(options.fixed_ms / 1e3, options.row_ms / 1e3)
    rows = compare(costs, 0.5 if options.quick else 5.0, options.seeds, options.quick)
    table = markdown(rows, costs, options.seeds)
    print(table)
    save(options.json, rows)
    if options.markdown:
        options.markdown.write_text(table + "\n")


if __name__ == "__main__":
    main()
