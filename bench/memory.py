"""Does a server's memory grow? RSS over a million requests, printed every hundred thousand.

    python -m bench.memory [--requests 1000000] [--model mlp] [--connections 64] [--most-growth 5]

Starts Ferry with defaults on the benchmark's model, sends requests by wrk, and exits 1 where RSS after the last
request is more than `--most-growth` percent above what it was after the first tenth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import wrk
from bench.models import ensure_models
from bench.peers.descriptor import find_peers
from bench.peers.peer_under_load import PeerUnderLoad
from bench.workloads import WORKLOADS

#: wrk counts time, not requests: this long, again and again, until enough were sent.
_SLICE_S = 2.0


def growth_percent(mib: Sequence[float]) -> float:
    """Of the last above the first tenth's end; memory before that is what warms up."""
    return 100 * (mib[-1] / mib[0] - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--peer", default="ferry", help="a folder of bench/peers")
    parser.add_argument("--workload", default="mlp", choices=WORKLOADS)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--most-growth", type=float, default=5.0, help="percent; exit 1 above")
    options = parser.parse_args()
    if not wrk.is_installed():
        sys.exit("bench.memory needs wrk (Debian: apt-get install wrk)")
    ensure_models()
    server = PeerUnderLoad(find_peers()[options.peer], WORKLOADS[options.workload])
    try:
        server.start()
        seen = watch(server, options.requests, options.connections)
    finally:
        server.end()
    growth = growth_percent(seen)
    print(f"growth from the first tenth on: {growth:+.1f} % (bound {options.most_growth:g} %)")
    sys.exit(growth > options.most_growth)


def watch(server: PeerUnderLoad, requests: int, connections: int) -> list[float]:
    """RSS in MiB after each tenth."""
    seen: list[float] = []
    sent = 0
    while len(seen) < 10:
        figures = server.closed(connections, _SLICE_S)
        sent += figures["requests"]
        while len(seen) < 10 and sent >= requests * (len(seen) + 1) / 10:
            seen.append(figures["rss_mib"])
            print(f"{sent:>12,} requests  {seen[-1]:8.1f} MiB  {figures['rate']:>9,.0f}/s", flush=True)
    return seen


if __name__ == "__main__":
    main()
