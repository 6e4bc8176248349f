"""How much of what the cores can do for a heavy model comes out as answers over HTTP.

    python -m bench.heavy_models [--rounds 5] [--seconds 4] [--json FILE]

Ferry, and in turn with it as many bare loops of its runtime as it has calls at a time: the same variants at the best
batch size, without HTTP, batcher and waiting. Both have all cores but one, and wrk, which has one thread, has that one,
so neither measures the load generator. Where there is one core alone, all share it, and the report says so. Ratios are
of the same round. Each model has its requests as tensors in binary and as JSON, since parsing takes the model's cores.

Beside the rates it compares the processor time of a row, all threads and the kernel's part: other work on the machine
disturbs that less. The rates can be further apart than this only as far as Ferry leaves its cores idle.

Predicted, of one core: a server does what the loop does, and reads, queues and answers each row on the same core. With
10 us for a row of 64 tokens and 60 us for an image of 110 KB (two copies in the kernel, three in the process) beside
600 and 900 us of computing 0.98 and 0.94 remain. What is missing from that is Ferry's to explain (docs/benchmark.md).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.models import ensure_models
from bench.peers.descriptor import Peer, find_peers
from bench.peers.peer_under_load import PeerUnderLoad
from bench.support.cores import for_server_and_load, on_cores
from bench.support.figures import save
from bench.support.machine import machine_line, require
from bench.support.workloads import WORKLOADS, Workload

#: Those with a goal, and what else is sent to the same model. 16 connections carry an image as JSON.
HEAVY = ("image-binary", "transformer")
_OTHER_WIRE = {
    "image-binary": WORKLOADS["image-json"],
    "transformer": replace(WORKLOADS["transformer"], name="transformer-binary", wire="binary"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    require("wrk")
    ensure_models()
    server_cores, load_cores = for_server_and_load()
    print(machine_line())
    print(f"server on cores {sorted(server_cores)}, load on {sorted(load_cores)}")
    figures: dict[str, list[float]] = {}
    for name in HEAVY:
        workloads = [replace(each, seconds=options.seconds) for each in (WORKLOADS[name], _OTHER_WIRE[name])]
        *served, loops = in_turn(workloads, options.rounds)
        for workload, runs in zip(workloads, served, strict=True):
            figures |= beside_loops(workload.name, runs, loops)
            print(f"  {workload.name}: Ferry {about(runs)}; loops {about(loops)}")
    for name, values in figures.items():
        print(f"  {name:30} median {statistics.median(values):.2f}  ({min(values):.2f}-{max(values):.2f})")
    save(options.json, figures)


Runs = list[dict[str, Any]]


def in_turn(workloads: Sequence[Workload], rounds: int) -> list[Runs]:
    """The runs of Ferry at each of the workloads, which have the same model, and those of the loops."""
    peers = find_peers()
    with ExitStack() as started:
        ready = [started.enter_context(asleep(peers["ferry"], each)) for each in workloads]
        ready.append(started.enter_context(asleep(peers["ferry_loops"], workloads[0])))
        with on_cores(for_server_and_load()[1]):
            by_round = [[each.closed() for each in ready] for _ in range(rounds)]
    return [list(runs) for runs in zip(*by_round, strict=True)]


def beside_loops(name: str, runs: Runs, loops: Runs) -> dict[str, list[float]]:
    """By round: Ferry's rows/s to the loops', and the loops' processor time of a row to Ferry's; 1 is the limit."""
    pairs = list(zip(runs, loops, strict=True))
    return {
        f"{name}_to_loops": [mine["rate"] / limit["rate"] for mine, limit in pairs],
        f"{name}_cpu_to_loops": [limit["cpu_us"] / mine["cpu_us"] for mine, limit in pairs],
    }


def about(runs: Runs) -> str:
    rate, cpu_us = (statistics.median([run[name] for run in runs]) for name in ("rate", "cpu_us"))
    return f"{rate:.0f} rows/s, {cpu_us:.0f} us of CPU a row"


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
