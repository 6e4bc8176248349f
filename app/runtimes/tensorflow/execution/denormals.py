"""Lets a thread take denormal numbers for zero, as TensorFlow's own threads do.

A processor computes with them up to a hundred times as slowly, so who sends such numbers would make calls slow; and
answers should not depend on the thread that computes them. Only the floating-point environment of C can say so, and its
layout is the machine's: x86-64 and 64-bit Arm, with glibc.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Sequence
from typing import Any

#: Where the control word of vectors lies in glibc's `fenv_t`, in 32-bit words, and its bits: flush to zero, denormals
#: are zero (Intel, volume 1, section 10.2.3); FZ (Arm, FPCR).
_CONTROL = {"x86_64": (7, 1 << 15 | 1 << 6), "aarch64": (0, 1 << 24)}

_Environment = ctypes.c_uint32 * 16  # larger than any fenv_t


class NotPossible(Exception):
    """This machine's floating-point environment is not known."""


def flushing(run: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """`run`, during whose calls the thread takes denormal numbers for zero. Raises NotPossible."""
    machine = platform.machine()
    if machine not in _CONTROL:
        raise NotPossible(f"denormal numbers cannot be flushed on {machine}")
    try:
        library = ctypes.PyDLL(None)  # unlike CDLL it keeps the interpreter's lock: a call takes 0.1 us
        get, use = library.fegetenv, library.fesetenv
    except (OSError, AttributeError) as error:
        raise NotPossible(str(error)) from error
    get.argtypes = use.argtypes = [ctypes.c_void_p]
    word, bits = _CONTROL[machine]

    class Thread(threading.local):
        """The environments of this thread, and their addresses."""

        def __init__(self) -> None:
            self.own = _Environment()
            get(ctypes.addressof(self.own))
            self.flushed = _Environment(*self.own)
            self.flushed[word] |= bits
            self.usual, self.flushing = ctypes.addressof(self.own), ctypes.addressof(self.flushed)

    thread = Thread()

    def flushed(values: Sequence[Any]) -> Sequence[Any]:
        use(thread.flushing)
        try:
            return run(values)
        finally:
            use(thread.usual)

    return flushed
