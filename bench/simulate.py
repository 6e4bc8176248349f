"""Ferry's batching beside other servers' in simulated time: python -m bench.simulate [--json FILE] [--plot PNG]

With --real instead beside a real run of Ferry, see bench/real_run.py: python -m bench.simulate --real [--json FILE]

The very batcher, queue and policies that serve, under a clock that jumps, with calls of given costs. The others'
policies stand at whichever setting of a grid serves an arrival pattern best, Ferry's at its defaults for all.

The bound knows the future. It is a relaxation: a row takes no longer than its share of the cheapest call per row, rows
are computed one by one, and what is in time is then the most that any order can have (Kise, Ibaraki and Mine, 1978:
drop of the busy stretch whatever shortens it most). No batching can do better, and none can do as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from app.batching.padding import BatchSizes
from app.batching.policy import BatchingPolicy, SelfTuning
from bench import real_run
from bench.peer_policies import AdditiveIncrease, FixedTimeout, PreferredSizes
from bench.simulation import Arrival, CallCosts, Costs, Outcome, simulate

SIZES = BatchSizes.powers_of_two(64)
DEADLINE_S = 0.1

#: Of what a device that computes nothing but full batches of 64 rows could do.
LOADS = (0.5, 0.7, 0.9, 1.2)

#: Lengths and how often they occur: 1 on average.
LENGTHS, SHARES = (0.25, 0.5, 1.0, 2.0, 4.0), (0.2, 0.3, 0.25, 0.15, 0.1)

Pattern = Callable[[np.random.Generator, float, float], list[Arrival]]


def poisson(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    return [Arrival(at_s) for at_s in _poisson_times(random, rate, 0.0, seconds)]


def bursty(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    """Poisson whose rate is 1.8 or 0.2 times the mean, each for 0.3 s on average."""
    arrivals: list[Arrival] = []
    begin_s = 0.0
    for factor in itertools.cycle((1.8, 0.2)):
        end_s = min(seconds, begin_s + random.exponential(0.3))
        arrivals += [Arrival(at_s) for at_s in _poisson_times(random, factor * rate, begin_s, end_s)]
        if end_s >= seconds:
            return arrivals
        begin_s = end_s
    raise AssertionError("a cycle does not end")


def mixed(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    """Poisson, and a row costs by its length."""
    times = list(_poisson_times(random, rate, 0.0, seconds))
    lengths = random.choice(LENGTHS, len(times), p=SHARES).tolist()
    return [Arrival(at_s, length) for at_s, length in zip(times, lengths, strict=True)]


PATTERNS: dict[str, Pattern] = {"poisson": poisson, "bursty": bursty, "mixed lengths": mixed}


def _poisson_times(random: np.random.Generator, rate: float, begin_s: float, end_s: float) -> Iterator[float]:
    at_s = begin_s + random.exponential(1 / rate)
    while at_s < end_s:
        yield float(at_s)
        at_s += random.exponential(1 / rate)


# --- the peers, each at its best setting ---


def settings_of(peer: str, quick: bool) -> Iterator[tuple[str, BatchingPolicy, int]]:
    """What each setting is, the policy, and the rows that may wait."""
    for rows, queue_rows in itertools.product((32,) if quick else (16, 32, 64), (64,) if quick else (64, 8192)):
        for delay_ms in (0,) if quick else (0, 10):
            if peer == "fixed timeout":
                yield f"{rows} rows, {delay_ms} ms, queue {queue_rows}", FixedTimeout(rows, delay_ms / 1e3), queue_rows
            elif peer == "preferred sizes":
                policy = PreferredSizes((rows // 4, rows // 2, rows), delay_ms / 1e3)
                yield f"up to {rows} rows, {delay_ms} ms, queue {queue_rows}", policy, queue_rows
            else:
                target_ms, step = 1.25 * rows, 4 if delay_ms else 1
                policy_of_calls = AdditiveIncrease(target_ms / 1e3, step)
                yield f"target {target_ms:g} ms, step {step}, queue {queue_rows}", policy_of_calls, queue_rows


PEERS = ("fixed timeout", "preferred sizes", "AIMD")


def best_of(peer: str, arrivals: Sequence[Arrival], costs: CallCosts, quick: bool) -> tuple[str, Outcome]:
    runs = [
        (setting, simulate(arrivals, policy, costs=costs, deadline_s=DEADLINE_S, max_queue_rows=rows, sizes=SIZES))
        for setting, policy, rows in settings_of(peer, quick)
    ]
    return max(runs, key=lambda run: run[1].goodput)


# --- the bound ---


def most_in_time(arrivals: Sequence[Arrival], costs: CallCosts, deadline_s: float = DEADLINE_S) -> int:
    """The bound: how many requests could be answered in time, see above."""
    row_s = {each.length: min(costs.call_s(size, each.length) / size for size in SIZES.allowed) for each in arrivals}
    longest_s = max(row_s.values())
    stretch: list[tuple[float, float]] = []  # arrival and seconds of those computed since the device was last idle
    kept, end_s = 0, 0.0
    for arrival in arrivals:
        if arrival.at_s >= end_s:
            stretch, end_s = [], arrival.at_s
        own_s = row_s[arrival.length]
        stretch.append((arrival.at_s, own_s))
        end_s += own_s
        kept += 1
        if end_s > arrival.at_s + deadline_s:
            kept -= 1
            del stretch[_whose_loss_gains_most(stretch, end_s) if own_s < longest_s else -1]
            end_s = _end_of(stretch, arrival.at_s)
    return kept


def _whose_loss_gains_most(stretch: Sequence[tuple[float, float]], end_s: float) -> int:
    best, most_s, slack_s, start_s = len(stretch) - 1, 0.0, float("inf"), end_s
    for place in range(len(stretch) - 1, -1, -1):
        at_s, own_s = stretch[place]
        start_s -= own_s
        if min(own_s, slack_s) > most_s:
            best, most_s = place, min(own_s, slack_s)
        slack_s = min(slack_s, start_s - at_s)
        if slack_s <= most_s:
            break
    return best


def _end_of(stretch: Sequence[tuple[float, float]], now_s: float) -> float:
    end_s = stretch[0][0] if stretch else now_s
    for at_s, own_s in stretch:
        end_s = max(end_s, at_s) + own_s
    return end_s


# --- the comparison ---


def compare(costs: Costs, seconds: float, quick: bool) -> list[dict[str, Any]]:
    """One entry for each pattern and load: outcomes by who, their settings, and the bound."""
    capacity = SIZES.largest / costs.call_s(SIZES.largest)
    rows = []
    for name, load in itertools.product(PATTERNS, LOADS[2:3] if quick else LOADS):
        arrivals = PATTERNS[name](np.random.default_rng(1), load * capacity, seconds)
        ferry = simulate(arrivals, SelfTuning(), costs=costs, deadline_s=DEADLINE_S, admission=True, sizes=SIZES)
        found = {"ferry": ("its defaults", ferry), **{peer: best_of(peer, arrivals, costs, quick) for peer in PEERS}}
        rows.append(
            {
                "pattern": name,
                "load": load,
                "arrivals_per_s": len(arrivals) / seconds,
                "bound": most_in_time(arrivals, costs) / arrivals[-1].at_s,
                "who": {who: {"setting": setting, **asdict(outcome)} for who, (setting, outcome) in found.items()},
            }
        )
    return rows


def markdown(rows: Sequence[dict[str, Any]], costs: Costs) -> str:
    lines = [
        "# Batching policies in simulated time",
        "",
        f"A call takes {1e3 * costs.fixed_s:g} ms + {1e3 * costs.row_s:g} ms a row (times its length), padded to "
        f"powers of two up to {SIZES.largest}; deadline {1e3 * DEADLINE_S:g} ms. Goodput: answers in time per second.",
        "",
        "| arrivals | load | per s | bound | who | goodput | p99 ms | device use | setting |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['pattern']} | {row['load']:g} | {row['arrivals_per_s']:.0f} | {row['bound']:.0f} |"
        for who, each in row["who"].items():
            figures = f"{each['goodput']:.0f} | {1e3 * each['p99_s']:.0f} | {100 * each['use']:.0f} %"
            lines.append(f"{head} {who} | {figures} | {each['setting']} |")
            head = "| | | | |"
    return "\n".join(lines)


def plot(rows: Sequence[dict[str, Any]], picture: Path) -> None:
    """Goodput, p99 and device use by pattern and load. Needs requirements/bench.txt."""
    import matplotlib as mpl  # noqa: PLC0415 - in the benchmark's environment only

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after the setting above

    figure, panels = pyplot.subplots(3, 1, figsize=(11, 10), sharex=True)
    titles = {"goodput": "goodput, answers in time per s", "p99_s": "p99 of what was accepted, s", "use": "device use"}
    who = list(rows[0]["who"])
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for place, name in enumerate(who):
            heights = [row["who"][name][key] for row in rows]
            places = [index + place / (len(who) + 1) for index in range(len(rows))]
            axes.bar(places, heights, 1 / (len(who) + 1), label=name)
        axes.set_title(title, fontsize=9)
    for index, row in enumerate(rows):
        panels[0].hlines(row["bound"], index - 0.1, index + 0.9, color="black", label="bound" if not index else None)
    panels[0].legend(fontsize=7)
    panels[-1].set_xticks(range(len(rows)), [f"{row['pattern']}\n{row['load']:g}" for row in rows], fontsize=7)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def beside_a_real_run(quick: bool, file: Path | None) -> NoReturn:
    """Exits with 1 where both differ too much."""
    pairs = real_run.compare(rounds=1 if quick else 2, seconds=1.0 if quick else 5.0)
    print("\n".join(real_run.report(pairs)))
    differences = real_run.differences(pairs)
    if file:
        file.write_text(json.dumps({"real_differs_percent": differences}))
    sys.exit(max(differences) > real_run.MOST_PERCENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="how far a real run is from the simulated one, a minute")
    parser.add_argument("--quick", action="store_true", help="one load, one setting of each peer, half a second")
    parser.add_argument("--fixed-ms", type=float, default=8.0, help="what a call costs beside its rows")
    parser.add_argument("--row-ms", type=float, default=0.8, help="what a row costs")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    parser.add_argument("--markdown", type=Path, help="write the table here, too")
    parser.add_argument("--plot", type=Path, help="draw them here")
    options = parser.parse_args()
    if options.real:
        beside_a_real_run(options.quick, options.json)
    costs = Costs(options.fixed_ms / 1e3, options.row_ms / 1e3)
    rows = compare(costs, 0.5 if options.quick else 5.0, options.quick)
    table = markdown(rows, costs)
    print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
