"""How much of what the cores can do for a heavy model comes out as answers over HTTP.

    python -m bench.heavy_models [--rounds 5] [--seconds 4] [--json FILE]

Ferry, and in turn with it as many bare loops of its runtime as it has calls at a time: the same variants at the best
batch size, without HTTP, batcher and waiting. Both have all cores but one, and wrk that one, so neither measures the
load generator. Where there is one core alone, all share it, and the report says so. Ratios are of the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.models import ensure_models
from bench.peers.descriptor import Peer, find_peers
from bench.peers.peer_under_load import PeerUnderLoad
from bench.support import wrk
from bench.support.cores import for_server_and_load, on_cores
from bench.support.machine import machine_line
from bench.support.workloads import WORKLOADS, Workload

HEAVY = ("image-binary", "transformer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    if not wrk.is_installed():
        sys.exit("bench.heavy_models needs wrk (Debian: apt-get install wrk)")
    ensure_models()
    server_cores, load_cores = for_server_and_load()
    print(machine_line())
    print(f"server on cores {sorted(server_cores)}, load on {sorted(load_cores)}")
    figures: dict[str, list[float]] = {}
    for name in HEAVY:
        ferry, loops = rates(replace(WORKLOADS[name], seconds=options.seconds), options.rounds)
        figures[f"{name}_to_loops"] = [mine / limit for mine, limit in zip(ferry, loops, strict=True)]
        print(f"  {name}: Ferry {statistics.median(ferry):.0f} rows/s, loops {statistics.median(loops):.0f}")
    for name, values in figures.items():
        print(f"  {name:24} median {statistics.median(values):.2f}  ({min(values):.2f}-{max(values):.2f})")
    if options.json:
        options.json.write_text(json.dumps(figures))


def rates(workload: Workload, rounds: int) -> tuple[list[float], list[float]]:
    """Rows/s by round: Ferry's, and the loops'."""
    peers = find_peers()
    found: tuple[list[float], list[float]] = [], []
    with asleep(peers["ferry"], workload) as ferry, asleep(peers["ferry_loops"], workload) as loops:
        for _ in range(rounds):
            for own, peer in zip(found, (ferry, loops), strict=True):
                with on_cores(for_server_and_load()[1]):
                    own.append(peer.closed()["rate"])
    return found


@contextmanager
def asleep(peer: Peer, workload: Workload) -> Iterator[PeerUnderLoad]:
    """A peer that is ready on the server's cores. One after the other: each measures something at its start."""
    under_load = PeerUnderLoad(peer, workload)
    try:
        with on_cores(for_server_and_load()[0]):
            under_load.launch()
        under_load.get_ready()
        yield under_load
    finally:
        under_load.end()


if __name__ == "__main__":
    main()
