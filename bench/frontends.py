"""Two frontends and an engine beside one process: requests/s, the cost of a hop, and what more cores would give.

    python -m bench.frontends [--rounds 7] [--seconds 3] [--connections 64] [--frontends 2] [--json FILE]

Both serve the benchmark's tiny MLP as JSON and are loaded in turn by wrk, which takes cores, too. A lone client shows
what the hop to the engine and back adds. The CPU time of each process for a request, as the kernel counts it, shows
what limits the rate if there are enough cores: the engine alone on one, and a frontend on each of the others; and that
of the generator, what is left for the server on this machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.models import ensure_models, read_samples, saved_model
from bench.support import wrk
from bench.support.figures import save
from bench.support.forms import FORMS
from bench.support.live_server import live_process
from bench.support.machine import require

ONE, SEVERAL = "one process", "frontends"
ENGINE, FRONTEND = "app.frontends.engine.engine_process", "app.frontends.frontend.frontend_process"
CORES = (2, 4, 8, 16)
_TICKS = os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A server's port, and its process."""

    port: int
    process: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU that a request takes, all processes of a kind together."""

    engine_us: float
    frontend_us: float

    def rate(self, cores: int) -> tuple[float, int]:
        """Requests/s that this many cores allow, and with how many frontends; the load generator is elsewhere."""
        frontends = max(1, min(cores - 1, round(self.frontend_us / self.engine_us + 0.5)))
        if cores == 1:
            return 1e6 / (self.engine_us + self.frontend_us), 1
        return min(1e6 / self.engine_us, frontends * 1e6 / self.frontend_us), frontends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--frontends", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    require("wrk")
    ensure_models()
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_served(count)) for name, count in {ONE: 0, SEVERAL: options.frontends}.items()
        }
        figures = measure(servers, Load(options.connections, options.seconds), options.rounds)
    print("\n".join(report(figures, options.frontends, options.connections)))
    save(options.json, figures)


@contextmanager
def _served(frontends: int) -> Iterator[Served]:
    with live_process(models=saved_model("mlp").parent.parent, grpc_port=0, frontends=frontends) as found:
        yield Served(*found)


class Load:
    """The generator, and the bodies that it sends."""

    def __init__(self, connections: int, seconds: float) -> None:
        self._bodies = [FORMS["v1-json"].write("x", x) for x, _ in read_samples("mlp")]
        self._connections = connections
        self._seconds = seconds

    def json(self, served: Served, *, lone: bool = False) -> wrk.ClosedLoop:
        """All connections for the whole time, or a lone one for a second."""
        url = f"http://127.0.0.1:{served.port}/v1/models/mlp:predict"
        connections, seconds = (1, 1.0) if lone else (self._connections, self._seconds)
        found = wrk.closed_loop(url, self._bodies, connections, seconds)
        if found.failed:
            sys.exit(f"{found.failed} requests failed")
        return found


def measure(servers: Mapping[str, Served], load: Load, rounds: int) -> dict[str, list[float]]:
    """By name, a figure of each round; all servers in turn within a round."""
    figures: dict[str, list[float]] = {"ratios": []}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for _ in range(rounds):
        for name, served in servers.items():
            before = cpu_s(served.process)
            busy = load.json(served)
            used = {kind: cpu - before[kind] for kind, cpu in cpu_s(served.process).items()}
            note(f"{name}, requests/s", busy.rate)
            note(f"{name}, p99 ms", busy.p99_ms)
            note(f"{name}, lone client p50 ms", load.json(served, lone=True).p50_ms)
            for kind, cpu in used.items():
                if cpu:
                    note(f"{name}, {kind} us CPU", 1e6 * cpu / busy.requests)
        note("hop ms", figures[f"{SEVERAL}, lone client p50 ms"][-1] - figures[f"{ONE}, lone client p50 ms"][-1])
        note("ratios", figures[f"{SEVERAL}, requests/s"][-1] / figures[f"{ONE}, requests/s"][-1])
    return figures


def report(figures: Mapping[str, Sequence[float]], frontends: int, connections: int) -> list[str]:
    """Lines for people: medians and spread, then the model."""

    def median(name: str) -> float:
        return statistics.median(figures[name])

    lines = [
        f"Tiny MLP, JSON, {connections} connections, {frontends} frontends + engine beside one process,"
        f" {len(figures['ratios'])} rounds in turn; median (least .. most)"
    ]
    lines += [
        f"  {name:34} {median(name):10.3f}  ({min(each):.3f} .. {max(each):.3f})" for name, each in figures.items()
    ]
    cost = Cost(median(f"{SEVERAL}, engine us CPU"), median(f"{SEVERAL}, frontends us CPU"))
    lines.append("Bound by CPU alone, from the CPU of a request (load generator elsewhere):")
    for cores in CORES:
        rate, count = cost.rate(cores)
        bound = "engine" if rate >= 1e6 / cost.engine_us else "frontends"
        lines.append(f"  {cores:2} cores: {rate:8.0f} requests/s with {count} frontends, bound by the {bound}")
    lines.append(f"  one process: {1e6 / median(f'{ONE}, process us CPU'):8.0f} requests/s, however many cores")
    return lines


def cpu_s(process: int) -> dict[str, float]:
    """Seconds of CPU used so far, by the kind of process below this one, itself included, and by generators."""
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = {"process": 0.0, "engine": 0.0, "frontends": 0.0, "generator": ours.ru_utime + ours.ru_stime}
    for number in (process, *_descendants(process)):
        command = Path(f"/proc/{number}/cmdline").read_text()
        kind = "engine" if ENGINE in command else "frontends" if FRONTEND in command else "process"
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        used[kind] += (int(fields[11]) + int(fields[12])) / _TICKS
    return used


def _descendants(process: int) -> Iterator[int]:
    """The engine is a grandchild."""
    for number in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        yield int(number)
        yield from _descendants(int(number))


if __name__ == "__main__":
    main()
