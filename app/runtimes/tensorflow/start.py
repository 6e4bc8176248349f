"""Starts the TensorFlow runtime: loads the libraries of TensorFlow, then imports it.

Python's import loads libraries with the GIL held. TensorFlow's are 0.8 GB, so that took 0.4 to 0.9 s from a warm page
cache, in which not even `/livez` was answered; loaded before without the GIL, the import finds them.

TensorFlow's libraries write lines of their own form about themselves to stderr, before any level of logging is set, and
which depends on the processor. Commands leave them out; servers write them in their own form (native_lines.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from app.core.inference import ModelSignature
from app.runtime import Runtime, RuntimeOptions
from app.runtimes.tensorflow.native_lines import in_our_form

#: In this order: each needs those before it. A build of TensorFlow that has others is loaded by the import alone.
_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")

#: Of CUDA's wheels: libtensorflow_framework asks for it by its name alone, and the folders that it looks into (its
#: RUNPATH, TensorFlow 2.21) lack this one. Without it TensorFlow uses no GPU. Loaded already, it is found.
_CUSOLVER = "cusolver/lib/libcusolver.so.*"

#: What is left out: parts of the lines.
_ABOUT_ITSELF = (b"before absl::InitializeLog()", b"oneDNN custom operations are on", b"TensorFlow binary is optimized")


def start(options: RuntimeOptions) -> Runtime:
    """Raises as TensorFlowRuntime; ImportError: there is no TensorFlow."""
    with nullcontext() if "tensorflow" in sys.modules else in_our_form():
        load_libraries()
        from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime  # noqa: PLC0415 - it imports TensorFlow

    return TensorFlowRuntime(options)


def read_offline(path: Path, allowed_operations: Collection[str] = ()) -> Mapping[str, ModelSignature]:
    """As offline_signatures of offline_signatures.py, which imports TensorFlow."""
    with nothing_about_itself():
        from app.runtimes.tensorflow.saved_model.offline_signatures import offline_signatures  # noqa: PLC0415 - imports TensorFlow

    return offline_signatures(path, allowed_operations)


def preload() -> None:
    """Imports TensorFlow, so that `start` takes no time afterwards; a failure is left to `start`. Starts no thread."""
    with suppress(ImportError), in_our_form(threads=False):
        load_libraries()
        import_module("app.runtimes.tensorflow.tensorflow_runtime")


@contextmanager
def nothing_about_itself() -> Iterator[None]:
    """What is written to stderr meanwhile comes at the end, without the lines of _ABOUT_ITSELF.

    For commands, which do one thing at a time: processes that begin meanwhile would keep what stands for stderr.
    """
    try:
        saved = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    with open(os.memfd_create("stderr"), "r+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held:
                if not any(each in line for each in _ABOUT_ITSELF):
                    with suppress(OSError):  # nobody reads it
                        os.write(2, line)


def load_libraries() -> None:
    """Loads what is there of _CUSOLVER and _LIBRARIES; a failure is left to TensorFlow, which says what is missing."""
    cuda = find_spec("nvidia")
    for folder in (cuda.submodule_search_locations or ()) if cuda else ():
        for path in Path(folder).glob(_CUSOLVER):
            load_library(path)
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
