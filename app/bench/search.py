"""Which rate to try next, to find the highest that a server bears. Pure."""

from __future__ import annotations


class RateSearch:
    """Doubles the rate until one is too high, then halves the gap, until it is narrower than `precision`.

    Args:
        first: requests a second to begin with; where that is too high already, it goes down by halves.
        most_trials: it ends then, however wide the gap is.
        precision: the highest good rate is known when the lowest bad one is at most this much above, as a share.
    """

    def __init__(self, first: float, most_trials: int = 14, precision: float = 0.05) -> None:
        if first <= 0:
            raise ValueError(f"The first rate must be above 0, not {first:g}")
        self.best: float | None = None
        self.trials_left = most_trials
        self._bad: float | None = None
        self._next = first
        self._precision = precision

    def next_rate(self) -> float | None:
        """None when there is nothing left to learn."""
        if self.trials_left <= 0 or self._next < 1:
            return None
        if self.best is not None and self._bad is not None and self._bad <= self.best * (1 + self._precision):
            return None
        return self._next

    def record(self, rate: float, good: bool) -> None:
        self.trials_left -= 1
        if good:
            self.best = max(rate, self.best or 0.0)
        else:
            self._bad = min(rate, self._bad or rate)
        if self._bad is None:
            self._next = rate * 2
        elif self.best is None:
            self._next = self._bad / 2
        else:
            self._next = (self.best * self._bad) ** 0.5
