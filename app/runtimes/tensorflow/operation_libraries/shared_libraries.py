"""The libraries of operations of this process: each is tried in a child process, then loaded here.

Rules
- A library is loaded once a process, and stays: TensorFlow can forget no operation.
- A library may end the process that loads it (symbols of another compiler, a constructor that aborts). So a child
  loads it first (library_trial.py), and the server goes on if the child ends.
- The child loads those of this process, too: two libraries with one operation do not go together.
- One library is loaded at a time; versions of models, which load side by side, wait for it.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import tensorflow as tf

from app.runtimes.tensorflow.private_api import PrivateApiUnusable, all_operations

logger = logging.getLogger(__name__)

#: Seconds that the trial of a library may take. Chosen: a hundred times what a library of 30 MB takes.
TRIAL_S = 120.0

#: The most characters of what a trial says, in an error. Chosen.
_MOST_SAID = 160

#: The program of a child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.runtimes.tensorflow.library_trial import main; main()"


#: Python's own function fails (KeyError) where two threads are in it.
_forgetting = Lock()


def forget_found_modules() -> None:
    """Lets Python look at its folders anew: a library may have been installed since the last look."""
    with _forgetting:
        importlib.invalidate_caches()


class LibraryUnusable(ValueError):
    """A library cannot be loaded: the text names it, and says why."""


@dataclass(frozen=True, slots=True)
class Loadable:
    """A library that is there: its name in texts, and its shared libraries, or else a module to import."""

    title: str
    files: tuple[str, ...] = ()
    module: str = ""


class LoadedLibraries:
    """The libraries that were loaded.

    Args:
        try_it: raises LibraryUnusable if the last one of some libraries cannot be loaded after the others.

    Attributes:
        operations: what they brought. The operation check takes it for dangerous unless the table knows better.
    """

    def __init__(self, try_it: Callable[[Sequence[Loadable]], None]) -> None:
        self.operations: frozenset[str] = frozenset()
        self._try = try_it
        self._loaded: list[Loadable] = []
        self._lock = Lock()

    def load(self, library: Loadable, why: str) -> None:
        """Loads a library unless it was loaded. `why`: the reason, for the log. Raises LibraryUnusable."""
        with self._lock:
            if library in self._loaded:
                return
            begin = time.monotonic()
            forget_found_modules()
            before = _operations_before(library)
            if library.module not in sys.modules:
                self._try([*self._loaded, library])
            _load_here(library)
            self.operations |= all_operations() - before
            self._loaded.append(library)
        logger.info("%s was loaded in %.1f s, %s", library.title, time.monotonic() - begin, why)


def _operations_before(library: Loadable) -> frozenset[str]:
    try:
        return all_operations()
    except PrivateApiUnusable as error:
        raise LibraryUnusable(f"{library.title} is not loaded: {error}") from None


def _load_here(library: Loadable) -> None:
    try:
        for file in library.files:
            tf.load_op_library(file)
        if library.module:
            importlib.import_module(library.module)
    except Exception as error:  # whatever a library raises
        text = str(error) or type(error).__name__
        raise LibraryUnusable(f"{library.title} cannot be loaded: {_short(text)}") from None


def try_in_child(libraries: Sequence[Loadable], limit_s: float = TRIAL_S) -> None:
    """Loads libraries in a child process. Raises LibraryUnusable, which names the last one, if that fails."""
    library = libraries[-1]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and nothing that users give but standard input
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(os.path.abspath, sys.path)],
            input=json.dumps([(each.files, each.module) for each in libraries]).encode(),
            capture_output=True, timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LibraryUnusable(f"{library.title} does not load within {limit_s:g} s") from None
    except OSError as error:
        raise LibraryUnusable(f"{library.title} could not be tried: {error.strerror or error}") from None
    if done.returncode < 0:
        number = -done.returncode
        how = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        raise LibraryUnusable(f"{library.title} ends the process that loads it, by {how}")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise LibraryUnusable(f"{library.title} cannot be loaded: {_short(said[-1])}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SAID else line[: _MOST_SAID - 1] + "…"


#: Those of this process: TensorFlow has one table of operations.
LIBRARIES_HERE = LoadedLibraries(try_in_child)
