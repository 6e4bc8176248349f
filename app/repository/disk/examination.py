"""The examination of a version: all its files are read once, and samples a second time, to see whether that is slow.

Blocking, for a process that can be given up. Files that were read are in the page cache as a rule, so that the runtime,
which holds the interpreter while it reads, reads quickly. Some storage keeps nothing there: FUSE with direct I/O, some
network mounts, any storage where memory is short. So a small block of every 16 MiB, and at least one of each file, is
read again. A read is slow if it waits; on a busy machine a read is delayed, too, but then the process does not sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import BinaryIO, NamedTuple

from app.repository.disk.disk_layout import PIPELINE_FILE, graph_beside_pipeline, walk
from app.repository.disk.storage_process import at

#: Finds the missing part of a version's folder; empty if the version is whole. Blocking; called in another process.
MissingPart = Callable[[Path], str]

#: The bytes of one read, and the seconds between two signs of life. Chosen.
_BLOCK, _TELL_EVERY_S = 1 << 20, 0.2

#: The bytes of a sample, which is read a second time, and the distance of two samples. Chosen.
_SAMPLE, _STRIDE = 1 << 16, 1 << 24

#: The seconds from which on a second read is slow. TensorFlow makes some six reads in a row while it holds the
#: interpreter (measured with 100 ms a read); together they should take less than 20 ms.
_SLOW_S = 0.003


class Examined(NamedTuple):
    """The result: the missing or wrong part of a version, and the read that stays slow; empty if there is none."""

    missing: str = ""
    slow: str = ""


def nothing_missing(version: Path) -> str:  # noqa: ARG001 - a MissingPart
    return ""


def examine(version: Path, missing_part: MissingPart) -> Examined:
    """Read the files of a version to their ends, unless one is missing, wrong, or slow to read again.

    Raises OSError: a file cannot be read.
    """
    # 1. The missing part, by the rule of pipelines or of the runtime.
    at(version)
    pipeline = (version / PIPELINE_FILE).is_file()
    if fault := graph_beside_pipeline(version) if pipeline else missing_part(version):
        return Examined(fault)

    # 2. The files, each read and sampled.
    files: list[tuple[Path, int]] = []
    for path, stat in walk(version):
        if S_ISDIR(stat.st_mode):
            continue
        name = path.relative_to(version)
        if not (S_ISREG(stat.st_mode) or S_ISFIFO(stat.st_mode)):
            return Examined(f"{name} is no regular file")
        read(path)
        if S_ISFIFO(stat.st_mode):
            return Examined(f"{name} is a pipe")
        files.append((path, stat.st_size))
        if slow := slow_again(version, files[-1:]):
            return Examined(slow=slow)

    # 3. All samples again: the cache may be too small for all files.
    return Examined(slow=slow_again(version, files))


def read(path: Path, into: BinaryIO | None = None) -> None:
    """Read a file to its end. `into`: a file that gets its content."""
    at(path)
    told_s = time.monotonic()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            if into is not None:
                into.write(block[:size])
            if (now_s := time.monotonic()) - told_s > _TELL_EVERY_S:
                at(path)
                told_s = now_s


def slow_again(version: Path, files: Iterable[tuple[Path, int]]) -> str:
    """The second read of these files, given with their bytes, that waits; empty if none does."""
    for path, size in files:
        at(path)
        for place in range(0, max(size, 1), _STRIDE):
            waited_s = seconds_waiting(partial(_read_sample, path, place))
            if waited_s > _SLOW_S:
                return f"a second read of {path.relative_to(version)} took {1e3 * waited_s:.0f} ms"
    return ""


def _read_sample(path: Path, place: int) -> None:
    """Read a sample. The file is opened anew: some storage empties the cache then."""
    with path.open("rb", buffering=0) as file:
        file.seek(place)
        file.read(_SAMPLE)


def seconds_waiting(work: Callable[[], object]) -> float:
    """The seconds that the work took; 0 if the thread did not sleep, where the kernel counts that."""
    slept, began_s = _sleeps(), time.perf_counter()
    work()
    took_s = time.perf_counter() - began_s
    return took_s if _sleeps() > slept or not slept else 0.0


def _sleeps() -> int:
    return getrusage(RUSAGE_THREAD).ru_nvcsw
