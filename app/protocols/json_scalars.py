"""JSON scalars to a vector of one tensor type. Pure.

Strict about types, as TensorFlow Serving is: an integer tensor takes no 1.0, a bool tensor
takes only true and false, and neither of the two is a number. Beyond it half, bfloat16 and
uint16 are accepted, and a number that its type cannot hold is refused instead of wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from app.errors import InvalidRequest, Unsupported
from app.inference import STRING, Array
from app.protocols.json_strings import to_bytes
from app.protocols.json_text import quote
from app.protocols.tensorflow_types import short_name

_REAL = frozenset({int, float})
_INTEGER = frozenset({int})
_BOOL = frozenset({bool})
#: Bytes are never in JSON, but in MessagePack documents, which are read as JSON's are.
_TEXT = frozenset({str, dict, bytes})

_KINDS = {type(None): "Null", dict: "Object", list: "Array", str: "String", bytes: "Binary"}

_LARGEST_DOUBLE = int(np.finfo(np.float64).max)


class Misfit(InvalidRequest):
    """Element `index` of a flat list does not fit; the text says why."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def vector(leaves: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    """Raises Misfit, or Unsupported where JSON has no form for the type."""
    if is_floating(dtype):
        _require(leaves, _REAL, dtype)
        return _floats(leaves, dtype)
    if dtype == STRING:
        return _strings(leaves)
    if dtype.kind == "b":
        _require(leaves, _BOOL, dtype)
        return np.fromiter(leaves, dtype, len(leaves))
    if is_integer(dtype):
        _require(leaves, _INTEGER, dtype)
        return _integers(leaves, dtype)
    raise Unsupported(f"Conversion of JSON Value: {quote(leaves[0] if leaves else [])} to type: {short_name(dtype)}")


def is_integer(dtype: np.dtype[Any]) -> bool:
    """int4 and its like included, which plain numpy knows nothing of."""
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name.startswith(("int", "uint")))


def is_floating(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and its like included, which plain numpy knows nothing of."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def is_number(dtype: np.dtype[Any]) -> bool:
    """One that JSON has a form for: complex is none."""
    return is_integer(dtype) or is_floating(dtype)


def _require(leaves: Sequence[Any], kinds: frozenset[type], dtype: np.dtype[Any]) -> None:
    if not kinds.issuperset(map(type, leaves)):
        index = _first(type(leaf) not in kinds for leaf in leaves)
        leaf = leaves[index]
        raise Misfit(
            index, f"JSON Value: {quote(leaf)} Type: {_kind(leaf)} is not of expected type: {short_name(dtype)}"
        )


def _strings(leaves: Sequence[Any]) -> Array:
    _require(leaves, _TEXT, STRING)
    array = np.empty(len(leaves), STRING)
    for index, leaf in enumerate(leaves):
        try:
            array[index] = to_bytes(leaf)
        except InvalidRequest as error:
            raise Misfit(index, str(error)) from error
    return array


def _integers(leaves: Sequence[int], dtype: np.dtype[Any]) -> Array:
    low, high = _bounds(dtype)
    carrier = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    try:
        array = np.fromiter(leaves, carrier, len(leaves))
    except OverflowError:
        raise _out_of_range(leaves, _first(not low <= leaf <= high for leaf in leaves), dtype) from None
    if carrier == dtype:
        return array
    if array.size and (array.min() < low or array.max() > high):
        raise _out_of_range(leaves, _first((array < low) | (array > high)), dtype)
    return array.astype(dtype)


@cache
def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits: Any = ml_dtypes.iinfo
    return int(limits(dtype).min), int(limits(dtype).max)


#: Not every type of kind 'f': ml_dtypes' float8_e5m2 calls itself that, and overflows in silence.
_NUMPY_FLOATS = frozenset(np.dtype(kind) for kind in (np.float16, np.float32, np.float64))


def _floats(leaves: Sequence[float], dtype: np.dtype[Any]) -> Array:
    try:
        with np.errstate(over="raise"):
            if dtype in _NUMPY_FLOATS:
                return np.fromiter(leaves, dtype, len(leaves))
            exact = np.fromiter(leaves, np.float64, len(leaves))
            array = exact.astype(dtype)
    except OverflowError:
        raise _out_of_range(leaves, _first(abs(leaf) > _LARGEST_DOUBLE for leaf in leaves), dtype) from None
    except FloatingPointError:
        exact = np.fromiter(leaves, np.float64, len(leaves))
        with np.errstate(over="ignore"):
            array = exact.astype(dtype)
    # The small types overflow in silence, to infinity or NaN by type.
    lost = np.isfinite(exact) & ~np.isfinite(array)
    if lost.any():
        raise _out_of_range(leaves, _first(lost), dtype)
    return array


def _first(flags: Iterable[Any]) -> int:
    return next(index for index, flag in enumerate(flags) if flag)


def _out_of_range(leaves: Sequence[float], index: int, dtype: np.dtype[Any]) -> Misfit:
    return Misfit(index, f"JSON Value: {quote(leaves[index])} is out of the range of type: {short_name(dtype)}")


def _kind(value: object) -> str:
    """rapidjson's word for the kind of a JSON value."""
    if isinstance(value, bool):
        return str(value)
    return _KINDS.get(type(value), "Number")
