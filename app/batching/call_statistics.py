"""How long calls take at most, over all functions. No I/O, no clock."""

from __future__ import annotations

from app.batching.batch import Execution
from app.batching.function import BatchFunction

#: How much of the slowest call is remembered at the next one: half of it after 69 calls. Chosen.
_FADE = 0.99


class CallStatistics:
    """Of all functions together.

    Attributes:
        slowest_s: seconds that hardly a call takes longer.
    """

    def __init__(self) -> None:
        self.slowest_s = 0.0

    def expect(self, seconds: float) -> None:
        """A call begins that is expected to take so long."""
        self.slowest_s = max(self.slowest_s, seconds)

    def note(self, function: BatchFunction, execution: Execution) -> None:
        """A call ended."""
        seconds = execution.ended_s - execution.started_s
        function.took(seconds)
        self.slowest_s = max(seconds, self.slowest_s * _FADE)
