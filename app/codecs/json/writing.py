"""Arrays to JSON. Pure.

Every float is written as the shortest text that reads back as the same value of its type,
whole values with `.0`; NaN and infinities bare, as TensorFlow Serving writes them. half and
bfloat16 are written as the float32 that they equal. orjson does it all but the non-finite
values, which it writes as null: only if there is any, the arrays are looked at, and those nulls replaced one by one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson

from app.codecs.json.scalars import from_bytes, is_floating, is_number
from app.codecs.tensorflow_types import enum_name
from app.core.errors import Unsupported
from app.core.inference import STRING, Array

_BYTES_SUFFIX = "_bytes"
_NATIVE = frozenset(np.dtype(name) for name in ("float32", "float64", "bool", "int8", "int16", "int32", "int64"))
_NATIVE |= frozenset(np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))

#: A number is found in bytes more cheaply than bytes of one letter.
_L = ord("l")

#: Letters l are looked at one by one in the names around an array's digits, but not in long texts.
_MOST_LETTERS = 16


def dumps(document: object) -> bytes:
    """The JSON of a document whose leaves `jsonable` made."""
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if _L in text and _mentions_null(text):
        return orjson.dumps(_spelled_out(document), option=orjson.OPT_SERIALIZE_NUMPY)
    return text


def check_writable(dtype: np.dtype[Any]) -> None:
    """Raises Unsupported where JSON has no form for the type: before it is computed, not after."""
    if not (dtype in _NATIVE or dtype == STRING or is_number(dtype)):
        raise Unsupported(f"Failed to write JSON value for tensor type: {enum_name(dtype)}")


def jsonable(name: str, array: Array) -> Any:
    """What `dumps` writes as the nested lists of `array`. Rank 0 gives a scalar.

    `name` says whether strings are bytes: those of outputs named `..._bytes` go as base64.
    """
    dtype = array.dtype
    if dtype == STRING:
        return _strings(array, name.endswith(_BYTES_SUFFIX))
    if dtype not in _NATIVE:
        array = _widen(array)
    # orjson takes no array of rank 0, and none whose rows are apart.
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _widen(array: Array) -> Array:
    check_writable(array.dtype)
    return array.astype(np.float32 if is_floating(array.dtype) else np.int64)


def _strings(array: Array, binary: bool) -> Any:
    texts = np.empty(array.shape, STRING)
    texts.reshape(-1)[:] = [from_bytes(value, binary) for value in array.reshape(-1)]
    return texts.tolist()


def _mentions_null(text: bytes) -> bool:
    """As `b"null" in text`, which among digits is slow: a single letter is looked for with the speed of memory."""
    at = text.find(b"l")
    for _ in range(_MOST_LETTERS):
        if at < 0:
            return False
        if text[at - 2 : at + 2] == b"null":
            return True
        at = text.find(b"l", at + 1)
    return b"null" in text


def _spelled_out(value: Any) -> Any:
    """The same document with the text of arrays that have NaN or infinities."""
    if isinstance(value, dict):
        return {key: _spelled_out(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled_out(each) for each in value]
    if isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f" and not np.isfinite(value).all():
        return orjson.Fragment(_write_non_finite(value))
    return value


def _write_non_finite(array: Any) -> bytes:
    words = iter([_word(value) for value in array[~np.isfinite(array)]])
    return re.sub(rb"null", lambda _: next(words), orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))


def _word(value: float) -> bytes:
    if np.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"
