"""Starts the TensorFlow runtime: loads the libraries of TensorFlow, then imports it.

Python's import loads libraries with the GIL held. TensorFlow's are 0.8 GB, so that took 0.4 to 0.9 s from a warm page
cache, in which not even `/livez` was answered; loaded before without the GIL, the import finds them.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from app.runtime import Runtime, RuntimeOptions

#: In this order: each needs those before it. A build of TensorFlow that has others is loaded by the import alone.
_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")


def start(options: RuntimeOptions) -> Runtime:
    """Raises as TensorFlowRuntime; ImportError: there is no TensorFlow."""
    load_libraries()
    from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime  # noqa: PLC0415 - it imports TensorFlow

    return TensorFlowRuntime(options)


def preload() -> None:
    """Imports TensorFlow, so that `start` takes no time afterwards; a failure is left to `start`."""
    load_libraries()
    with suppress(ImportError):
        import_module("app.runtimes.tensorflow.tensorflow_runtime")


def load_libraries() -> None:
    """Loads what is there of _LIBRARIES; a failure is left to the import, which says what is missing."""
    package = find_spec("tensorflow")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for library in _LIBRARIES:
            load_library(Path(folder) / library)


def load_library(path: Path) -> bool:
    """Whether the library could be loaded, for the process's life. Other threads run meanwhile."""
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None)  # called as any function of C, without the GIL
    if dlopen is None or not path.exists():
        return False
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    return dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL) is not None
