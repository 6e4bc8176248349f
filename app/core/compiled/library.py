"""Libraries of C sources of this package, which hatch_build.py compiles. Python code beside each does the same."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

#: The type of an argument that points to numbers.
POINTER: Any = ctypes.c_void_p

#: The type of an argument that is a number.
NUMBER: Any = ctypes.c_int64


def load(
    library: Path, functions: Mapping[str, Sequence[Any]], without: str, *, holds_gil: bool = False
) -> ctypes.CDLL | None:
    """The library with these functions. `functions`: by name, the types of the arguments; all return NUMBER.

    None if there is none for this machine and this version of Ferry; a warning says that it was not compiled, and
    `without` says the consequence.

    Args:
        holds_gil: for functions that take less than handing the GIL to another thread does.
    """
    try:
        loaded = ctypes.PyDLL(str(library)) if holds_gil else ctypes.CDLL(str(library))
        for name, arguments in functions.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = NUMBER, list(arguments)
    except (OSError, AttributeError):  # it is missing, of another machine, or of another version of Ferry
        logger.warning("%s.c was not compiled when Ferry was installed: %s", library.stem, without)
        return None
    return loaded
