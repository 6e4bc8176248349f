"""How much memory this process has, and how much it may still take: of the machine, or of its container if less."""

from __future__ import annotations

import ctypes
import os
from math import inf
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import ClassVar, Self

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


#: Of the memory that is left, what one step of a load may take. Chosen.
_LOADING_SHARE = 1 / 4


def available_bytes(root: Path = Path("/")) -> float:
    """Bytes that can be taken now without swapping; infinity where the system does not say."""
    return min(_of_machine(root), *(_of_group(root, *files) for files in _GROUPS))


def resident_bytes() -> float:
    """The resident memory of this process (RSS); infinity where the system does not say."""
    pages = _read(Path("/proc/self/statm")).split()[1:2]
    return float(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else inf


def loading_bytes(most_mb: int = 0) -> float:
    """Bytes that one step of a load may take now: `most_mb` megabytes, or if that is 0, a share of what is left."""
    return most_mb * 2.0**20 or _LOADING_SHARE * available_bytes()


def give_back() -> None:
    """Returns the pages of freed blocks to the system, if there is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class PeakMemory:
    """The most resident memory in a block above that at its beginning, of the whole process. Blocks may overlap.

    Freed memory is given back first: what a block takes of it would not be seen. The kernel keeps the peak and forgets
    it when told to (proc(5), clear_refs); where that is not allowed it is 0.

    Attributes:
        bytes: known when the block has ended.
    """

    _lock = Lock()
    _open: ClassVar[set[PeakMemory]] = set()

    def __init__(self) -> None:
        self.bytes = 0.0
        self._before = self._highest = 0.0

    def __enter__(self) -> Self:
        give_back()
        with self._lock:
            self._note()  # who forgets the peak takes it from the others
            try:
                Path("/proc/self/clear_refs").write_text("5")
            except OSError:
                return self
            self._before = self._highest = resident_bytes()
            self._open.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._note()
            self._open.discard(self)
        self.bytes = max(0.0, self._highest - self._before)

    @classmethod
    def _note(cls) -> None:
        peak = _peak_bytes()
        for each in cls._open:
            each._highest = max(each._highest, peak)


def _peak_bytes() -> float:
    for line in _read(Path("/proc/self/status")).splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) * 1024
    return 0.0


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
