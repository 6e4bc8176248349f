"""Do honest clients notice slow connections, a flood and malformed requests, all at once?

    python -m bench.hostile [--rounds 3] [--seconds 15] [--slow 2000] [--factor 10] [--json FILE]

An honest client asks the benchmark's transformer at a fifth of the rate that the server sustains. In each round it asks
twice, in alternating order: alone, and while 2,000 connections send nothing, or a byte now and then, another caller
sends ten times what the server can answer, bodies that never end ask for more memory than there is, and malformed
requests of every protocol arrive as quickly as they are answered. RSS is compared with the formula of
docs/architecture.md. The server tells callers apart (`fair_callers`). Meanwhile `/livez` is asked all the time.

Server and clients have cores of their own if there are two. Every answer is compared with that of the SavedModel.
Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.bench.open_loop import LoadTarget, open_loop, percentile, run_precisely
from app.config.settings import Settings
from app.server.client_memory_budget import MEGABYTE
from bench.overload import Load
from bench.support.attackers import Damage, Flood, Malformed, SlowConnections, UnendingBodies, attacks
from bench.support.figures import save
from bench.support.goals import all_met, goals_table, of_script
from bench.support.heavy_server import CALLER, HeavyRequests, heavy_server
from bench.support.live_server import resident_mib
from bench.support.livez_watch import Watch
from tests.support.processes import free_port
from tests.transports.memory.memory_bound import most_bytes

#: Chosen: so small that a body or connection that is not counted shows.
_BUDGET_MB, _MAX_BODY_BYTES, _MAX_CONNECTIONS = 128, 4 * MEGABYTE, 3000

#: The honest client's part of what the server sustains.
_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """What the honest client and who asks `/livez` saw. Goodput is right answers within the deadline, a second."""

    goodput: float
    p99_s: float
    livez_p99_s: float
    livez_worst_s: float
    rss_mib: float
    failures: str


@dataclass(frozen=True, slots=True)
class Round:
    alone: Run
    attacked: Run
    damages: Sequence[Damage]


class Honest:
    """The honest client of one server."""

    def __init__(self, port: int, process: int, rate: float, deadline_s: float) -> None:
        self._port, self._process, self._rate, self._deadline_s = port, process, rate, deadline_s
        self._requests = HeavyRequests(deadline_s, caller="honest")
        self._seed = 0

    def run(self, seconds: float) -> Run:
        self._seed += 1
        target, requests, watch = LoadTarget("127.0.0.1", self._port), self._requests, Watch(self._port)
        with watch.during():
            load = run_precisely(
                open_loop(target, requests.bytes, self._rate, seconds, seed=self._seed, check=requests.check)
            )
        livez = sorted(watch.seconds)
        return Run(
            goodput=sum(each <= self._deadline_s for each in load.latencies_s) / seconds,
            p99_s=load.latency_s(0.99),
            livez_p99_s=percentile(livez, 0.99),
            livez_worst_s=livez[-1],
            rss_mib=resident_mib(self._process),
            failures=", ".join(f"{count} x {kind}" for kind, count in load.failures.items()),
        )


def most_mib() -> float:
    """By how much clients may make RSS grow."""
    most = most_bytes(
        _BUDGET_MB * MEGABYTE,
        max_body_bytes=_MAX_BODY_BYTES,
        connections=_MAX_CONNECTIONS,
        max_head_bytes=Settings.model_fields["max_head_bytes"].default,
        executes=False,  # its model is proven by its graph: no rows are kept
    )
    return most / MEGABYTE


def figures_of(rounds: Sequence[Round]) -> dict[str, list[float]]:
    return {
        "goodput_kept": [each.attacked.goodput / each.alone.goodput for each in rounds],
        "livez_p99_ms": [1e3 * each.attacked.livez_p99_s for each in rounds],
        "livez_worst_ms": [1e3 * each.attacked.livez_worst_s for each in rounds],
        "rss_to_bound": [(each.attacked.rss_mib - rounds[0].alone.rss_mib) / most_mib() for each in rounds],
        "faults": [float(sum(len(damage.faults) for damage in each.damages)) for each in rounds],
    }


def report(rounds: Sequence[Round]) -> Iterator[str]:
    yield "| | goodput/s | p99 ms | /livez p99 ms | worst ms | RSS MiB |"
    yield "|---|---|---|---|---|---|"
    for each in rounds:
        for name, run in {"alone": each.alone, "attacked": each.attacked}.items():
            yield (
                f"| {name} | {run.goodput:.1f} | {1e3 * run.p99_s:.0f} | {1e3 * run.livez_p99_s:.1f} |"
                f" {1e3 * run.livez_worst_s:.1f} | {run.rss_mib:.0f} | {run.failures}"
            )
        for damage in each.damages:
            yield f"    {damage.told}"
            yield from (f"    FAULT {fault[:300]}" for fault in damage.faults[:10])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each run")
    parser.add_argument("--slow", type=int, default=2000, help="slow connections")
    parser.add_argument("--factor", type=float, default=10.0, help="of the rate that the server sustains: the flood")
    parser.add_argument("--deadline-ms", type=float, default=500.0)
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    deadline_s = options.deadline_ms / 1e3
    grpc_port = free_port()
    limits = {
        "memory_budget_mb": _BUDGET_MB,
        "max_body_bytes": _MAX_BODY_BYTES,
        "grpc_max_message_bytes": _MAX_BODY_BYTES,
        "max_connections": _MAX_CONNECTIONS,
    }
    with heavy_server(grpc_port=grpc_port, fair_callers=f"header:{CALLER}", **limits) as (port, process):
        search = Load(port, process, deadline_s, rows=1)
        print("Sustained within the deadline:")
        rate = search.sustained_rate()
        honest = Honest(port, process, _SHARE * rate, deadline_s)

        @contextmanager
        def attacked(number: int) -> Iterator[list[Damage]]:
            slow = SlowConnections(port, options.slow)
            flood = Flood(port, options.factor * rate, deadline_s, "flood")
            with attacks(
                slow, flood, UnendingBodies(port, _MAX_BODY_BYTES - 1), Malformed(port, grpc_port, number)
            ) as damages:
                yield damages

        rounds = []
        for number in range(options.rounds):
            before = honest.run(options.seconds) if number % 2 == 0 else None
            with attacked(number) as damages:
                during = honest.run(options.seconds)
            rounds.append(Round(before or honest.run(options.seconds), during, damages))
    figures = figures_of(rounds)
    print("\n".join([*report(rounds), "", *goals_table(of_script("hostile", figures), measured_only=True)]))
    save(options.json, figures)
    sys.exit(not all_met(of_script("hostile", figures)))


if __name__ == "__main__":
    main()
