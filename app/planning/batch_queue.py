"""The queue before one replica, simulated: Poisson arrivals, calls of measured costs, the batches that Ferry forms.

It is Bailey's bulk-service queue ("On queueing processes with bulk service", J. R. Stat. Soc. B 16, 1954) with Neuts'
general rule from one request on (Ann. Math. Stat. 38, 1967): a free device takes all waiting requests, at most a full
batch, and a call takes longer the more rows it has. Inoue ("Queueing analysis of GPU-based inference servers with
dynamic batching", Performance Evaluation 147, 2021) bounds the mean latency of such servers where calls cost
a + b * rows; for percentiles, calls that vary, several calls at the same time, and bursts there is no closed form. So
arrivals are drawn, always with the same seed, and the rule is applied to them one batch after another.
tests/planning/test_batch_queue.py compares with Pollaczek and Khinchine's formula and with Inoue's bound; `python -m
bench.scaling` compares with the batching core itself.

Where arrivals are distributed to replicas at random, each replica's are Poisson again; so the figures of one replica
hold for any number of replicas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from app.batching.costs.curve import CostCurve

Floats = NDArray[np.float64]

#: The number of simulated requests. Chosen: 800 of them are slower than the p99.
_REQUESTS = 80_000

#: The share of requests that arrive before the queue has its usual length, and are left out. Chosen.
_WARM_UP_SHARE = 0.05

#: The mean seconds of a burst, and of the calm after it, and the least number of both. Chosen: a burst is longer than
#: most calls, so that batches do not level it.
BURST_S = 0.3
_LEAST_BURSTS = 100

#: The average number of requests below which a burst is none. Chosen.
_LEAST_IN_A_BURST = 0.05

#: The most simulated requests, in fewer bursts. Chosen: a second of computing.
_MOST_REQUESTS = 1_000_000

_SEED = 1

#: The least number of calls after which the order of their variations repeats. Chosen.
_SHUFFLED = 4096


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one replica: their costs and their batches.

    Attributes:
        curve: seconds of a call by rows.
        most_rows: rows of a full batch.
        request_rows: rows of each request; at most `most_rows`.
        slots: calls that run at the same time, at the costs of the curve.
        spread: equally likely ratios of a call's seconds to the curve's; 1 on average.
    """

    curve: CostCurve
    most_rows: int
    request_rows: int = 1
    slots: int = 1
    spread: Sequence[float] = (1.0,)

    @property
    def most_requests(self) -> int:
        """The most requests in one call."""
        return self.most_rows // self.request_rows

    @property
    def capacity(self) -> float:
        """Requests a second that calls can compute if every batch is full."""
        return self.slots * self.most_requests / self.call_s(self.most_requests)

    def call_s(self, requests: int) -> float:
        return self.curve.call_s(requests * self.request_rows)

    def taken(self, waiting: int) -> int:
        """The number of waiting requests that the next call takes, by the rule of `SelfTuning`."""
        if waiting >= self.most_requests:
            return self.most_requests
        return max(1, self.curve.first_rows(waiting * self.request_rows) // self.request_rows)


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures of one replica at one rate. Latencies are seconds from the arrival to the end of the call.

    busy: the share of a slot's time in which it computes.
    batch_rows: the average rows of a call.
    """

    mean_s: float
    p50_s: float
    p99_s: float
    busy: float
    batch_rows: float


def play(calls: Calls, rate: float, burst: float = 1.0) -> QueueFigures:
    """The figures of a replica that gets `rate` requests a second.

    Args:
        burst: the rate in bursts as a multiple of the mean rate, from 1 (none) to 2; as much less between them.
    """
    arrivals = _arrivals(rate, burst)
    taken, call_s = _tables(calls)
    starts, firsts, seconds = _batches(arrivals.tolist(), taken, call_s, calls)
    ends, sizes = np.array(starts) + seconds, np.diff([*firsts, len(arrivals)])
    begin = int(_WARM_UP_SHARE * len(arrivals))
    latencies = (np.repeat(ends, sizes) - arrivals)[begin:]
    p50_s, p99_s = np.quantile(latencies, (0.5, 0.99))
    return QueueFigures(
        float(np.mean(latencies)),
        float(p50_s),
        float(p99_s),
        min(1.0, float(np.sum(seconds)) / (calls.slots * max(float(arrivals[-1]), float(ends[-1])))),
        calls.request_rows * float(np.mean(sizes)),
    )


@lru_cache(maxsize=4)
def _tables(calls: Calls) -> tuple[list[int], list[float]]:
    """Two tables by the number of waiting requests, up to a full batch: the requests taken, and the call's seconds."""
    numbers = range(1, calls.most_requests + 1)
    return [0, *map(calls.taken, numbers)], [0.0, *map(calls.call_s, numbers)]


def _batches(
    arrivals: list[float], taken: list[int], call_s: list[float], calls: Calls
) -> tuple[list[float], list[int], Floats]:
    """The start of each batch, its first request, and the seconds of its call."""
    spread = _shuffled(calls.spread)
    free_s = [0.0] * calls.slots
    starts, firsts, seconds = list[float](), list[int](), list[float]()
    first, most, count = 0, calls.most_requests, len(arrivals)
    while first < count:
        # 1. The slot that is free first, and the next request: the call starts when both are there.
        start_s = max(free_s[0], arrivals[first])

        # 2. The requests that have arrived by then.
        waiting = bisect_right(arrivals, start_s, first, min(first + most, count)) - first
        rows = taken[waiting]
        took_s = call_s[rows] * spread[len(firsts) % len(spread)]
        heapreplace(free_s, start_s + took_s)

        starts.append(start_s)
        firsts.append(first)
        seconds.append(took_s)
        first += rows
    return starts, firsts, np.array(seconds)


def _shuffled(spread: Sequence[float]) -> list[float]:
    """The ratios in random order, equally often: the rarest calls are as rare as they were measured."""
    random = np.random.default_rng((_SEED, 1))  # another generator than for arrivals
    repeated: list[float] = random.permutation(np.tile(spread, -(-_SHUFFLED // len(spread)))).tolist()
    return repeated


def _arrivals(rate: float, burst: float) -> Floats:
    """The arrivals of requests in seconds. Without bursts, arrivals at twice the rate are the same ones, twice as fast.

    The mean rate and the share of bursts are exact: a queue would multiply random deviations.
    """
    random = np.random.default_rng(_SEED)
    if burst == 1.0 or rate * BURST_S < _LEAST_IN_A_BURST:
        at_s: Floats = np.cumsum(random.exponential(1.0, _REQUESTS))
        at_s *= _REQUESTS / rate / at_s[-1]
        return at_s

    # 1. Lengths of bursts and calms, in alternation.
    wanted = min(max(_REQUESTS, _LEAST_BURSTS * 2 * BURST_S * rate), _MOST_REQUESTS)
    periods = max(1, round(wanted / (2 * BURST_S * rate)))
    lengths_s = random.exponential(1.0, (periods, 2))
    lengths_s = (BURST_S * lengths_s / lengths_s.mean(axis=0)).ravel()
    rates = np.tile((burst * rate, (2 - burst) * rate), periods)

    # 2. A Poisson process of rate 1, whose time is stretched to the rate of each moment.
    expected = np.concatenate(([0.0], np.cumsum(lengths_s * rates)))
    unit = np.cumsum(random.exponential(1.0, round(expected[-1])))
    ends_s = np.concatenate(([0.0], np.cumsum(lengths_s)))
    times_s: Floats = np.interp(unit * (expected[-1] / unit[-1]), expected, ends_s)
    return times_s
