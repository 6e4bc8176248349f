"""Strings in TensorFlow Serving's JSON: plain text, or `{"b64": "..."}` for any bytes. Pure.

JSON scalars to a vector of one tensor type. Pure.

Strict about types, as TensorFlow Serving is: an integer tensor takes no 1.0, a bool tensor
takes only true and false, and neither of the two is a number. Beyond it half, bfloat16 and
uint16 are accepted, and a number that its type cannot hold is rejected instead of wrapped.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from app.codecs.json.long_arrays import Numbers
from app.codecs.json.text import quote
from app.codecs.tensorflow_types import short_name
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array

_BASE64_KEYS = {"b64"}


def is_base64(value: object) -> bool:
    return type(value) is dict and value.keys() == _BASE64_KEYS and type(value["b64"]) is str


def to_bytes(value: object) -> bytes:
    """Raises InvalidRequest where `value` is no string and no base64 object, or cannot be decoded."""
    if type(value) is str:
        return _encode(value)
    if type(value) is dict and is_base64(value):
        return _decode_base64(value["b64"])
    if type(value) is bytes:
        return value
    raise InvalidRequest(f"JSON Value: {quote(value)} not formatted correctly for base64 data")


def from_bytes(value: bytes | str, binary: bool) -> str | dict[str, str]:
    """Bytes that are no UTF-8 go out as base64 even where text was meant: the reply stays valid JSON."""
    if isinstance(value, str):
        value = value.encode()
    if not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": b64encode(value).decode()}


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"JSON Value: {quote(text)} has half of a surrogate pair; bytes that are no text go as base64"
        ) from error


def _decode_base64(text: str) -> bytes:
    """Standard alphabet. Missing padding and white space are forgiven, as TensorFlow Serving does."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        bare = "".join(text.split()).rstrip("=")
    try:
        return b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("Unable to base64 decode") from error


_REAL = frozenset({int, float})
_INTEGER = frozenset({int})
_BOOL = frozenset({bool})
#: Bytes are never in JSON, but in MessagePack documents, which are read as JSON's are.
_TEXT = frozenset({str, dict, bytes})

_KINDS = {type(None): "Null", dict: "Object", list: "Array", str: "String", bytes: "Binary"}

#: Those of `struct`. half is not among them: it is rounded from a double, as bfloat16 and the like are.
_CODES = {
    np.dtype(name): code
    for name, code in {
        "float32": "f", "float64": "d",
        "int8": "b", "int16": "h", "int32": "i", "int64": "q",
        "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    }.items()
}  # fmt: skip


class Misfit(InvalidRequest):
    """Element `index` of a flat list does not fit; the text says why."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def vector(leaves: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    """Raises Misfit, or Unsupported where JSON has no form for the type."""
    form = _form(dtype)
    if form is None:
        if dtype == STRING:
            return _strings(leaves)
        text = quote(leaves[0] if leaves else [])
        raise Unsupported(f"Conversion of JSON Value: {text} to type: {short_name(dtype)}")
    if not form.kinds.issuperset(map(type, leaves)):
        raise _of_other_type(leaves, form.kinds, dtype)
    array = _pack(leaves, form)
    if array is None:
        index = _first_without_room(leaves, form)
        raise Misfit(index, f"JSON Value: {quote(leaves[index])} is out of the range of type: {short_name(dtype)}")
    return array


def from_numbers(numbers: Numbers, dtype: np.dtype[Any]) -> Array | None:
    """None where `vector` would reject an element, or has not been asked yet because the lists are not rectangular."""
    if is_floating(dtype):
        exact = numbers.doubles()
    elif is_integer(dtype):
        exact = numbers.integers(signed=dtype.kind != "u")
    else:
        return None
    return None if exact is None else _narrow(exact, dtype)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """int4 and its like included, which plain numpy knows nothing of."""
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name.startswith(("int", "uint")))


def is_floating(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and its like included, which plain numpy knows nothing of."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def is_number(dtype: np.dtype[Any]) -> bool:
    """One that JSON has a form for: complex is none."""
    return is_integer(dtype) or is_floating(dtype)


@dataclass(frozen=True, slots=True)
class _Form:
    """How elements of a type are packed: as those of `carrier`, which is the type itself or holds all of its values."""

    dtype: np.dtype[Any]
    kinds: frozenset[type]
    carrier: np.dtype[Any]
    code: str


@cache
def _form(dtype: np.dtype[Any]) -> _Form | None:
    if dtype.kind == "b":
        return _Form(dtype, _BOOL, dtype, "?")
    if not is_number(dtype):
        return None
    kinds, large = (_REAL, "float64") if is_floating(dtype) else (_INTEGER, "int64")
    carrier = dtype if dtype in _CODES else np.dtype(large)
    return _Form(dtype, kinds, carrier, _CODES[carrier])


def _of_other_type(leaves: Sequence[Any], kinds: frozenset[type], dtype: np.dtype[Any]) -> Misfit:
    index = next(i for i, leaf in enumerate(leaves) if type(leaf) not in kinds)
    leaf = leaves[index]
    text = f"JSON Value: {quote(leaf)} Type: {_kind(leaf)} is not of expected type: {short_name(dtype)}"
    return Misfit(index, text)


def _strings(leaves: Sequence[Any]) -> Array:
    if not _TEXT.issuperset(map(type, leaves)):
        raise _of_other_type(leaves, _TEXT, STRING)
    array = np.empty(len(leaves), STRING)
    for index, leaf in enumerate(leaves):
        try:
            array[index] = to_bytes(leaf)
        except InvalidRequest as error:
            raise Misfit(index, str(error)) from error
    return array


def _pack(leaves: Sequence[Any], form: _Form) -> Array | None:
    """None where one is out of range. `struct` is twice as fast as numpy here, and checks ranges."""
    try:
        array = np.frombuffer(struct.pack(f"={len(leaves)}{form.code}", *leaves), form.carrier)
    except (struct.error, OverflowError):
        return None
    return array if form.carrier is form.dtype else _narrow(array, form.dtype)


def _narrow(exact: Array, dtype: np.dtype[Any]) -> Array | None:
    """None where a value is out of the range of the type."""
    if is_integer(dtype):
        low, high = _bounds(dtype)
        if exact.size and (exact.min() < low or exact.max() > high):
            return None
        return exact.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        array = exact.astype(dtype, copy=False)
    # The small types overflow in silence, to infinity or NaN by type.
    if np.isfinite(array).all() or not (np.isfinite(exact) & ~np.isfinite(array)).any():
        return array
    return None


@cache
def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits: Any = ml_dtypes.iinfo
    return int(limits(dtype).min), int(limits(dtype).max)


def _first_without_room(leaves: Sequence[Any], form: _Form) -> int:
    """There is one. The first half of those in question is tried, until one is left."""
    start, stop = 0, len(leaves)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _pack(leaves[start:middle], form) is None:
            stop = middle
        else:
            start = middle
    return start


def _kind(value: object) -> str:
    """rapidjson's word for the kind of a JSON value."""
    if isinstance(value, bool):
        return str(value)
    return _KINDS.get(type(value), "Number")
