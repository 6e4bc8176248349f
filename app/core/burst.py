"""A burst: requests that arrived at about the same time and are begun in several turns of the event loop.

A request with a long body takes long to begin. A part that groups requests would see one or two of them in each turn;
so it may wait for the end of the burst, which comes soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: A burst ends after this many seconds, though requests are left. Chosen: sixteen images as JSON, and no deadline.
LONGEST_S = 0.05


class Burst:
    """The state of the present burst: the part that begins requests sets it, the part that groups them reads it.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: Whether requests that arrived by now have not begun.
        self.is_open = False
        self._end_s = 0.0
        self._clock = clock
        self._on_end: list[Callable[[], None]] = []

    def on_end(self, call: Callable[[], None]) -> None:
        """`call` is called at the end of each burst."""
        self._on_end.append(call)

    def turn_ended(self, more: bool) -> None:
        """A turn of the event loop began requests; `more`: other requests wait for the next turn."""
        if not self.is_open:
            self.is_open, self._end_s = more, self._clock() + LONGEST_S
        elif not more or self._clock() >= self._end_s:
            self.is_open = False
            for call in self._on_end:
                call()

    def __repr__(self) -> str:
        return f"<Burst {'open' if self.is_open else 'over'}>"
