"""Does a server's memory grow? RSS over a million requests, printed every hundred thousand.

    python -m bench.memory [--requests 1000000] [--workload mlp] [--most-growth 5] [--json FILE]

Starts Ferry with defaults on the benchmark's model and keeps 64 connections busy by wrk, in one run of wrk for about
each tenth; known answers are checked before, during and after each. Exits with 1 if RSS after the last request is
more than `--most-growth` percent above what it was after the first tenth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.models import ensure_models
from bench.peers.descriptor import find_peers
from bench.peers.peer_under_load import PeerUnderLoad
from bench.support.figures import save
from bench.support.machine import require
from bench.support.workloads import WORKLOADS

#: wrk counts time, not requests: the first run says how long a tenth takes.
_FIRST_S, _LONGEST_S = 1.0, 60.0

#: Keeps the server busy for this many seconds; gives `requests`, `rate` and `rss_mib`.
Press = Callable[[float], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--peer", default="ferry", help="a folder of bench/peers")
    parser.add_argument("--workload", default="mlp", choices=WORKLOADS)
    parser.add_argument("--most-growth", type=float, default=5.0, help="percent; exit 1 above")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    require("wrk")
    ensure_models()
    server = PeerUnderLoad(find_peers()[options.peer], WORKLOADS[options.workload])
    try:
        server.launch()
        server.get_ready()
        seen = watch(server.press, options.requests)
    finally:
        server.end()
    growth = growth_percent(seen)
    print(f"growth from the first tenth on: {growth:+.1f} % (bound {options.most_growth:g} %)")
    save(options.json, {"growth_percent": [growth], "rss_mib": seen})
    sys.exit(growth > options.most_growth)


def growth_percent(mib: Sequence[float]) -> float:
    """Of the last above the first tenth's end; memory before that is what warms up."""
    return 100 * (mib[-1] / mib[0] - 1)


def watch(press: Press, requests: int) -> list[float]:
    """RSS in MiB after each tenth."""
    seen: list[float] = []
    sent, seconds = 0, _FIRST_S
    while len(seen) < 10:
        figures = press(seconds)
        sent += figures["requests"]
        while len(seen) < 10 and sent >= requests * (len(seen) + 1) / 10:
            seen.append(figures["rss_mib"])
            print(f"{sent:>12,} requests  {seen[-1]:8.1f} MiB  {figures['rate']:>9,.0f}/s", flush=True)
        missing = requests * (len(seen) + 1) / 10 - sent
        seconds = min(_LONGEST_S, max(_FIRST_S, missing / max(1.0, figures["rate"])))
    return seen


if __name__ == "__main__":
    main()
