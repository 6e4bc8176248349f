"""Is this process short of CPU? Pure: both clocks come in as numbers.

What calls of late say of the next: how slow they get, and whether a pause between them would pay. Pure."""

from __future__ import annotations

from math import inf

from app.batching.batch import Execution
from app.batching.function import BatchFunction

#: Shorter stretches say little, and process clocks may be coarse.
_WINDOW_S = 0.05

#: Cores' worth of work from which on calls saved are worth waiting for.
_BUSY_CORES = 0.75


class Busyness:
    """The CPU time of the process as a share of wall time, over the last window."""

    def __init__(self, now: float, cpu_s: float) -> None:
        self._since = now
        self._cpu_s = cpu_s
        self.busy = False

    def note(self, now: float, cpu_s: float) -> bool:
        """To be told often; returns whether the process is busy."""
        window_s = now - self._since
        if window_s >= _WINDOW_S:
            self.busy = cpu_s - self._cpu_s >= _BUSY_CORES * window_s
            self._since, self._cpu_s = now, cpu_s
        return self.busy


#: How much of the slowest call is remembered at the next.
_FADE = 0.99


class CallStatistics:
    """Of all functions together.

    Args:
        now: monotonic seconds.
        cpu_s: seconds of CPU that the process has used.

    Attributes:
        slowest_s: seconds that hardly a call takes longer.
        idle_since_s: when a device last became free, while the process is short of CPU; else -infinity.
    """

    def __init__(self, now: float, cpu_s: float) -> None:
        self._busyness = Busyness(now, cpu_s)
        self.slowest_s = 0.0
        self.idle_since_s = -inf

    def expect(self, seconds: float) -> None:
        """A call begins that will foreseeably take so long."""
        self.slowest_s = max(self.slowest_s, seconds)

    def note(self, function: BatchFunction, execution: Execution, cpu_s: float, *, on_device: bool) -> None:
        """A call ended. One on the event loop was handed to nobody, so no pause follows it."""
        busy = self._busyness.note(execution.ended_s, cpu_s)
        self.idle_since_s = execution.ended_s if busy and on_device else -inf
        seconds = execution.ended_s - execution.started_s
        function.took(seconds)
        self.slowest_s = max(seconds, self.slowest_s * _FADE)
