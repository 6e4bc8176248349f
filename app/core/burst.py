"""A burst: requests that arrived at about the same time and are begun in several turns of the event loop.

Beginning one takes long where its body does. Whoever groups requests would see one or two of them in each turn; so it
may wait for the end of the burst, which comes soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: A burst ends after this many seconds, though requests are left. Chosen: sixteen images as JSON, and no deadline.
LONGEST_S = 0.05


class Burst:
    """Is told by the side that begins requests, and tells the side that groups them.

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
        """`call` is called whenever a burst has ended."""
        self._on_end.append(call)

    def turn_ended(self, more: bool) -> None:
        """Requests were begun; `more`: others wait for the next turn."""
        if not self.is_open:
            self.is_open, self._end_s = more, self._clock() + LONGEST_S
        elif not more or self._clock() >= self._end_s:
            self.is_open = False
            for call in self._on_end:
                call()

    def __repr__(self) -> str:
        return f"<Burst {'open' if self.is_open else 'over'}>"
