"""How much memory this process has, and how much it may still take: of the machine, or of its container if less."""

from __future__ import annotations

import ctypes
import os
from math import inf
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import ClassVar, NamedTuple, Self


class _Group(NamedTuple):
    """Where a version of control groups tells of memory: the folder of its root, and names of files and of counters.

    `cached`: files in memory, which the kernel gives back: those not used for long, and those in use.
    """

    folder: str
    controller: str  # in /proc/self/cgroup
    limit: str
    used: str
    cached: tuple[str, str]


_GROUPS = (
    _Group("sys/fs/cgroup", "", "memory.max", "memory.current", ("inactive_file", "active_file")),
    _Group(
        "sys/fs/cgroup/memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)

#: Of files in memory that are in use, what counts as free. Chosen: libraries are among them.
_ACTIVE_SHARE = 1 / 2


#: Of the memory that is left, what one step of a load may take. Chosen.
_LOADING_SHARE = 1 / 4


def available_bytes(root: Path = Path("/")) -> float:
    """Bytes that can be taken now without swapping; infinity where the system does not say."""
    groups = [_left_in(folder, group) for group in _GROUPS for folder in _folders(root, group)]
    return min(_of_machine(root, "MemAvailable:"), *groups)


def container_left_bytes(root: Path = Path("/")) -> float:
    """Bytes that the limit of this process's container leaves; infinity where it has none."""
    machine = _of_machine(root, "MemTotal:")
    places = [(folder, group) for group in _GROUPS for folder in _folders(root, group)]
    return min((_left_in(*place) for place in places if _number(place[0] / place[1].limit) < machine), default=inf)


def limit_bytes(root: Path = Path("/")) -> float:
    """The memory of the machine, or of the container if it may have less; infinity where the system does not say."""
    limits = [_number(folder / group.limit) for group in _GROUPS for folder in _folders(root, group)]
    return min(_of_machine(root, "MemTotal:"), *limits)


def data_bytes(pid: int) -> float:
    """What RLIMIT_DATA counts of a process. Raises OSError where the system does not say."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return float(line.split()[1]) * 1024
    raise OSError("No VmData")


def resident_bytes(pid: int | None = None) -> float:
    """The resident memory of this process (RSS), or of another; infinity where the system does not say."""
    pages = _read(Path(f"/proc/{pid or 'self'}/statm")).split()[1:2]
    return float(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else inf


def loading_bytes() -> float:
    """Bytes that one step of a load may take now: a share of the memory that is left."""
    return _LOADING_SHARE * available_bytes()


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


def _of_machine(root: Path, name: str) -> float:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith(name):
            return float(line.split()[1]) * 1024
    return inf


def _folders(root: Path, group: _Group) -> list[Path]:
    """Of the group of this process and of those above it: in a container the first one is the container's."""
    top = root / group.folder
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if group.controller in controllers.split(","):
            own = top / path.lstrip("/")
            return [own, *(each for each in own.parents if each.is_relative_to(top))]
    return [top]


def _left_in(folder: Path, group: _Group) -> float:
    limit, used = _number(folder / group.limit), _number(folder / group.used)
    if inf in (limit, used):
        return inf
    pairs = [line.split() for line in _read(folder / "memory.stat").splitlines()]
    counters = {name: float(number) for name, number in pairs}
    idle, active = (counters.get(name, 0.0) for name in group.cached)
    return max(0.0, limit - used + idle + _ACTIVE_SHARE * active)


def _number(file: Path) -> float:
    """Infinity where there is none."""
    text = _read(file).strip()
    return float(text) if text.isdigit() else inf


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
