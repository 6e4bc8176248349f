"""Memory settings: how glibc reuses the blocks of large tensors, and how often Python collects garbage."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_MAPPED_FROM_BYTES = 32 * 1024**2  # the most that glibc takes

#: Freed memory that glibc keeps. Chosen.
_KEPT_BYTES = 256 * 1024**2

#: Number of new objects after which Python collects the youngest generation. Requests in progress hold a few
#: thousand, which are freed without collection; with the default of 700 they were examined again and again. Chosen.
_YOUNG_OBJECTS = 20_000


def keep_freed_memory() -> bool:
    """Make glibc reuse freed blocks instead of returning their pages; False if there is no glibc.

    By default each block above 128 KiB is mapped anew and faults in page by page: decoding a 1 MB
    tensor took 0.9 ms, of which 0.04 ms were decoding (docs/architecture.md, "Memory").
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def spare_from_collection() -> None:
    """Exclude all objects that exist now from garbage collection, and collect less often.

    A full collection walks every object TensorFlow keeps for ever: 0.2 s with the GIL held, seen as the p99. So there
    is none before, either: the little garbage among them stays.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def spared_from_collection() -> Iterator[None]:
    """The same at the end of the block, and no collection while it runs: imports make a million objects to walk."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        spare_from_collection()
        if collects:
            gc.enable()
