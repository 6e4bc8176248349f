"""A limit on the time that optional work may take."""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeBudget:
    """`seconds` from now on; every step that shares the budget asks it before it begins."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end_s = clock() + seconds

    def allows(self, needed_s: float = 0.0) -> bool:
        """Whether a step that takes `needed_s` seconds would end before the budget does."""
        return self._clock() + needed_s < self._end_s
