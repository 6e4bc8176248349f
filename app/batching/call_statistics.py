"""How long calls take at most, over all functions. No I/O, no clock."""

from __future__ import annotations

from app.batching.batch import Execution
from app.batching.function import BatchFunction

#: How much of the slowest call is remembered at the next one: half of it after 69 calls. Chosen.
_FADE = 0.99


class CallStatistics:
    """Of all functions together.

    Attributes:
        slowest_s: seconds that hardly a call exceeds.
    """

    def __init__(self) -> None:
        self.slowest_s = 0.0

    def record_dispatch(self, expected_s: float) -> None:
        """Counts a call that starts now and is expected to take so long."""
        self.slowest_s = max(self.slowest_s, expected_s)

    def record_call(self, function: BatchFunction, execution: Execution) -> None:
        """Counts a call that ended."""
        seconds = execution.ended_s - execution.started_s
        function.record_latency(seconds)
        self.slowest_s = max(seconds, self.slowest_s * _FADE)
