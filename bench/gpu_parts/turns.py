"""Ways that take turns until their time is over, and the time of a part."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import inf

#: Runs one way for a moment; returns how much it did in a second.
Way = Callable[[], Awaitable[float]]

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Turns:
    """Until when a part, or a piece of it, may measure.

    slice_s: seconds of each way in a round.
    most_rounds: however much time is left.
    """

    until_s: float
    slice_s: float
    most_rounds: float = inf
    clock: Clock = time.perf_counter

    @property
    def left_s(self) -> float:
        return self.until_s - self.clock()

    def piece(self, number: int, pieces: int) -> Turns:
        """An equal share of what is left, for piece `number` of all; what one leaves over goes to those after it."""
        return replace(self, until_s=self.clock() + self.left_s / (pieces - number))

    async def take(self, ways: Mapping[str, Way]) -> dict[str, list[float]]:
        """By way, what it did in a second in each round: A B A B. The first round warms up and does not count.

        One round is measured whatever it takes; another begins only if it is expected to end in time.
        """
        rounds: dict[str, list[float]] = {name: [] for name in ways}
        for number in count():
            begin_s = self.clock()
            for name, way in ways.items():
                rate = await way()
                if number:
                    rounds[name].append(rate)
            if number >= self.most_rounds or (number and self.left_s < self.clock() - begin_s):
                return rounds
        raise AssertionError("it never ends")  # pragma: no cover - count() has no end


def repeated(call: Callable[[], object], slice_s: float, amount: float = 1.0, clock: Clock = time.perf_counter) -> Way:
    """A way that makes one call after the other; each does `amount`."""

    async def way() -> float:
        begin_s = now_s = clock()
        calls = 0
        while now_s - begin_s < slice_s or not calls:
            call()
            calls += 1
            now_s = clock()
        return amount * calls / (now_s - begin_s)

    return way
