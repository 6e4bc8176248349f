"""The cost curve: the seconds of a call by its rows, and the best rows of calls by that. No state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

#: Smaller batches must save this share of the time, where the costs around a call are not measured. Chosen.
_LEAST_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class CostCurve:
    """A curve: the seconds of a call at each row count that the model is called with; more rows never cost less."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    _efficient: tuple[int, ...] = field(init=False, repr=False)
    _least: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)  # as asked for

    def __post_init__(self) -> None:
        object.__setattr__(self, "_efficient", _efficient_rows(self.sizes, self.seconds))

    @property
    def efficient_rows(self) -> int:
        """The largest size at which a row costs hardly more than at any other."""
        return self._efficient[-1]

    @classmethod
    def through(cls, sizes: Sequence[int], measured: Mapping[int, float]) -> CostCurve:
        """A curve through measured seconds; other sizes get a + b * rows, fitted, within their neighbours' seconds.

        `measured` holds seconds by size, at least one.
        """
        return cls(tuple(sizes), _seconds_through(sizes, measured))

    def call_s(self, rows: int) -> float:
        """The seconds of a call with `rows` rows, padded; at most those of the largest size."""
        return self.seconds[min(bisect_left(self.sizes, rows), len(self.sizes) - 1)]

    def rows_within(self, seconds: float) -> int:
        """The largest size whose call takes no longer, or, if there is none, hardly longer than the smallest."""
        return self.sizes[bisect_right(self.seconds, max(seconds, self.seconds[0] / (1 - _LEAST_GAIN))) - 1]

    def efficient_within(self, most_rows: int) -> int:
        """The largest size at which a row costs hardly more than at any other, at most `most_rows`."""
        index = bisect_left(self.sizes, min(most_rows, self.sizes[-1]))
        return min(most_rows, self._efficient[index])

    def larger_within(self, rows: int, seconds: float, most_rows: int) -> int:
        """The next size above `rows`, if its call takes no longer; at most `most_rows`."""
        index = min(bisect_right(self.sizes, rows), len(self.sizes) - 1)
        return max(rows, min(self.sizes[index], self.rows_within(seconds), most_rows))

    def first_rows(self, rows: int) -> int:
        """The number of rows to take of `rows` waiting ones: all, or the next smaller size if that is clearly cheaper.

        It is cheaper if a row costs less in it than in the padded call; the rest then shares the next call with
        requests that come meanwhile. It is cheaper, too, if all rows are done sooner: 5 rows may be quicker as 4 and 1
        than as 8.
        """
        index = bisect_left(self.sizes, rows)
        if index == len(self.sizes):
            return self.sizes[-1]
        if not index or self.sizes[index] == rows:
            return rows
        below, below_s, most_s = (
            self.sizes[index - 1],
            self.seconds[index - 1],
            (1 - _LEAST_GAIN) * self.seconds[index],
        )
        cheaper = below_s / below < most_s / rows or below_s + self._least_s(rows - below) < most_s
        return below if cheaper else rows

    def _least_s(self, rows: int) -> float:
        """The seconds until `rows` rows are done, taken as `first_rows` says. A loop: sizes may be far apart."""
        known, unknown, left = self._least, list[int](), rows
        while left not in known:
            unknown.append(left)
            index = bisect_left(self.sizes, left)
            if not index or self.sizes[index] == left:  # one call
                break
            left -= self.sizes[index - 1]
        for each in reversed(unknown):  # `known` has the seconds of the rows that are left after its first call
            first = self.first_rows(each)
            known[each] = self.call_s(first) + (known[each - first] if first < each else 0.0)
        return known[rows]


def _efficient_rows(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[int, ...]:
    """For each size: the largest, of the sizes up to it, at which a row costs at most a little more than the least."""
    row_s = [each / size for size, each in zip(sizes, seconds, strict=True)]
    good, efficient = list[int](), []  # indexes, ascending; a size that costs too much now always will
    for index, least_s in enumerate(accumulate(row_s, min)):
        good.append(index)
        while row_s[good[-1]] > least_s / (1 - _LEAST_GAIN):
            good.pop()
        efficient.append(sizes[good[-1]])
    return tuple(efficient)


def _seconds_through(sizes: Sequence[int], measured: Mapping[int, float]) -> tuple[float, ...]:
    known = sorted(measured)
    # A small call that cost more than a larger one is noise.
    least = list(accumulate([measured[size] for size in reversed(known)], min))[::-1]
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
    """a and b of a + b * size by least squares, neither below 0; of a single point its seconds and 0."""
    mean_size, mean_s = sum(sizes) / len(sizes), sum(seconds) / len(seconds)
    variance = sum((size - mean_size) ** 2 for size in sizes)
    covariance = sum((size - mean_size) * each for size, each in zip(sizes, seconds, strict=True))
    slope = min(covariance / variance, mean_s / mean_size) if variance else 0.0
    return mean_s - slope * mean_size, slope
