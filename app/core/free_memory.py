"""How much memory this process may still take: what the machine has left, limited by its container."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path

_CGROUP, _MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")

#: Files with the limit and the use, in bytes: cgroup v2, then v1.
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_memory(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> float:
    """Bytes; infinity where the system does not tell."""
    free = inf
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        free = int(line.split()[1]) * 1024
    for limit, used in _LIMITS:
        with suppress(OSError, ValueError):  # no such limit, or 'max'
            return max(0.0, min(free, int((cgroup / limit).read_text()) - int((cgroup / used).read_text())))
    return free
