"""A server's goodput when far more requests arrive than it can answer.

    python -m bench.overload [--rounds 3] [--seconds 6] [--rows 16] [--deadline-ms 500] [--json FILE]

Starts Ferry with defaults on the benchmark's transformer and finds the rate that it sustains: all answered, the p99
within the deadline. Then it offers 1, 2 and 10 times that in turn, at Poisson times; latencies run from the time at
which each request was due. Server and generator have cores of their own if there are two: a generator on the
model's cores would take ten times as much from it at 10x as at 1x. The report says what share of its core it used.

Rejecting a request costs CPU time, on the model's core if the server has only one. The requests have 16 rows in
binary, so that 10x are some hundreds a second (--rows 1: some thousands).

Goodput counts right answers within the deadline; the peak is the round's best. Accepted is what was not rejected (503):
any other end of a request counts against the p99. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.bench.load_connection import ServerReply
from app.bench.open_loop import LoadTarget, OpenLoopResult, open_loop, percentile, run_precisely
from app.bench.rate_search import RateSearch
from bench.support.figures import save
from bench.support.goals import all_met, goals_table, of_script
from bench.support.heavy_server import MANY_CONNECTIONS, HeavyRequests, heavy_server, read_metrics
from bench.support.live_server import resident_mib

FACTORS = (1, 2, 10)

#: To begin the search with, requests a second, and how long each of its trials takes.
_FIRST_RATE, _TRIAL_S, _MOST_TRIALS = 10.0, 2.0, 10


@dataclass(slots=True)
class Replies:
    """What was heard of those who were accepted and of those who were not."""

    accepted_s: list[float] = field(default_factory=list)
    rejected_s: list[float] = field(default_factory=list)
    without_retry_after: int = 0

    def hear(self, reply: ServerReply, latency_s: float) -> None:
        if reply.status == 503:
            self.rejected_s.append(latency_s)
            self.without_retry_after += "retry-after" not in reply.headers
        else:
            self.accepted_s.append(latency_s)


@dataclass(frozen=True, slots=True)
class Offer:
    """What came of one rate. `generator` is the share of a core that the load took."""

    rate: float
    goodput: float
    accepted: int
    accepted_p99_s: float
    rejected: int
    rejected_p99_s: float
    without_retry_after: int
    late_p99_s: float
    generator: float
    rss_mib: float
    others: str

    @classmethod
    def of(cls, load: OpenLoopResult, replies: Replies, deadline_s: float, generator: float, rss_mib: float) -> Offer:
        """Who got no reply at all was accepted, and never answered."""
        unanswered = load.intended - len(replies.accepted_s) - len(replies.rejected_s)
        accepted_s = sorted([*replies.accepted_s, *[float("inf")] * unanswered])
        others = {kind: count for kind, count in load.failures.items() if kind != "status 503"}
        return cls(
            rate=load.rate,
            goodput=sum(latency_s <= deadline_s for latency_s in load.latencies_s) / load.seconds,
            accepted=len(accepted_s),
            accepted_p99_s=percentile(accepted_s, 0.99),
            rejected=len(replies.rejected_s),
            rejected_p99_s=percentile(sorted(replies.rejected_s), 0.99) if replies.rejected_s else 0.0,
            without_retry_after=replies.without_retry_after,
            late_p99_s=load.late_p99_s,
            generator=generator,
            rss_mib=rss_mib,
            others=", ".join(f"{count} x {kind}" for kind, count in others.items()),
        )


class Load:
    """Offers rates to one server."""

    def __init__(self, port: int, process: int, deadline_s: float, rows: int) -> None:
        self._target = LoadTarget("127.0.0.1", port, MANY_CONNECTIONS)
        self._process, self.deadline_s = process, deadline_s
        self._requests = HeavyRequests(deadline_s, rows)
        self._seed = 0

    def offer(self, rate: float, seconds: float) -> Offer:
        self._seed += 1
        replies, requests = Replies(), self._requests
        begin_s, used_s = time.perf_counter(), time.process_time()
        load = run_precisely(
            open_loop(
                self._target, requests.bytes, rate, seconds, seed=self._seed, check=requests.check, heard=replies.hear
            )
        )
        generator = (time.process_time() - used_s) / (time.perf_counter() - begin_s)
        return Offer.of(load, replies, self.deadline_s, generator, resident_mib(self._process))

    def sustained_rate(self) -> float:
        """The highest rate found at which every request was answered in time."""
        search = RateSearch(_FIRST_RATE, _MOST_TRIALS)
        while (rate := search.next_rate()) is not None:
            offer = self.offer(rate, _TRIAL_S)
            good = not (offer.rejected or offer.others) and offer.accepted_p99_s <= self.deadline_s
            print(f"  {rate:7.0f}/s {'is answered' if good else 'is too much'}", flush=True)
            search.record(rate, good)
        if search.best is None:
            sys.exit("No rate was answered in time: the deadline is too short for this machine")
        return search.best


def figures_of(rounds: Sequence[Sequence[Offer]], deadline_s: float, expired: float) -> dict[str, list[float]]:
    """By round, each of which offered the FACTORS in turn; `expired` were computed though their time was over."""
    return {
        "goodput_kept": [min(each.goodput for each in one[1:]) / max(each.goodput for each in one) for one in rounds],
        "p99_to_deadline": [max(each.accepted_p99_s for each in one) / deadline_s for one in rounds],
        "rejected_p99_ms": [1e3 * max(each.rejected_p99_s for each in one) for one in rounds],
        "without_retry_after": [float(sum(each.without_retry_after for each in one)) for one in rounds],
        "expired_executions": [expired],
        "rss_growth_percent": [100 * (max(each.rss_mib for each in one) / rounds[0][0].rss_mib - 1) for one in rounds],
        "sustained_rate": [rounds[0][0].rate],
    }


def report(rounds: Sequence[Sequence[Offer]]) -> list[str]:
    lines = [
        "| offered | per s | goodput | accepted: p99 ms | rejected | p99 ms | RSS MiB | generator: core, p99 late |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for one in rounds:
        for factor, each in zip(FACTORS, one, strict=True):
            lines.append(
                f"| {factor}x | {each.rate:.0f} | {each.goodput:.0f} | {1e3 * each.accepted_p99_s:.0f} |"
                f" {each.rejected} | {1e3 * each.rejected_p99_s:.1f} | {each.rss_mib:.0f} |"
                f" {100 * each.generator:.0f} %, {1e3 * each.late_p99_s:.1f} ms | {each.others}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each rate in each round")
    parser.add_argument("--rows", type=int, default=16, help="of each request")
    parser.add_argument("--deadline-ms", type=float, default=500.0)
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    with heavy_server() as (port, process):
        load = Load(port, process, options.deadline_ms / 1e3, options.rows)
        print("Sustained within the deadline:")
        load.offer(_FIRST_RATE, _TRIAL_S)  # the server learns what calls cost
        rate = load.sustained_rate()
        rounds = [[load.offer(factor * rate, options.seconds) for factor in FACTORS] for _ in range(options.rounds)]
        expired = read_metrics(port)["ferry_expired_executions_total", ""]
    figures = figures_of(rounds, load.deadline_s, expired)
    results = of_script("overload", figures)
    print("\n".join([*report(rounds), "", *goals_table(results, measured_only=True)]))
    save(options.json, figures)
    sys.exit(not all_met(results))


if __name__ == "__main__":
    main()
