"""What calls of a model were measured to cost, how they vary, and how fast their rows come. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from math import inf

from app.batching.cost_curve import CostCurve
from app.batching.padding import BatchSizes

#: How far back the average of a size reaches, in calls.
_CALLS = 16

#: A longer pause between calls says nothing about how fast requests come when they do.
_SILENCE_S = 0.25

#: How far back the rate of rows reaches, in calls.
_RATE_CALLS = 8

#: A call is counted as at most so many times the average: one that was held up says little about the next.
_OUTLIER = 4.0

#: A change of an average by this share is worth a new curve.
_DRIFT = 0.1

#: How many mean deviations calls are planned to take longer: if they vary normally, 999 of 1000 take less.
_DEVIATIONS = 4.0

#: Of each call, before it is known how they vary.
_FIRST_DEVIATION = 0.025

#: By which share a size is hoped to have become cheaper where so many calls in a row were smaller.
_HOPE, _HOPE_CALLS = 0.02, 64


class Costs:
    """Averages of the seconds that calls of each size took of late, and of the rows that are taken per second.

    Args:
        seeds: seconds by size that were measured before the first call.
    """

    __slots__ = (
        "_averages",
        "_calls",
        "_deviation",
        "_drawn",
        "_hopes",
        "_interval_s",
        "_largest",
        "_rows",
        "_sizes",
        "_taken_s",
        "curve",
    )

    def __init__(self, sizes: BatchSizes, seeds: Mapping[int, float] | None = None) -> None:
        self._sizes = sizes.allowed
        self._averages = {size: (seconds, 1) for size, seconds in (seeds or {}).items()}
        self._hopes: dict[int, float] = {}
        self._largest = self._calls = 0  # since hope was given last
        self._drawn: dict[int, float] = {}
        self._rows = self._interval_s = 0.0
        self._taken_s = -inf
        self._deviation = _FIRST_DEVIATION
        self.curve: CostCurve | None = None
        if self._averages:
            self._draw()

    @property
    def measured(self) -> Collection[int]:
        """The sizes of which the curve tells what was measured, not what was fitted."""
        return self._drawn.keys()

    @property
    def rows_per_s(self) -> float:
        """Infinity before it is known."""
        return self._rows / self._interval_s if self._interval_s else inf

    @property
    def margin(self) -> float:
        """By which share calls may take longer than expected, seldom more. After the estimate of TCP's retransmission
        timer (RFC 6298), which also waits for the mean and four mean deviations."""
        return _DEVIATIONS * self._deviation

    def taken(self, rows: int, now: float) -> None:
        """A batch with `rows` rows begins."""
        interval_s = now - self._taken_s
        self._taken_s = now
        if interval_s < _SILENCE_S:
            self._rows += (rows - self._rows) / _RATE_CALLS
            self._interval_s += (interval_s - self._interval_s) / _RATE_CALLS

    def note(self, rows: int, seconds: float) -> None:
        """A call with `rows` rows, padding counted, took so long."""
        expected_s = self.curve.call_s(rows) if self.curve is not None else 0.0
        if expected_s:
            self._deviation += (min(abs(seconds / expected_s - 1), 1.0) - self._deviation) / _CALLS
        average, calls = self._averages.get(rows, (seconds, 0))
        tried_again = self._hopes.pop(rows, None) is not None
        calls = min(calls + 1, 2 if tried_again else _CALLS)
        average += (min(seconds, _OUTLIER * average) - average) / calls
        self._averages[rows] = average, calls
        if self._give_hope(rows) or tried_again or abs(average - self._drawn.get(rows, 0.0)) > _DRIFT * average:
            self._draw()

    def _give_hope(self, called: int) -> bool:
        """To sizes that are larger than any that was called of late; true where there are some."""
        self._largest = max(self._largest, called)
        self._calls += 1
        if self._calls < _HOPE_CALLS:
            return False
        larger = self._sizes[bisect_right(self._sizes, self._largest) :]
        for size in larger:
            self._hopes[size] = (1 - _HOPE) * self._hopes.get(size, 1.0)
        self._largest = self._calls = 0
        return bool(larger)

    def _draw(self) -> None:
        self._drawn = {size: average for size, (average, _) in self._averages.items()}
        self.curve = CostCurve.through(self._sizes, self._drawn, self._hopes)
