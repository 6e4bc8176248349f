"""The progress of a run and the time that is left. Pure except for the clock that it is given."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


class Progress:
    """Counts expected seconds; what is left is scaled by how long the done part really took.

    Args:
        total_s: expected seconds of everything.
        clock: monotonic seconds.
    """

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_s, self._done_s = total_s, 0.0
        self._clock = clock
        self._begin_s = clock()

    def advance(self, expected_s: float) -> None:
        """A step that was expected to take this long is done, or left out."""
        self._done_s = min(self._total_s, self._done_s + expected_s)

    def left_s(self) -> float:
        pace = (self._clock() - self._begin_s) / self._done_s if self._done_s else 1.0
        return pace * (self._total_s - self._done_s)

    def line(self) -> str:
        return f"{100 * self._done_s / self._total_s:.0f} %, {self.left_s() / 60:.0f} min left"

    def say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}, {self.line()}] {text}", file=sys.stderr, flush=True)
