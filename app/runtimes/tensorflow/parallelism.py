"""How the cores of a machine are shared among the calls that are computed at the same time.

One call alone seldom keeps many threads busy: it waits for its slowest thread at each operation. So cores are better
given to several calls with a few threads each (docs/architecture.md, "Cores").
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

#: With more threads an operation gains little; another call gains more.
_THREADS_EACH = 4

_CGROUP = Path("/sys/fs/cgroup")

#: Microseconds of CPU that a container may use, and in how many: in one file of cgroup v2, in two of v1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Those that this process may run on, no more than its container may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in _QUOTAS:
        with suppress(OSError, ValueError):  # no such limit
            most, period = " ".join((cgroup / file).read_text() for file in files).split()
            if int(most) > 0:  # v1 says -1 where there is none
                return min(cores, ceil(int(most) / int(period)))
    return cores


def share_cores(cores: int, calls: int = 0, threads: int = 0) -> tuple[int, int]:
    """Calls at the same time, and threads inside each; what is above 0 is fixed.

    Where nothing is fixed there are two calls, more where each gets `_THREADS_EACH` threads.
    """
    if not calls:
        most = max(2, cores // _THREADS_EACH) if cores > 1 else 1
        calls = min(most, max(1, cores // threads)) if threads else most
    return calls, threads or max(1, cores // calls)
