"""The division of a machine's cores among calls that are computed at the same time.

One call seldom keeps many threads busy, because each operation waits for its slowest thread. Several calls with a few
threads each use the cores better (docs/architecture/batching-core.md, "Cores").
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

#: Threads of a call: further threads help another call more than this one. Chosen, after measuring two cores
#: (docs/architecture/batching-core.md, "Cores").
_THREADS_EACH = 4

_CGROUP = Path("/sys/fs/cgroup")

#: Files with the CPU quota and its period, in microseconds: one file in cgroup v2, two files in v1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """The number of cores that this process may use: its CPU affinity, limited by its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in _QUOTAS:
        with suppress(OSError, ValueError):  # no such limit
            most, period = " ".join((cgroup / file).read_text() for file in files).split()
            if int(most) > 0:  # v1 writes -1 if there is no limit
                return min(cores, ceil(int(most) / int(period)))
    return cores


def share_cores(cores: int, calls: int = 0, threads: int = 0) -> tuple[int, int]:
    """The number of calls at the same time, and the number of threads of each.

    Args:
        calls, threads: fixed by the settings; 0 lets this function choose. If both are 0, there are two calls, or more
            if each gets `_THREADS_EACH` threads.
    """
    if not calls:
        most = max(2, cores // _THREADS_EACH) if cores > 1 else 1
        calls = min(most, max(1, cores // threads)) if threads else most
    return calls, threads or max(1, cores // calls)
