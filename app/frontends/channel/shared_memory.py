"""Shared memory for large tensors: one block of memory for each direction between a frontend and the engine.

The writer copies a tensor into a free block and sends the block's offset; the reader uses it in place and sends the
offset back when the last array on it is gone. A tensor for which no block is free goes through the socket. The memory
is a memfd without a name: it disappears with its last process, killed or not, and no limit of /dev/shm applies.
"""

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

#: Chosen. Only address space: a page takes memory when it is first written.
SHARED_MEMORY_BYTES = 64 * 1024**2


def create_memory(size: int = SHARED_MEMORY_BYTES) -> int:
    """A file descriptor of anonymous memory whose size cannot be changed."""
    file = os.memfd_create("ferry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file


class SharedMemoryWriter:
    """The end that fills blocks. It does not keep the file open."""

    def __init__(self, file: int) -> None:
        size = os.fstat(file).st_size
        self._memory = mmap.mmap(file, size)
        self._blocks = BlockAllocator(size)

    def put(self, array: Array) -> int | None:
        """Copy the array, in C order. Returns the offset of its block, or None if no block is large enough."""
        start = self._blocks.take(array.nbytes)
        if start is not None:
            np.copyto(np.ndarray(array.shape, array.dtype, self._memory, start), array)
        return start

    def free(self, starts: Iterable[int]) -> None:
        """The reader no longer uses the blocks at these offsets."""
        for start in starts:
            self._blocks.give_back(start)


class SharedMemoryReader:
    """The end that reads blocks in place. It does not keep the file open."""

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, os.fstat(file).st_size, access=mmap.ACCESS_READ)
        self._arrays: dict[int, weakref.ref[Array]] = {}
        self._unused: deque[int] = deque()

    def array(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """The array at this offset, read-only and in place. Raises TypeError if it would end beyond the memory."""
        array: Array = np.ndarray(shape, dtype, self._memory, start)
        self._arrays[start] = weakref.ref(array, lambda _: self._on_dropped(start))  # every view of it keeps it alive
        return array

    def skip(self, start: int) -> None:
        """The block at this offset will not be read."""
        self._unused.append(start)

    def _on_dropped(self, start: int) -> None:
        """Called on the thread that dropped the last reference."""
        del self._arrays[start]
        self._unused.append(start)

    def take_unused(self) -> list[int]:
        """Offsets of the blocks that are no longer read; each is returned once."""
        return [self._unused.popleft() for _ in range(len(self._unused))]


#: Blocks begin and end on pages.
PAGE = 4096


class BlockAllocator:
    """Hands out parts of `size` bytes: first fit, and neighbouring free parts are merged.

    Low addresses are used first, so memory that is rarely full keeps few pages.
    """

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, size)]
        self._taken: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """Offset of a block of at least `size` bytes, or None if no gap is large enough."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        for n, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[n : n + 1] = [(start + size, end)] if end - start > size else []
                self._taken[start] = start + size
                return start
        return None

    def give_back(self, start: int) -> None:
        """Frees the block that begins at `start`. Raises KeyError if no block that was taken begins there."""
        end = self._taken.pop(start)
        n = bisect_left(self._free, (start, end))
        if n < len(self._free) and self._free[n][0] == end:
            end = self._free.pop(n)[1]
        if n and self._free[n - 1][1] == start:
            n -= 1
            start = self._free.pop(n)[0]
        self._free.insert(n, (start, end))
