"""The child process that loads libraries of operations before the server does: shared_libraries.py starts it.

It loads shared libraries by TensorFlow's C API, without Python's part of TensorFlow: 1 s instead of 3 s on 2 cores. A
module is imported, which imports TensorFlow. Its last line on standard error says why it failed.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from app.runtimes.tensorflow.start import load_libraries


def main() -> None:
    """The program of the child: standard input has the files and the module of each library."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        for files, module in json.loads(sys.stdin.buffer.read()):
            if files:
                _load(files)
            if module:
                importlib.import_module(module)
    except BaseException as error:  # a module may call sys.exit, which would end a server
        sys.stderr.write(f"\n{' '.join(str(error).split()) or type(error).__name__}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # TensorFlow takes its time to end


def _load(files: Sequence[str]) -> None:
    """Loads shared libraries. Raises an Exception if one cannot be loaded."""
    api_file = _c_api_file()
    if api_file is None:
        tensorflow = importlib.import_module("tensorflow")
        for file in files:
            tensorflow.load_op_library(file)
        return
    load_libraries()
    api = ctypes.CDLL(str(api_file))
    api.TF_NewStatus.restype = api.TF_LoadLibrary.restype = ctypes.c_void_p
    api.TF_LoadLibrary.argtypes, api.TF_Message.argtypes = [ctypes.c_char_p, ctypes.c_void_p], [ctypes.c_void_p]
    api.TF_Message.restype = ctypes.c_char_p
    for file in files:
        status = api.TF_NewStatus()
        if api.TF_LoadLibrary(os.fsencode(file), status) is None:
            raise OSError(api.TF_Message(status).decode(errors="replace").removeprefix(f"{file}: "))


def _c_api_file() -> Path | None:
    """TensorFlow's library with the C API; None for a build that has it elsewhere than the wheels."""
    spec = find_spec("tensorflow")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return next((path for folder in folders for path in Path(folder).glob("libtensorflow_cc.so*")), None)
