"""Scalars in TensorFlow Serving's JSON: numbers, bools and strings, to flat arrays of one tensor type.

Types are strict, as in TensorFlow Serving: an integer tensor does not accept 1.0, a bool tensor accepts only true and
false, and a bool is not a number. Two things differ from it: half, bfloat16 and uint16 are accepted, and a number that
its type cannot hold is rejected instead of wrapped. A string is text, or `{"b64": "..."}` for any bytes.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from app.codecs.json.long_arrays import Numbers
from app.codecs.json.parsing import quote
from app.codecs.tensorflow_types import short_name
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array, string_array

_REAL = frozenset({int, float})
_INTEGER = frozenset({int})
_BOOL = frozenset({bool})
#: Bytes never occur in JSON, but in MessagePack documents, which are read by the same code.
_TEXT = frozenset({str, dict, bytes})

_KINDS = {type(None): "Null", dict: "Object", list: "Array", str: "String", bytes: "Binary"}

#: Format characters of `struct`. half is missing here: it is rounded from a double, like bfloat16.
_CODES = {
    np.dtype(name): code
    for name, code in {
        "float32": "f", "float64": "d",
        "int8": "b", "int16": "h", "int32": "i", "int64": "q",
        "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    }.items()
}  # fmt: skip


class Misfit(InvalidRequest):
    """Element `index` of a flat list does not fit the tensor type; the text says why."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


# --- tensor types ---


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a type has whole numbers; int4 and other types of ml_dtypes included."""
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name.startswith(("int", "uint")))


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a type has floating numbers; bfloat16 and other types of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether JSON can represent the type as numbers; it cannot represent complex numbers."""
    return is_integer(dtype) or is_floating(dtype)


# --- lists of scalars to arrays ---


def vector(leaves: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    """The array of shape [len(leaves)] of parsed JSON scalars.

    Raises:
        Misfit: an element has another type or is out of range.
        Unsupported: JSON cannot represent the tensor type.
    """
    packing = _packing(dtype)
    if packing is None:
        if dtype == STRING:
            return _strings(leaves)
        text = quote(leaves[0] if leaves else [])
        raise Unsupported(f"Conversion of JSON Value: {text} to type: {short_name(dtype)}")
    if not packing.kinds.issuperset(map(type, leaves)):
        raise _of_other_type(leaves, packing.kinds, dtype)
    array = _pack(leaves, packing)
    if array is None:
        index = _first_out_of_range(leaves, packing)
        raise Misfit(index, f"JSON Value: {quote(leaves[index])} is out of the range of type: {short_name(dtype)}")
    return array


def from_numbers(numbers: Numbers, dtype: np.dtype[Any]) -> Array | None:
    """The array of Numbers; None if `vector` would reject an element, or would read whole numbers more exactly."""
    exact: Array | None
    if is_floating(dtype):
        exact = numbers.doubles()
    elif is_integer(dtype):
        exact = numbers.integers(signed=dtype.kind != "u")
    else:
        return None
    return None if exact is None else _narrow(exact, dtype)


@dataclass(frozen=True, slots=True)
class _Packing:
    """The packing of elements of type `dtype` by `struct`, as `carrier`: `dtype` itself, or a type with its values."""

    dtype: np.dtype[Any]
    kinds: frozenset[type]
    carrier: np.dtype[Any]
    code: str


@cache
def _packing(dtype: np.dtype[Any]) -> _Packing | None:
    if dtype.kind == "b":
        return _Packing(dtype, _BOOL, dtype, "?")
    if not is_number(dtype):
        return None
    kinds, large = (_REAL, "float64") if is_floating(dtype) else (_INTEGER, "int64")
    carrier = dtype if dtype in _CODES else np.dtype(large)
    return _Packing(dtype, kinds, carrier, _CODES[carrier])


def _pack(leaves: Sequence[Any], packing: _Packing) -> Array | None:
    """The array; None if an element is out of range. `struct` checks ranges, and is twice as fast as numpy here."""
    try:
        array = np.frombuffer(struct.pack(f"={len(leaves)}{packing.code}", *leaves), packing.carrier)
    except (struct.error, OverflowError):
        return None
    return array if packing.carrier is packing.dtype else _narrow(array, packing.dtype)


def _narrow(exact: Array, dtype: np.dtype[Any]) -> Array | None:
    """The array in a narrower type; None if an element is out of its range."""
    if is_integer(dtype):
        low, high = _bounds(dtype)
        if exact.size and (exact.min() < low or exact.max() > high):
            return None
        return exact.astype(dtype, copy=False)

    # Small floating types overflow without an error, some to infinity, some to NaN.
    with np.errstate(over="ignore"):
        array = exact.astype(dtype, copy=False)
    if np.isfinite(array).all() or not (np.isfinite(exact) & ~np.isfinite(array)).any():
        return array
    return None


@cache
def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits: Any = ml_dtypes.iinfo
    return int(limits(dtype).min), int(limits(dtype).max)


def _first_out_of_range(leaves: Sequence[Any], packing: _Packing) -> int:
    """The index of the first element out of range, by bisection; there must be one."""
    start, stop = 0, len(leaves)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _pack(leaves[start:middle], packing) is None:
            stop = middle
        else:
            start = middle
    return start


def _of_other_type(leaves: Sequence[Any], kinds: frozenset[type], dtype: np.dtype[Any]) -> Misfit:
    index = next(i for i, leaf in enumerate(leaves) if type(leaf) not in kinds)
    leaf = leaves[index]
    text = f"JSON Value: {quote(leaf)} Type: {_kind(leaf)} is not of expected type: {short_name(dtype)}"
    return Misfit(index, text)


def _kind(value: object) -> str:
    """rapidjson's name for the type of a JSON value, as in TensorFlow Serving's error texts."""
    if isinstance(value, bool):
        return str(value)
    return _KINDS.get(type(value), "Number")


# --- strings ---


def is_base64(value: object) -> bool:
    """Whether a value is `{"b64": "..."}`."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def to_bytes(value: object) -> bytes:
    """The bytes of a string or base64 object. Raises InvalidRequest if it is neither, or cannot be decoded."""
    if type(value) is str:
        return _encode(value)
    if type(value) is dict and is_base64(value):
        return _decode_base64(value["b64"])
    if type(value) is bytes:
        return value
    raise InvalidRequest(f"JSON Value: {quote(value)} not formatted correctly for base64 data")


def text_or_base64(value: bytes | str, binary: bool) -> str | dict[str, str]:
    """The text, or a base64 object if `binary` is set or the bytes are not UTF-8: the reply stays valid JSON."""
    if isinstance(value, str):
        value = value.encode()
    if not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": b64encode(value).decode()}


def _strings(leaves: Sequence[Any]) -> Array:
    kinds = set(map(type, leaves))
    if not kinds <= _TEXT:
        raise _of_other_type(leaves, _TEXT, STRING)
    try:
        return string_array(list(map(str.encode, leaves)) if kinds == {str} else list(map(to_bytes, leaves)))
    except (InvalidRequest, UnicodeEncodeError):
        index, error = next((i, fault) for i, leaf in enumerate(leaves) if (fault := _fault(leaf)) is not None)
        raise Misfit(index, str(error)) from error


def _fault(leaf: object) -> InvalidRequest | None:
    try:
        to_bytes(leaf)
    except InvalidRequest as error:
        return error
    return None


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"JSON Value: {quote(text)} has half of a surrogate pair; send bytes that are not text as base64"
        ) from error


def _decode_base64(text: str) -> bytes:
    """The bytes of a base64 text. Missing padding and white space are accepted, as by TensorFlow Serving."""
    try:
        if not len(text) % 4:
            return a2b_base64(text, strict_mode=True)
    except ValueError:
        pass
    bare = "".join(text.split()).rstrip("=")
    try:
        return a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except ValueError as error:  # binascii.Error is one
        raise InvalidRequest("Unable to base64 decode") from error
