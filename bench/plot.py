"""The picture of a comparison: python -m bench.plot RESULTS.json PICTURE.png (needs requirements/bench.txt)."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results = json.loads(Path(sys.argv[1]).read_text())
    workloads = results["workloads"]
    figure, panels = pyplot.subplots(len(workloads), 2, figsize=(12, 3.2 * len(workloads)), squeeze=False)
    for (rate, latency), workload in zip(panels, workloads, strict=True):
        bars(rate, workload, results["titles"], ("closed", "rate", "requests/s, closed loop"))
        opened = any(peer["open"] for peer in workload["peers"].values())
        shown_as = ("open", "open loop, the same rate for all") if opened else ("closed", "closed loop")
        bars(latency, workload, results["titles"], (shown_as[0], "p99_ms", f"p99 ms, {shown_as[1]}"))
    figure.suptitle(f"{results['machine']}\nmedians; lines from the least to the most of the rounds", fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.985))  # room for the title
    figure.savefig(sys.argv[2], dpi=110)


def bars(axes: Any, workload: dict[str, Any], titles: dict[str, str], shown_as: tuple[str, str, str]) -> None:
    kind, key, label = shown_as
    values = {
        name: [run[key] for run in peer[kind].values() if run[key] < float("inf")]
        for name, peer in workload["peers"].items()
        if not (peer["not_run"] or (key == "p99_ms" and titles[name].startswith("limit")))
    }
    shown = sorted(((statistics.median(each), name, each) for name, each in values.items() if each))
    for place, (median, name, each) in enumerate(shown):
        colour = "#d95f02" if name.startswith("ferry") else "#bbbbbb" if titles[name].startswith("limit") else "#7570b3"
        axes.barh(place, median, color=colour)
        axes.plot([min(each), max(each)], [place, place], color="black", linewidth=1)
        axes.text(median, place, f" {median:,.1f}" if median < 100 else f" {median:,.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), [titles[name] for _, name, _ in shown], fontsize=7)
    axes.set_title(f"{workload['name']}: {label}", fontsize=9)
    axes.margins(x=0.15)
    if shown and shown[-1][0] > 50 * max(shown[0][0], 1e-9):
        axes.set_xscale("log")


if __name__ == "__main__":
    main()
