"""What a call costs by its rows, and which batches are worth forming then. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType

#: Smaller batches must save this share of the time: each call has costs around it that are not measured here.
_LEAST_GAIN = 0.1

NO_HOPES: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of a call at each row count that the model is called with; more rows never cost less.

    hoped: what calls may cost by now, no more than `seconds`. Batches get larger by these, so that a size which once
    was slow is tried again; what is foreseen follows from `seconds`.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    hoped: tuple[float, ...] = ()
    efficient_rows: int = field(init=False)
    _efficient: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """`efficient_rows` is the largest size at which a row costs at most a little more than it need."""
        object.__setattr__(self, "hoped", self.hoped or self.seconds)
        object.__setattr__(self, "efficient_rows", _efficient_rows(self.sizes, self.seconds, self.seconds)[-1])
        object.__setattr__(self, "_efficient", _efficient_rows(self.sizes, self.seconds, self.hoped))

    @classmethod
    def through(
        cls, sizes: Sequence[int], measured: Mapping[int, float], hopes: Mapping[int, float] = NO_HOPES
    ) -> CostCurve:
        """Of a size that was measured what was measured, of others a + b * rows, fitted and between their neighbours'.

        `measured` holds seconds by size, at least one; `hopes` says which share of them some sizes may cost by now.
        """
        seconds = _seconds_through(sizes, measured)
        hoped = [hopes.get(size, 1.0) * each for size, each in zip(sizes, seconds, strict=True)]
        return cls(tuple(sizes), seconds, tuple(hoped))

    def call_s(self, rows: int) -> float:
        """A call with so many rows, padded; of more than the largest size the largest."""
        return self.seconds[min(bisect_left(self.sizes, rows), len(self.sizes) - 1)]

    def work_s(self, rows: float, most_rows: int) -> float:
        """All calls for so many rows, `most_rows` in each."""
        full, rest = divmod(rows, most_rows)
        return full * self.call_s(most_rows) + (self.call_s(int(rest) or 1) if rest else 0.0)

    def rows_within(self, seconds: float) -> int:
        """The largest size whose call takes no longer, or hardly longer than the smallest where none is so quick."""
        return self.sizes[bisect_right(self.seconds, max(seconds, self.seconds[0] / (1 - _LEAST_GAIN))) - 1]

    def efficient_within(self, seconds: float, most_rows: int) -> int:
        """Of the sizes for up to `most_rows` rows whose call takes no longer, the largest at which a row costs hardly
        more than at any other of them; `most_rows` where that is less."""
        place = bisect_left(self.sizes, min(most_rows, self.rows_within(seconds), self.sizes[-1]))
        return min(most_rows, self._efficient[place])

    def first_rows(self, rows: int) -> int:
        """How many of so many rows to take at once: all, or the next smaller size where that is clearly cheaper.

        Either a row costs less in it than in the padded call (what is left shares the next one with those who come
        meanwhile), or all are done sooner: 5 may be quicker as 4 and 1 than as 8.
        """
        place = bisect_left(self.sizes, rows)
        if place == len(self.sizes):
            return self.sizes[-1]
        if not place or self.sizes[place] == rows:
            return rows
        below, below_s, most_s = self.sizes[place - 1], self.seconds[place - 1], (1 - _LEAST_GAIN) * self.hoped[place]
        cheaper = below_s / below < most_s / rows or below_s + self._least_s(rows - below) < most_s
        return below if cheaper else rows

    def _least_s(self, rows: int) -> float:
        whole_s, first = self.call_s(rows), self.first_rows(rows)
        return whole_s if first == rows else self.call_s(first) + self._least_s(rows - first)


def _efficient_rows(sizes: Sequence[int], seconds: Sequence[float], hoped: Sequence[float]) -> tuple[int, ...]:
    """For each size: of those up to it, the largest at which a row may cost at most a little more than it need."""
    least = accumulate([each / size for size, each in zip(sizes, seconds, strict=True)], min)
    may_cost = [each / size for size, each in zip(sizes, hoped, strict=True)]
    return tuple(
        next(sizes[place] for place in range(last, -1, -1) if may_cost[place] <= least_s / (1 - _LEAST_GAIN))
        for last, least_s in enumerate(least)
    )


def _seconds_through(sizes: Sequence[int], measured: Mapping[int, float]) -> tuple[float, ...]:
    known = sorted(measured)
    least = list(accumulate([measured[size] for size in reversed(known)], min))[::-1]  # a dear small call is noise
    if known == list(sizes):
        return tuple(least)
    fixed, slope = _fit(known, least)
    seconds = []
    for size in sizes:
        after = bisect_left(known, size)
        if after < len(known) and known[after] == size:
            seconds.append(least[after])
            continue
        guess = max(fixed + slope * size, least[after - 1] if after else 0.0)
        seconds.append(min(guess, least[after]) if after < len(known) else guess)
    return tuple(seconds)


def _fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """The least squares' a and b of a + b * size, neither below 0; of a single point its seconds and 0."""
    mean_size, mean_s = sum(sizes) / len(sizes), sum(seconds) / len(seconds)
    spread = sum((size - mean_size) ** 2 for size in sizes)
    together = sum((size - mean_size) * (each - mean_s) for size, each in zip(sizes, seconds, strict=True))
    slope = min(together / spread, mean_s / mean_size) if spread else 0.0
    return mean_s - slope * mean_size, slope
