"""The memory of this process, and the memory that is left for it: of the machine, or of its container if less."""

from __future__ import annotations

import ctypes
import os
from math import inf
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import ClassVar, NamedTuple, Self


class _Group(NamedTuple):
    """The memory files of a version of control groups: the folder of its root, and names of files and of counters.

    `cached`: files in memory, which the kernel gives back: files not used for long, and files in use.
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

#: The share of files in use that counts as free. Chosen: libraries are among them.
_ACTIVE_SHARE = 1 / 2


#: The share of the memory left that one step of a load may take. Chosen.
_LOADING_SHARE = 1 / 4


def available_bytes(root: Path = Path("/")) -> float:
    """Bytes that can be taken now without swapping; infinity where the system does not say."""
    groups = [_left_in(folder, group) for group in _GROUPS for folder in _folders(root, group)]
    return min(_of_machine(root, "MemAvailable"), *groups)


def container_left_bytes(root: Path = Path("/")) -> float:
    """Bytes that the limit of this process's container leaves; infinity where it has none."""
    machine = _of_machine(root, "MemTotal")
    places = [(folder, group) for group in _GROUPS for folder in _folders(root, group)]
    return min((_left_in(*place) for place in places if _number(place[0] / place[1].limit) < machine), default=inf)


def limit_bytes(root: Path = Path("/")) -> float:
    """The memory of the machine, or of the container if it may have less; infinity where the system does not say."""
    limits = [_number(folder / group.limit) for group in _GROUPS for folder in _folders(root, group)]
    return min(_of_machine(root, "MemTotal"), *limits)


def data_bytes(pid: int) -> float:
    """The bytes of a process that RLIMIT_DATA limits. Raises OSError where the system does not say."""
    found = _listed_bytes(Path(f"/proc/{pid}/status").read_text(), "VmData")
    if found is None:
        raise OSError("No VmData")
    return found


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
    """The peak of the process's resident memory within a block, above that at its beginning. Blocks may overlap.

    Freed memory is given back first: its reuse in the block would not be seen. The kernel keeps the peak until it is
    reset (proc(5), clear_refs); where that is not allowed the peak is 0.

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
            self._note()  # a reset of the peak hides it from the other open blocks
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
        peak = _listed_bytes(_read(Path("/proc/self/status")), "VmHWM") or 0.0
        for each in cls._open:
            each._highest = max(each._highest, peak)


def _of_machine(root: Path, name: str) -> float:
    found = _listed_bytes(_read(root / "proc/meminfo"), name)
    return inf if found is None else found


def _listed_bytes(text: str, name: str) -> float | None:
    """The number behind 'name:' in a file of /proc, which is in kilobytes."""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024
    return None


def _folders(root: Path, group: _Group) -> list[Path]:
    """The folders of the group of this process and of its parents: in a container the first one is the container's."""
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
    """The number in a file; infinity where there is none."""
    text = _read(file).strip()
    return float(text) if text.isdigit() else inf


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
