"""A limit on the time that optional work may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf


class OverBudget(Exception):
    """A step is left out: it would take more time or memory than is left, or is not wanted any more."""


class NoTimeLeft(OverBudget):
    """A step would end after its time budget, or is not wanted any more."""


class TooMuchMemory(OverBudget):
    """A step would take more memory than it may."""


class TimeBudget:
    """A budget of `seconds` of work from now on; every step that shares it asks it before it begins.

    Args:
        gate: called before each step. It returns when the step may begin, False if no step may begin any more. The time
            that it waits is not counted.
        left_s: the seconds that earlier work left of the budget.
        longest_s: no step may take longer, however much is left.

    Attributes:
        seconds: the whole budget.
        cancelled: True once the gate let no step begin any more: findings so far are not complete.
        short: True once a step was left out that a larger budget would have allowed, here or in a part of it.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
        gate: Callable[[], bool] | None = None,
        left_s: float | None = None,
        longest_s: float = inf,
    ) -> None:
        self.seconds = seconds
        self.longest_s = longest_s
        self.cancelled = False
        self.short = False
        self._whole: TimeBudget | None = None
        self._clock = clock
        self._gate = gate
        self._end_s = clock() + (seconds if left_s is None else left_s)

    def allows(self, needed_s: float = 0.0) -> bool:
        """Whether a step that takes `needed_s` seconds may begin now and would end before the budget does."""
        if not self._open() or needed_s > self.longest_s:
            return False
        in_time = self._clock() + needed_s < self._end_s
        if not in_time:
            self.mark_short()
        return in_time

    def mark_short(self) -> None:
        """Notes that a step was left out for lack of time."""
        self.short = True
        if self._whole is not None:
            self._whole.mark_short()

    def part(self, share: float) -> TimeBudget:
        """A budget of a share of the time left, for steps that must leave time to later ones."""
        part = TimeBudget(self.seconds, self._clock, self._open, share * self.left_s, self.longest_s)
        part._whole = self
        return part

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - self._clock())

    def _open(self) -> bool:
        if self._gate is not None and not self.cancelled:
            begin_s = self._clock()
            self.cancelled = not self._gate()
            self._end_s += self._clock() - begin_s
        return not self.cancelled
