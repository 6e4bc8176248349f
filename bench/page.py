"""Tables in Markdown from what the comparison measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.figures import Spread, ratio_by_round

Runs = Mapping[int, Mapping[str, Any]]


def markdown(results: Mapping[str, Any]) -> str:
    """`results` as bench/peers/__main__.py writes them in JSON, with rounds as numbers."""
    lines = [f"# Ferry beside its peers: {results['name']}", "", f"Machine: {results['machine']}.", ""]
    load = results["load"]
    lines += [
        f"{load['rounds']} rounds in turn of {load['seconds']:g} s each; {load['connections']} connections (wrk); "
        f"load average before: {results['load_average']:.1f}. Medians, in brackets the least and the most of the "
        "rounds; the ratio is Ferry's rate by the peer's, taken within each round. Every answer that was looked at "
        "(before, during and after each run) agreed with the direct call, and no request failed.",
        "",
    ]
    for workload in results["workloads"]:
        lines += [f"## {workload['name']}: {workload['about']}", "", *closed_table(workload, results["titles"])]
        if any(peer["open"] for peer in workload["peers"].values()):
            lines += ["", *open_table(workload, results["titles"])]
        lines.append("")
    lines += ["## How each is tuned", "", "| peer | version | how |", "|---|---|---|"]
    lines += [
        f"| {titles(results, name)} | {each['version']} | {each['about']} |" for name, each in results["about"].items()
    ]
    lines += [
        "",
        "Latencies of the closed loop leave out who waited for a connection (coordinated omission); those of the",
        "open loop run from the time at which a request was due (Poisson arrivals) and count failures as infinite.",
    ]
    return "\n".join(lines) + "\n"


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
        if not (peer["open"] and peer["own"]):
            continue
        cells = [names.get(name, name)]
        for runs in (peer["open"], peer["own"]):
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


def rates(runs: Runs) -> dict[int, float]:
    return {number: run["rate"] for number, run in runs.items()}


def spread(runs: Runs, key: str, form: str, full: bool = True) -> str:
    each = Spread.of([run[key] for run in runs.values() if key in run])
    text = f"{each.median:{form}}"
    return f"{text} ({each.least:{form}}-{each.most:{form}})" if full and len(runs) > 1 else text
