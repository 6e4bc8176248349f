"""The cost model: the seconds of calls by their rows, how they vary, and the rate of rows. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from app.batching.costs.curve import CostCurve
from app.batching.costs.pace import CALLS, DRIFT, OUTLIER, Pace
from app.core.batch_sizes import BatchSizes

#: A longer time between two calls says nothing about the rate at which requests come when they do. Chosen.
_SILENCE_S = 0.25

#: The reach of the rate of rows, in calls. Chosen.
_RATE_CALLS = 8

#: The margin of planned calls, in mean deviations: of normally distributed calls 999 of 1000 take less. Chosen, as in
#: RFC 6298.
DEVIATIONS = 4.0

#: The deviation of calls before it is measured. Chosen.
_FIRST_DEVIATION = 0.025

#: The weight of a call that is slower than usual in `undisturbed_s`. Chosen: a size that became slow leaves the event
#: loop within a few calls.
_SLOWER_WEIGHT = 1 / 16

#: The most that the margin adds to `undisturbed_s`: the delays that a busy machine adds to calls on threads do not tell
#: how much a call itself varies. Chosen.
_MOST_UNDISTURBED_MARGIN = 0.25

#: One of this many batches tries the next larger size. Measured with calls of given costs: trying a size
#: that costs 1.5 times as much as it should takes 0.3 % of the rows per second, one that costs 3 times as much 1.3 %.
_EXPLORE_EVERY = 256

#: The average of a size that was not called in this many batches is old: the next call counts as much as it. Chosen.
_STALE_BATCHES = _EXPLORE_EVERY // 2


class CallSeconds(NamedTuple):
    """The expected seconds of calls, and the square of their deviation; calls vary independently of each other."""

    seconds: float = 0.0
    variance: float = 0.0


class Costs:
    """The costs of calls of one function and inner shape, as recent averages: seconds by batch size, rows per second.

    Args:
        initial_estimates: seconds by size that were measured before the first call.
        guess: seconds by size that hold until the first call; a call that was only guessed is not known to be quick.

    Attributes:
        curve: the costs of all sizes; None before the first measurement, unless there is a guess.
        pace: the seconds that calls take of the machine, waits between them included; `curve` before any was made.
        deviation: the mean deviation of calls from their estimate, as a share of it.
        margin: the share by which calls may take longer than expected; they seldom take more. As TCP's retransmission
            timer (RFC 6298), which waits for the mean and four mean deviations.
        explores: whether the next batch is to try the next larger size: a size that was measured in a bad moment is
            not called, so its estimate would never be corrected.
    """

    __slots__ = (
        "_averages", "_batches", "_dispatched_s", "_drawn", "_interval_s", "_pace", "_rows", "_sizes", "_undisturbed",
        "curve", "deviation", "explores", "margin", "pace",
    )  # fmt: skip

    def __init__(
        self,
        sizes: BatchSizes,
        initial_estimates: Mapping[int, float] | None = None,
        guess: Mapping[int, float] | None = None,
    ) -> None:
        self._sizes = sizes.allowed
        # Seconds by size: the average, of how many calls, and the number of batches at the last one
        self._averages = {size: (seconds, 1, 0) for size, seconds in (initial_estimates or {}).items()}
        # By size and the power of two above the elements, where these differ from call to call
        self._undisturbed = {(size, 0): seconds for size, seconds in (initial_estimates or {}).items()}
        self._batches = 0  # dispatched so far
        self._drawn: dict[int, float] = {}
        self._rows = self._interval_s = 0.0
        self._dispatched_s = -inf
        self.explores = False
        self.deviation = _FIRST_DEVIATION
        self.margin = DEVIATIONS * _FIRST_DEVIATION
        self.curve: CostCurve | None = None
        self.pace: CostCurve | None = None
        self._pace: Pace | None = None
        if self._averages:
            self._draw()
        elif guess:
            self.curve = self.pace = CostCurve.through(self._sizes, guess)

    @property
    def measured(self) -> Collection[int]:
        """The sizes whose costs in the curve were measured; the rest are fitted."""
        return self._drawn.keys()

    def call_s(self, rows: int) -> float:
        """The seconds that a call of `rows` rows is expected to take; 0 if that is unknown."""
        return self.curve.call_s(rows) if self.curve is not None else 0.0

    def scaled(self, ratio: float) -> Mapping[int, float]:
        """Seconds by size of calls whose rows have `ratio` times as many elements; empty before the first call."""
        if self.curve is None:
            return {}
        return {size: ratio * seconds for size, seconds in zip(self.curve.sizes, self.curve.seconds, strict=True)}

    @property
    def rows_per_s(self) -> float:
        """The rate of dispatched rows while requests come; infinity before it is known."""
        return self._rows / self._interval_s if self._interval_s else inf

    def undisturbed_s(self, rows: int, elements: int = 0) -> float:
        """The seconds of a call that nothing slows down, with its margin.

        Infinity if no such call and no larger one was made: a smaller one says nothing.

        Args:
            rows: the rows of the call, padding included.
            elements: the elements of its inputs, where rows and inner shape do not tell how many these are.
        """
        bits = elements.bit_length()
        known = [seconds for (size, least), seconds in self._undisturbed.items() if size >= rows and least >= bits]
        return min(known, default=inf) * (1 + min(self.margin, _MOST_UNDISTURBED_MARGIN))

    def is_quick(self, rows: int, limit_s: float, elements: int = 0) -> bool:
        """Whether `undisturbed_s` is below `limit_s`. Mostly its own size tells: then no other is looked at."""
        own_s = self._undisturbed.get((rows, elements.bit_length()), inf)
        margin = 1 + min(self.margin, _MOST_UNDISTURBED_MARGIN)
        return own_s * margin < limit_s or self.undisturbed_s(rows, elements) < limit_s

    def record_undisturbed(self, rows: int, seconds: float, elements: int = 0, *, succeeded: bool = True) -> None:
        """Takes a call's time into account: a quicker one at once, a slower one little by little.

        On a busy machine most calls are slowed down: by the GIL, by other processes. A call that failed may have ended
        early: it only counts if it was slower.
        """
        key = rows, elements.bit_length()
        known_s = self._undisturbed.get(key, seconds)
        if succeeded or seconds > known_s:
            self._undisturbed[key] = min(seconds, known_s + (seconds - known_s) * _SLOWER_WEIGHT)

    def record_dispatch(self, rows: int, now: float) -> None:
        self._batches += 1
        self.explores = self._batches % _EXPLORE_EVERY == _EXPLORE_EVERY - 1
        interval_s = now - self._dispatched_s
        self._dispatched_s = now
        if interval_s < _SILENCE_S:
            self._rows += (rows - self._rows) / _RATE_CALLS
            self._interval_s += (interval_s - self._interval_s) / _RATE_CALLS

    def record_call(self, rows: int, seconds: float, taken_s: float = 0.0, calls_beside: int = 1) -> None:
        """Counts a call of `rows` rows, padding included, that took `seconds`; a call without rows is not counted.

        Args:
            taken_s: since the machine was free for it; 0 if that is not known.
            calls_beside: how many calls shared the machine meanwhile.
        """
        if not rows:
            return
        expected_s = self.curve.call_s(rows) if self.curve is not None and self._averages else 0.0  # no guess
        if expected_s:
            self.deviation += (min(abs(seconds / expected_s - 1), 1.0) - self.deviation) / CALLS
            self.margin = DEVIATIONS * self.deviation
        average, calls, batch = self._averages.get(rows, (seconds, 0, self._batches))
        stale = self._batches - batch >= _STALE_BATCHES
        calls = min(calls + 1, 2 if stale else CALLS)
        average += (min(seconds, OUTLIER * average) - average) / calls
        self._averages[rows] = average, calls, self._batches
        if stale or abs(average - self._drawn.get(rows, 0.0)) > DRIFT * average:
            self._draw()
        if taken_s and self.curve is not None:
            if self._pace is None:
                self._pace = Pace(self.curve)
            self._pace.record(rows, taken_s, calls_beside, self.curve, stale=stale)
            self.pace = self._pace.curve

    def _draw(self) -> None:
        self._drawn = {size: average for size, (average, *_) in self._averages.items()}
        self.curve = self.pace = CostCurve.through(self._sizes, self._drawn)
        if self._pace is not None:
            self._pace.follow(self.curve)
            self.pace = self._pace.curve
