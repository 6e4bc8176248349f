"""A loop that calls a model at the batch size with the most rows/s and does nothing else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.peers.in_process import obey
from bench.support.forms import Array

#: The search for the best size looks again at those that came near it, for the machine is not as fast at all times.
PASSES, SECONDS, LEAST_CALLS, NEAR = 3, 0.4, 2, 0.7

Call = Callable[[Any], object]


def run_best_size(
    call: Call, rows: Sequence[Array], sizes: Sequence[int], about: Callable[[int], str], callers: int = 1
) -> None:
    """Finds the best of `sizes`, then obeys the benchmark.

    Args:
        call: takes a batch [size, *row] and returns when its outputs are there.
        about: what the table says of the size found.
        callers: loops at the same time.
    """
    made = {size: batches(rows, size) for size in sizes}
    for each in made.values():
        call(each[0])  # the first call of a size may compile
    fastest = dict.fromkeys(sizes, 0.0)
    for _ in range(PASSES):
        bound = NEAR * max(fastest.values())
        for size in [size for size in sizes if fastest[size] >= bound]:
            times = timed(call, made[size], SECONDS, LEAST_CALLS, callers)
            fastest[size] = max(fastest[size], callers * size * len(times) / sum(times))
    best = max(sizes, key=lambda size: fastest[size])

    def measure(seconds: float, connections: int) -> tuple[int, list[float]]:  # noqa: ARG001 - it has no callers
        times = timed(call, made[best], seconds, callers=callers)
        return best * len(times), times

    obey(measure, f"best batch size {best}, {about(best)}; a latency is that of a batch")


def batches(rows: Sequence[Array], size: int) -> list[Array]:
    """At most eight, so that rows of mixed lengths stay in the mix; each is of equal rows, so nothing is padded."""
    step = max(1, len(rows) // 8)
    return [np.repeat(row[np.newaxis], size, 0) for row in rows[::step]]


def timed(call: Call, made: Sequence[Array], seconds: float, least: int = 1, callers: int = 1) -> list[float]:
    """Seconds that each call took, of all callers."""
    with ThreadPoolExecutor(callers) as pool:
        loops = [pool.submit(_timed, call, made, seconds, least) for _ in range(callers)]
    return [each for loop in loops for each in loop.result()]


def _timed(call: Call, made: Sequence[Array], seconds: float, least: int) -> list[float]:
    turn = itertools.cycle(made)
    times: list[float] = []
    start = now = time.perf_counter()
    while now - start < seconds or len(times) < least:
        call(next(turn))
        before, now = now, time.perf_counter()
        times.append(now - before)
    return times
