"""The start of the TensorFlow runtime: its libraries are loaded, then it is imported.

Python's import loads libraries with the GIL held. TensorFlow's are 0.8 GB, so that took 0.4 to 0.9 s from a warm page
cache, in which not even `/livez` was answered; loaded before without the GIL, the import finds them.

TensorFlow's libraries write a banner to stderr, before any level of logging is set; its lines depend on the processor.
Commands leave it out; servers write it in the form of their log (native_lines.py).
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
from app.runtimes.tensorflow.native_lines import formatted_stderr

#: In this order: a library needs the ones before it. Another build's libraries are loaded by the import alone.
_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")

#: A library of CUDA's wheels: libtensorflow_framework asks for it by its name alone, and the folders of its RUNPATH
#: (TensorFlow 2.21) lack this one. Without it TensorFlow uses no GPU. Loaded already, it is found.
_CUSOLVER = "cusolver/lib/libcusolver.so.*"

#: Parts of the lines of the banner.
_BANNER = (b"before absl::InitializeLog()", b"oneDNN custom operations are on", b"TensorFlow binary is optimized")


def start(options: RuntimeOptions) -> Runtime:
    """The TensorFlow runtime. Raises as TensorFlowRuntime; ImportError: there is no TensorFlow."""
    with nullcontext() if "tensorflow" in sys.modules else formatted_stderr():
        load_libraries()
        from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime  # noqa: PLC0415 - it imports TensorFlow

    return TensorFlowRuntime(options)


def read_offline(
    path: Path, allowed_operations: Collection[str] = (), operation_libraries: Collection[str] = ()
) -> Mapping[str, ModelSignature]:
    """The result of `offline_signatures` (offline_signatures.py), whose import imports TensorFlow."""
    with without_banner():
        from app.runtimes.tensorflow.saved_model.offline_signatures import offline_signatures  # noqa: PLC0415 - imports TensorFlow

    return offline_signatures(path, allowed_operations, operation_libraries)


def preload() -> None:
    """Imports TensorFlow, so that `start` takes no time afterwards; a failure is left to `start`. Starts no thread."""
    with suppress(ImportError), formatted_stderr(threads=False):
        load_libraries()
        import_module("app.runtimes.tensorflow.tensorflow_runtime")


@contextmanager
def without_banner() -> Iterator[None]:
    """A block that holds lines to stderr until its end, and leaves out TensorFlow's banner.

    For commands, which do one thing at a time: processes that begin in the block would keep the changed descriptor.
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
                if not any(part in line for part in _BANNER):
                    with suppress(OSError):  # its reader is gone
                        os.write(2, line)


def load_libraries() -> None:
    """Loads the present ones of _CUSOLVER and _LIBRARIES; TensorFlow itself tells of a failure."""
    for folder in _folders("nvidia"):
        for path in folder.glob(_CUSOLVER):
            load_library(path)
    for folder in _folders("tensorflow"):
        for library in _LIBRARIES:
            load_library(folder / library)


def _folders(package: str) -> list[Path]:
    found = find_spec(package)
    return list(map(Path, (found.submodule_search_locations or ()) if found else ()))


def load_library(path: Path) -> bool:
    """Load a library for the life of the process, while other threads run. Returns whether that succeeded."""
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None)  # called as any function of C, without the GIL
    if dlopen is None or not path.exists():
        return False
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    return dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL) is not None
