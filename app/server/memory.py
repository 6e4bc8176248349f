"""Memory settings: how glibc reuses the blocks of large tensors, and how often Python collects garbage.

While requests are computed, freed blocks are kept, since new pages cost more than small calls. While nothing is
computed, they are given back, since one large request would keep its memory for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.core.machine_memory import give_back, resident_bytes

# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8

#: Freed memory that glibc keeps at the end of its heap while requests are computed. Chosen.
_KEPT_BYTES = 1024**3

#: Seconds between two looks whether nothing is computed, and by how much RSS beyond what is in use must have grown
#: since memory was given back (chosen).
_LOOK_S, _GROWTH_BYTES = 10.0, 128 * 1024**2

#: Number of new objects after which Python collects the youngest generation. Requests in progress hold a few
#: thousand, which are freed without collection; with the default of 700 they were examined again and again. Chosen.
_YOUNG_OBJECTS = 20_000


def keep_freed_memory() -> bool:
    """Make glibc reuse freed blocks instead of returning their pages; False if there is no glibc.

    By default each block above 128 KiB is mapped anew and faults in page by page: decoding a 1 MB
    tensor took 0.9 ms, of which 0.04 ms were decoding (docs/architecture/threads-and-memory.md, "Memory").
    TensorFlow takes its memory there, too, if this is called before it is imported: its own allocator for oneDNN never
    gives any back. For its large tensors nothing is mapped, and all threads share one heap: others are unmapped
    whenever they are empty.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    if not (mallopt(_M_ARENA_MAX, 1) and mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)):
        return False
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
    return True


async def give_back_while_idle(idle: Callable[[], bool]) -> None:
    """Gives freed memory back to the system now and then, if `idle()` and there is more. Runs until it is cancelled.

    Memory in use does not count: RSS is as large with replies that wait for their readers as after these are freed.
    """
    last = 0.0
    while True:
        await asyncio.sleep(_LOOK_S)
        if idle() and resident_bytes() - used_bytes() > last + _GROWTH_BYTES:
            await asyncio.to_thread(give_back)  # 0.05 s for a GB
            last = resident_bytes() - used_bytes()


def used_bytes() -> int:
    """Bytes of malloc that are not free; 0 if glibc does not say."""
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        return 0
    tell.restype = _MallocInfo
    return int(tell().uordblks)


class _MallocInfo(ctypes.Structure):
    """malloc.h, struct mallinfo2."""

    _fields_ = (
        ("other", ctypes.c_size_t * 7),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def spare_from_collection() -> None:
    """Exclude all objects that exist now from garbage collection, and collect less often.

    A full collection walks every object TensorFlow keeps for ever: 0.2 s with the GIL held, seen as the p99. So there
    is none before, either: the little garbage among them stays.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def spared_from_collection() -> Iterator[None]:
    """Stops collections while the block runs; then `spare_from_collection`: imports make a million objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        spare_from_collection()
        if collects:
            gc.enable()
