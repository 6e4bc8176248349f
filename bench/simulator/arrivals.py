"""When requests come, and how long they are: patterns by name, for the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from bench.simulator.simulation import Arrival

#: Lengths and how often they occur: 1 on average.
LENGTHS, SHARES = (0.25, 0.5, 1.0, 2.0, 4.0), (0.24, 0.36, 0.2, 0.12, 0.08)

Pattern = Callable[[np.random.Generator, float, float], list[Arrival]]


def poisson(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    return [Arrival(at_s) for at_s in _poisson_times(random, rate, 0.0, seconds)]


def bursty(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    """Poisson whose rate is 1.8 or 0.2 times the mean, each for 0.3 s on average."""
    arrivals: list[Arrival] = []
    begin_s = 0.0
    for factor in itertools.cycle((1.8, 0.2)):
        end_s = min(seconds, begin_s + random.exponential(0.3))
        arrivals += [Arrival(at_s) for at_s in _poisson_times(random, factor * rate, begin_s, end_s)]
        if end_s >= seconds:
            return arrivals
        begin_s = end_s
    raise AssertionError("a cycle does not end")


def mixed(random: np.random.Generator, rate: float, seconds: float) -> list[Arrival]:
    """Poisson, and a row costs by its length."""
    times = list(_poisson_times(random, rate, 0.0, seconds))
    lengths = random.choice(LENGTHS, len(times), p=SHARES).tolist()
    return [Arrival(at_s, length) for at_s, length in zip(times, lengths, strict=True)]


PATTERNS: dict[str, Pattern] = {"poisson": poisson, "bursty": bursty, "mixed lengths": mixed}


def _poisson_times(random: np.random.Generator, rate: float, begin_s: float, end_s: float) -> Iterator[float]:
    at_s = begin_s + random.exponential(1 / rate)
    while at_s < end_s:
        yield float(at_s)
        at_s += random.exponential(1 / rate)
