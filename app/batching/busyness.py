"""Is this process short of CPU? Pure: both clocks come in as numbers."""

from __future__ import annotations

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
