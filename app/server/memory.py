"""How the C library treats the memory of large tensors, and Python that of objects which stay."""

from __future__ import annotations

import ctypes
import gc

# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_MAPPED_FROM_BYTES = 32 * 1024**2  # the most that glibc takes
_KEPT_BYTES = 256 * 1024**2

#: Objects made and not yet freed from which on the youngest are looked through. Requests under way are a few thousand
#: and free themselves; at Python's 700 they were looked through again and again.
_YOUNG_OBJECTS = 20_000


def keep_freed_memory() -> bool:
    """Has glibc reuse freed blocks instead of giving their pages back; False where there is no glibc.

    By default each block above 128 KiB is mapped anew and faults in page by page: decoding a 1 MB
    tensor took 0.9 ms, of which 0.04 ms were decoding (docs/architecture.md, "Memory").
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def spare_from_collection() -> None:
    """Takes what was imported out of the garbage collector's sight, and has it look less often.

    A full collection walks every object TensorFlow keeps for ever: 0.2 s with the GIL held, seen as the p99.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
