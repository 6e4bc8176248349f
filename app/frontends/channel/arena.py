"""Shared memory for large tensors, one arena for each direction between a frontend and the engine.

The writer takes a block, copies a tensor in and tells where; the reader looks at it in place and tells when the
last array on it is gone. A memfd has no name: when both ends are gone, killed or not, so is the memory, and no
limit of /dev/shm applies. Whoever finds an arena full sends the tensor through the socket instead.


Which bytes of an arena are taken. Pure."""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from app.core.inference import Array

#: Of address space; pages become memory when they are first written.
ARENA_BYTES = 64 * 1024**2


def create_memory(size: int = ARENA_BYTES) -> int:
    """A file descriptor of anonymous memory whose size nobody can change."""
    file = os.memfd_create("ferry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file


class WritingArena:
    """The end that fills blocks. Keeps no file open."""

    def __init__(self, file: int) -> None:
        size = os.fstat(file).st_size
        self._memory = mmap.mmap(file, size)
        self._blocks = Blocks(size)

    def put(self, array: Array) -> int | None:
        """Where a copy of the array begins, in C order; None where there is no room."""
        start = self._blocks.take(array.nbytes)
        if start is not None:
            np.copyto(np.ndarray(array.shape, array.dtype, self._memory, start), array)
        return start

    def free(self, starts: Iterable[int]) -> None:
        """The other end no longer reads the blocks that begin here."""
        for start in starts:
            self._blocks.give(start)


class ReadingArena:
    """The end that looks at blocks. Keeps no file open."""

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, os.fstat(file).st_size, access=mmap.ACCESS_READ)
        self._arrays: dict[int, weakref.ref[Array]] = {}
        self._unread: deque[int] = deque()

    def array(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """The array in place, not to be written to. Raises TypeError where it would end beyond the arena."""
        array: Array = np.ndarray(shape, dtype, self._memory, start)
        self._arrays[start] = weakref.ref(array, lambda _: self._gone(start))  # whatever is cut from it keeps it alive
        return array

    def skip(self, start: int) -> None:
        """Nobody will look at the block that begins here."""
        self._unread.append(start)

    def _gone(self, start: int) -> None:
        """On whatever thread dropped the last of it."""
        del self._arrays[start]
        self._unread.append(start)

    def take_unread(self) -> list[int]:
        """Where blocks begin that nobody looks at any more; each is told once."""
        return [self._unread.popleft() for _ in range(len(self._unread))]


#: Blocks begin and end on pages.
PAGE = 4096


class Blocks:
    """Hands out parts of `size` bytes, first fit; neighbours that are free become one again.

    Low addresses are used first, so an arena that is rarely full keeps few pages in memory.
    """

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, size)]
        self._taken: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """Where a block of at least `size` bytes begins; None where no gap is large enough."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        for n, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[n : n + 1] = [(start + size, end)] if end - start > size else []
                self._taken[start] = start + size
                return start
        return None

    def give(self, start: int) -> None:
        """Raises KeyError where no block that is taken begins."""
        end = self._taken.pop(start)
        n = bisect_left(self._free, (start, end))
        if n < len(self._free) and self._free[n][0] == end:
            end = self._free.pop(n)[1]
        if n and self._free[n - 1][1] == start:
            n -= 1
            start = self._free.pop(n)[0]
        self._free.insert(n, (start, end))

    def __repr__(self) -> str:
        return f"<Blocks {len(self._taken)} taken, free: {self._free}>"
