"""How much memory this process has, and how much it may still take: of the machine, or of its container if less."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

#: Files of control groups, version 2 and version 1: the limit, what is used, and what of it is a cache of files, which
#: the kernel gives back.
_GROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat", "inactive_file"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_bytes(root: Path = Path("/")) -> float:
    """Bytes that can be taken now without swapping; infinity where the system does not say."""
    return min(_of_machine(root), *(_of_group(root, *files) for files in _GROUPS))


def resident_bytes() -> float:
    """The resident memory of this process (RSS); infinity where the system does not say."""
    pages = _read(Path("/proc/self/statm")).split()[1:2]
    return float(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else inf


def _of_machine(root: Path) -> float:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return inf


def _of_group(root: Path, limit: str, used: str, statistics: str, cached: str) -> float:
    limit_text, used_text = _read(root / limit).strip(), _read(root / used).strip()
    if not (limit_text.isdigit() and used_text.isdigit()):
        return inf
    pairs = [line.split() for line in _read(root / statistics).splitlines()]
    cache = next((float(number) for name, number in pairs if name == cached), 0.0)
    return max(0.0, float(limit_text) - float(used_text) + cache)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
