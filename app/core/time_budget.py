"""A limit on the time that optional work may take."""

from __future__ import annotations

import time
from collections.abc import Callable


class NoTimeLeft(Exception):
    """A step would end after its time budget, or is not wanted any more."""


class TimeBudget:
    """`seconds` of work from now on; every step that shares the budget asks it before it begins.

    Args:
        gate: called before each step. It returns when the step may begin, False if no step may begin any more. The time
            that it waits is not counted.
        left_s: what earlier work left of the budget.

    Attributes:
        seconds: the whole budget.
        cancelled: True once the gate let no step begin any more: what was found so far is not all there is to find.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
        gate: Callable[[], bool] | None = None,
        left_s: float | None = None,
    ) -> None:
        self.seconds = seconds
        self.cancelled = False
        self._clock = clock
        self._gate = gate
        self._end_s = clock() + (seconds if left_s is None else left_s)

    def allows(self, needed_s: float = 0.0) -> bool:
        """Whether a step that takes `needed_s` seconds may begin now and would end before the budget does."""
        return self._open() and self._clock() + needed_s < self._end_s

    def part(self, share: float) -> TimeBudget:
        """A share of what is left, for steps that must leave time to later ones."""
        return TimeBudget(self.seconds, self._clock, self._open, share * self.left_s)

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - self._clock())

    def _open(self) -> bool:
        if self._gate is not None and not self.cancelled:
            begin_s = self._clock()
            self.cancelled = not self._gate()
            self._end_s += self._clock() - begin_s
        return not self.cancelled
