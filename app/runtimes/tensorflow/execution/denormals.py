"""Denormal numbers flushed to zero in the calling thread, as in TensorFlow's threads.

A processor computes with them up to a hundred times as slowly, so a caller that sends them would make calls slow; and
answers should not depend on the thread that computes them. Only the floating-point environment of C has this switch,
and its layout is the machine's: x86-64 and 64-bit Arm, with glibc.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Sequence
from typing import Any

#: The place of the control word of vectors in glibc's `fenv_t`, in 32-bit words, and its bits: flush to zero, denormals
#: are zero (Intel, volume 1, section 10.2.3); FZ (Arm, FPCR).
_CONTROL = {"x86_64": (7, 1 << 15 | 1 << 6), "aarch64": (0, 1 << 24)}

_Environment = ctypes.c_uint32 * 16  # larger than any fenv_t


class NotPossible(Exception):
    """This machine's floating-point environment is not known."""


def flushing(run: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """`run`, in a thread that takes denormal numbers for zero during the call. Raises NotPossible."""
    # 1. The functions of libc that read and set a thread's floating-point environment.
    machine = platform.machine()
    if machine not in _CONTROL:
        raise NotPossible(f"denormal numbers cannot be flushed on {machine}")
    try:
        library = ctypes.PyDLL(None)  # unlike CDLL it keeps the GIL: a call takes 0.1 us
        get, use = library.fegetenv, library.fesetenv
    except (OSError, AttributeError) as error:
        raise NotPossible(str(error)) from error
    get.argtypes = use.argtypes = [ctypes.c_void_p]
    word, bits = _CONTROL[machine]

    # 2. Room for the environments, once for each thread.
    class Thread(threading.local):
        """The environments of this thread, usual and flushing, and their addresses."""

        def __init__(self) -> None:
            self.usual, self.flushing = _Environment(), _Environment()
            self.usual_at, self.flushing_at = ctypes.addressof(self.usual), ctypes.addressof(self.flushing)

    thread = Thread()

    # 3. The call: the thread has its usual environment again afterwards.
    def flushed(values: Sequence[Any]) -> Sequence[Any]:
        here = thread
        get(here.usual_at)
        get(here.flushing_at)
        here.flushing[word] |= bits
        try:
            use(here.flushing_at)
            return run(values)
        finally:
            use(here.usual_at)

    return flushed
