"""The search for the highest rate that a server answers in time: the choice of the next rate. No I/O, no clock."""

from __future__ import annotations

#: The share by which the lowest bad rate may be above the highest good one at the end of a search. Chosen.
_PRECISION = 0.05


class RateSearch:
    """One search: it doubles the rate until one is too high, then bisects geometrically until the gap is at most 5 %.

    Args:
        first: the first rate, requests a second; if it is too high already, rates are halved.
        most_trials: the search ends after this many, however wide the gap is.
    """

    def __init__(self, first: float, most_trials: int = 14) -> None:
        self.best: float | None = None
        self.trials_left = most_trials
        self._bad: float | None = None
        self._next = first

    def next_rate(self) -> float | None:
        """The rate to try next; None if the search has ended."""
        if self.trials_left <= 0 or self._next < 1:
            return None
        if self.best is not None and self._bad is not None and self._bad <= self.best * (1 + _PRECISION):
            return None
        return self._next

    def record(self, rate: float, good: bool) -> None:
        self.trials_left -= 1
        if good:
            self.best = max(rate, self.best or 0.0)
        else:
            self._bad = min(rate, self._bad or rate)
        # Double, halve, or take the geometric mean of the best and the lowest bad rate.
        if self._bad is None:
            self._next = rate * 2
        elif self.best is None:
            self._next = self._bad / 2
        else:
            self._next = (self.best * self._bad) ** 0.5
