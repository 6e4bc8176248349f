"""Long arrays of numbers in JSON text, read without a Python object for each number. Pure.

simdjson reads the numbers, as correctly rounded as orjson does, and refuses everything that is no number. It also
flattens lists of any lengths, so whether they are rectangular is seen from the text.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np
import orjson
import simdjson

from app.inference import Array

#: No deeper than every numpy allows.
_MAX_RANK = 31

#: All that valid JSON of numbers consists of beside brackets and commas.
_NUMERALS = b"0123456789+-.eE \t\r\n"

#: What simdjson raises where an element is of another type or out of range, or the text is no JSON.
_REFUSALS = (TypeError, ValueError, RuntimeError)


class Numbers:
    """A JSON array of at least one element, hopefully numbers or arrays of them, that is still text.

    Raises ValueError for any other text.
    """

    __slots__ = ("_array", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        try:
            self._array: Any = simdjson.Parser().parse(text)  # of a copy with the padding that it needs
        except _REFUSALS as error:
            raise ValueError from error
        if type(self._array) is not simdjson.Array or not len(self._array):
            raise ValueError

    def doubles(self) -> Array | None:
        """float64, or None where not all elements are numbers or the lists not rectangular."""
        return self._read("d", np.dtype(np.float64))

    def integers(self, signed: bool) -> Array | None:
        """int64 or uint64; None as for `doubles`, and where an element is no whole number or does not fit."""
        return self._read("i", np.dtype(np.int64)) if signed else self._read("u", np.dtype(np.uint64))

    def expanded(self) -> list[Any]:
        """The same as lists of Python objects."""
        lists: list[Any] = orjson.loads(self._text)
        return lists

    def _read(self, of_type: Literal["d", "i", "u"], dtype: np.dtype[Any]) -> Array | None:
        try:
            flat = np.frombuffer(self._array.as_buffer(of_type=of_type), dtype)
        except _REFUSALS:
            return None
        shape = _first_lengths(self._array)
        if flat.size != prod(shape) or not flat.size or not _is_rectangular(self._text, shape):
            return None
        return flat.reshape(shape)


def _first_lengths(array: Any) -> list[int]:
    """The shape as far as the first list of each level tells."""
    shape = []
    while type(array) is simdjson.Array:
        shape.append(len(array))
        array = array[0] if shape[-1] and len(shape) <= _MAX_RANK else None
    return shape


def _is_rectangular(text: bytes, shape: list[int]) -> bool:
    """Whether as many numbers as `shape` has, in valid JSON, are nested as it says.

    They are if all brackets and commas are those of such an array: there is a number wherever one must be then.
    """
    if len(shape) == 1:
        return text.rfind(b"[") == 0
    brackets = 2 * sum(prod(shape[:level]) for level in range(len(shape)))
    return len(shape) <= _MAX_RANK and brackets <= len(text) and text.translate(None, _NUMERALS) == _skeleton(shape)


def _skeleton(shape: list[int]) -> bytes:
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text
