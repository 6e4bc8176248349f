"""Tables in Markdown from what the comparison measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.figures import Spread, ratio_by_round
from bench.goals import goals_table

Runs = Mapping[Any, Mapping[str, Any]]


def markdown(results: Mapping[str, Any]) -> str:
    """`results` as bench/run.py writes them."""
    lines = [f"# Ferry beside its peers: {results['name']}", "", f"Machine: {results['machine']}.", ""]
    lines += ["## Goals", "", *goals_table(results), "", _HOW_TO_READ, ""]
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


_HOW_TO_READ = """Medians, in brackets the least and the most of the rounds; a ratio is taken within each round. Every
answer that was looked at (before, during and after each run) agreed with the direct call, and no request of a run in
the closed loop failed. Latencies of the closed loop leave out who waited for a connection (coordinated omission); those
of the open loop run from the time at which a request was due (Poisson arrivals) and count failures as infinite."""


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
    for name, peer in ordered(workload["peers"]):
        title, runs = names.get(name, name), peer["closed"]
        if peer["not_run"] or not runs:
            lines.append(f"| {title} | **not run: {peer['not_run'] or 'no figures'}** | | | | | |")
            continue
        ratio = ratio_by_round(ferry, rates(runs)) if name != "ferry" else None
        times = f"{ratio.median:.2f}x ({ratio.least:.2f}-{ratio.most:.2f})" if ratio else ""
        rate = spread(runs, "rate", ",.0f")
        memory = spread(runs, "rss_mib", ".0f") if any("rss_mib" in run for run in runs.values()) else ""
        row = (title, rate, times, spread(runs, "p50_ms", ".2f"), spread(runs, "p99_ms", ".2f"), memory, peer["about"])
        lines.append("| " + " | ".join(row) + " |")
    return lines


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
            share = 100 * failed / max(1, sum(run["intended"] for run in runs.values()))
            cells += [
                spread(runs, "rate", ",.0f", False),
                spread(runs, "p50_ms", ".2f"),
                spread(runs, "p99_ms", ".2f"),
                f"{share:.1f} %",
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
