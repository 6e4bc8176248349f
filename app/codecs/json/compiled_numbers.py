"""numbers.c, which reads long JSON arrays of numbers without the GIL; hatch_build.py compiles it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.core.compiled.library import NUMBER, POINTER, load
from app.core.inference import Array

LIBRARY = Path(__file__).with_name("numbers.so")

#: The most levels of lists that numbers.c reads.
_MOST_DEPTH = 64

_INT64, _INT32 = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int32)


class ReadNumbers(NamedTuple):
    """The result of numbers.c.

    numbers: float64, of the shape of the lists.
    whole: whether all were written as whole numbers, and are below 2^53.
    """

    numbers: Array
    whole: bool


def available() -> bool:
    """Whether numbers.c was compiled."""
    return _function() is not None


def read_numbers(text: bytes) -> ReadNumbers | None:
    """The JSON array in `text`, rounded as by Python's float; time and memory are linear in its bytes.

    None if numbers.c was not compiled, or declines: lists are empty or differ in length or depth, an element is no
    number, or a number that no normal double holds.
    """
    read = _function()
    if read is None:
        return None
    found = np.empty(len(text) // 2)  # a number and a comma or bracket; unused pages take no memory
    lengths = (ctypes.c_int64 * _MOST_DEPTH)()
    depth, whole = ctypes.c_int32(), ctypes.c_int32()
    count = read(text, len(text), found.ctypes.data, len(found), lengths, depth, whole)
    if count < 0:
        return None
    return ReadNumbers(found[:count].reshape(lengths[: depth.value]), bool(whole.value))


@cache
def _function() -> Callable[..., int] | None:
    arguments = [ctypes.c_char_p, NUMBER, POINTER, NUMBER, _INT64, _INT32, _INT32]
    loaded = load(LIBRARY, {"ferry_read_numbers_1": arguments}, "long JSON arrays take ten times as long")
    return None if loaded is None else loaded.ferry_read_numbers_1
