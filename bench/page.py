"""The page of a comparison, in Markdown, from what bench/run.py measured.

    python -m bench.page bench/results/peers.json > bench/results/peers.md

Everything that the page says follows from the results: goals that were missed and workloads in which a peer was faster
than Ferry are listed by themselves, so that docs/benchmark.md needs to quote no figure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.plan import NOT_MADE
from bench.support.figures import Spread, ratio_by_round
from bench.support.goals import goals_table, is_peer, outcomes

Runs = Mapping[Any, Mapping[str, Any]]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(markdown(json.loads(Path(sys.argv[1]).read_text())), end="")


def markdown(results: Mapping[str, Any]) -> str:
    """`results` as bench/run.py writes them."""
    lines = [f"# Ferry beside its peers: {results['name']}", "", f"Machine: {results['machine']}.", ""]
    lines += ["## Goals", "", *goals_table(results), "", *missed_lines(results), ""]
    lines += ["## At a glance", "", *glance_table(results), "", *ahead_lines(results), "", *how_to_read(results), ""]
    for workload in results["workloads"]:
        lines += [f"## {workload['name']}: {workload['about']}", "", load_line(workload), ""]
        lines += closed_table(workload, results["titles"])
        if any(peer["own"] for peer in workload["peers"].values()):
            lines += ["", *open_table(workload, results["titles"])]
        lines += ["", *failure_lines(workload, results["titles"])]
    for name, script in results["scripts"].items():
        lines += [f"## {name}: {script['about']}", "", f"{measured_line(script)}.", ""]
        lines += [f"**not run: {script['not_run']}**", ""] if script["not_run"] else []
        lines += ["```", script["report"].strip(), "```", ""] if script["report"].strip() else []
    lines += ["## How each is tuned", "", "| peer | version | how |", "|---|---|---|"]
    lines += [
        f"| {titles(results, name)} | {each['version']} | {each['about']} |" for name, each in results["about"].items()
    ]
    return "\n".join(lines) + "\n"


def missed_lines(results: Mapping[str, Any]) -> list[str]:
    missed = [outcome for outcome in outcomes(results) if outcome.met is False and outcome.spread is not None]
    if not missed:
        return ["Every goal that was measured is met."]
    return [
        "Not met:",
        "",
        *(
            f"- {each.goal.what}: {each.spread.median:.3f}{each.goal.unit}, wanted {each.goal.wanted}"
            for each in missed
            if each.spread is not None
        ),
    ]


def glance_table(results: Mapping[str, Any]) -> list[str]:
    """Ferry's requests/s as a multiple of each peer's, by workload; bold where the peer was faster."""
    names = [name for name in results["titles"] if _has_figures(results, name)]
    if not names:
        return ["No peer has figures."]
    lines = [
        "Ferry's requests/s in the closed loop, as a multiple of each peer's: medians of the rounds. Where a number is",
        "bold, the peer was faster.",
        "",
        "| workload | " + " | ".join(titles(results, name) for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for workload in results["workloads"]:
        cells = []
        for name in names:
            times = times_of(workload, name)
            text = "" if times is None else f"{times.median:.2f}"
            cells.append(f"**{text}**" if times is not None and times.median < 1 else text)
        lines.append(f"| {workload['name']}: {workload['about']} | " + " | ".join(cells) + " |")
    return lines


def _has_figures(results: Mapping[str, Any], name: str) -> bool:
    found = is_peer(name, titles(results, name)) or name == "tf_batching"
    return found and any(times_of(workload, name) is not None for workload in results["workloads"])


def times_of(workload: Mapping[str, Any], name: str) -> Spread | None:
    """Ferry's requests/s as a multiple of those of `name`; None where one of them has no figures."""
    peers = workload["peers"]
    if name not in peers or peers[name]["not_run"] or peers.get("ferry", {"not_run": "absent"})["not_run"]:
        return None
    return ratio_by_round(rates(peers["ferry"]["closed"]), rates(peers[name]["closed"]))


def ahead_lines(results: Mapping[str, Any]) -> list[str]:
    """Who was faster than Ferry, and where."""
    lines = []
    for workload in results["workloads"]:
        for name in results["titles"]:
            times = times_of(workload, name) if is_peer(name, titles(results, name)) else None
            if times is not None and times.median < 1:
                lines.append(
                    f"- {titles(results, name)} was faster than Ferry in {workload['name']} ({workload['about']}): "
                    f"Ferry had {times.median:.2f} times its requests/s ({times.least:.2f}-{times.most:.2f})"
                )
    return lines or ["No peer was faster than Ferry in a closed loop."]


_HOW_TO_READ = """Medians, in brackets the least and the most of the rounds; a ratio is taken within each round. Every
answer that was looked at (before, during and after each run) agreed with the direct call, and no request of a run in
the closed loop failed. Latencies of the closed loop leave out the time in which a request waited for a free connection
(coordinated omission)."""
_OPEN_LOOP = """Those of the open loop run from the time at which a request was due (Poisson arrivals) and count
failures as infinite."""


def how_to_read(results: Mapping[str, Any]) -> list[str]:
    opened = any(peer["own"] for workload in results["workloads"] for peer in workload["peers"].values())
    lines = [_HOW_TO_READ, _OPEN_LOOP if opened else "The open loop was not run."]
    revisions = sorted({part["commit"] for part in [*results["workloads"], *results["scripts"].values()]})
    if len(revisions) > 1:
        lines.append(
            f"The parts were measured at different revisions ({', '.join(revisions)}); each part names its own."
        )
    return lines


def load_line(workload: Mapping[str, Any]) -> str:
    rounds = max((len(peer["closed"]) for peer in workload["peers"].values()), default=0)  # it may have been cut short
    return (
        f"{rounds} rounds in turn of {workload['seconds']:g} s each; {workload['connections']} connections "
        f"(wrk). {measured_line(workload)}."
    )


def measured_line(part: Mapping[str, Any]) -> str:
    return f"Ferry {part['commit']}, {part['when']}, load average before: {part['load_average']:.1f}"


def failure_lines(workload: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Runs that were left out, though the peer was given another chance."""
    lines = [
        f"- {names.get(name, name)} failed in a run that is left out: {text}"
        for name, peer in workload["peers"].items()
        for text in peer["failures"]
        if not peer["not_run"]
    ]
    return [*lines, ""] if lines else []


def titles(results: Mapping[str, Any], name: str) -> str:
    return str(results["titles"].get(name, name))


def closed_table(workload: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    ferry = rates(workload["peers"].get("ferry", {}).get("closed", {}))
    lines = ["| closed loop | requests/s | Ferry is | p50 ms | p99 ms | RSS MiB | |", "|---|---|---|---|---|---|---|"]
    not_made = []
    for name, peer in ordered(workload["peers"]):
        title, runs = names.get(name, name), peer["closed"]
        if peer["not_run"] == NOT_MADE:
            not_made.append(title)
            continue
        if peer["not_run"] or not runs:
            lines.append(f"| {title} | **not run: {peer['not_run'] or 'no figures'}** | | | | | |")
            continue
        ratio = ratio_by_round(ferry, rates(runs)) if name != "ferry" else None
        times = f"{ratio.median:.2f}x ({ratio.least:.2f}-{ratio.most:.2f})" if ratio else ""
        rate = spread(runs, "rate", ",.0f")
        memory = spread(runs, "rss_mib", ".0f") if any("rss_mib" in run for run in runs.values()) else ""
        row = (title, rate, times, spread(runs, "p50_ms", ".2f"), spread(runs, "p99_ms", ".2f"), memory, peer["about"])
        lines.append("| " + " | ".join(row) + " |")
    return [*lines, "", f"Not made for this workload: {', '.join(not_made)}."] if not_made else lines


def open_table(workload: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    lines = [
        "| open loop | rate for all | p50 ms | p99 ms | failed | 70 % of its own | p50 ms | p99 ms | failed "
        "| generator late, p99 ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, peer in ordered(workload["peers"]):
        if not peer["own"]:
            continue
        cells = [names.get(name, name)]
        for runs in (peer["open"], peer["own"]):
            if not runs:
                cells += ["beyond its reach", "", "", ""]
                continue
            failed = sum(run["failed"] for run in runs.values())
            intended = max(1, sum(run["intended"] for run in runs.values()))
            share, held_back = 100 * failed / intended, sum(run.get("held_back", 0) for run in runs.values())
            cells += [
                spread(runs, "rate", ",.0f", False),
                spread(runs, "p50_ms", ".2f"),
                spread(runs, "p99_ms", ".2f"),
                f"{share:.1f} %" + (f"; {held_back / intended:.1%} waited for a connection" if held_back else ""),
            ]
        cells.append(spread(peer["own"], "late_p99_ms", ".2f", False))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ordered(peers: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """The fastest first, those without figures last."""
    return sorted(peers.items(), key=lambda item: -max(rates(item[1]["closed"]).values(), default=0.0))


def rates(runs: Runs) -> dict[Any, float]:
    return {number: run["rate"] for number, run in runs.items()}


def spread(runs: Runs, key: str, form: str, full: bool = True) -> str:
    each = Spread.of([run[key] for run in runs.values() if key in run])
    text = f"{each.median:{form}}"
    return f"{text} ({each.least:{form}}-{each.most:{form}})" if full and len(runs) > 1 else text


if __name__ == "__main__":
    main()
