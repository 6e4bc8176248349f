"""The writer of arrays as JSON.

A float is the shortest text that reads back as the same value of its type, whole values with `.0`; half and bfloat16
are written as the float32 of equal value. NaN and infinities are the bare words NaN, Infinity and -Infinity, as by
TensorFlow Serving. orjson writes the text, but non-finite values as null: if the text mentions null, arrays are written
one by one, and nulls in them replaced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import orjson

from app.codecs.json.scalars import is_floating, is_number, text_or_base64
from app.codecs.tensorflow_types import enum_name
from app.core.errors import Unsupported
from app.core.inference import STRING, Array

_BYTES_SUFFIX = "_bytes"
_NATIVE = frozenset(np.dtype(name) for name in ("float32", "float64", "bool", "int8", "int16", "int32", "int64"))
_NATIVE |= frozenset(np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))

#: `in` finds a number in bytes faster than bytes of one letter.
_L = ord("l")

#: The numbers that are written without letting another thread run. Chosen: some 5 ms of work.
_SLICE = 1 << 16

#: The characters of strings that are written without letting another thread run, and the characters that count as one
#: number. Chosen: equal work.
_SLICE_CHARACTERS, _CHARACTERS_A_VALUE = 1 << 20, 32

#: The elements of a list that are written together if short, and the length of a string written by itself. Chosen.
_GROUP, _LONG_STRING = 1024, 4096

#: The letters l after which the whole text is searched for "null". Chosen: names around an array have fewer.
_MOST_LETTERS = 16


def dumps(document: object) -> bytes:
    """The JSON of a document; arrays and strings in it must come from `jsonable`."""
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if _L in text and _mentions_null(text):
        return orjson.dumps(_spelled_out(document), option=orjson.OPT_SERIALIZE_NUMPY)
    return text


def texts_of_requests(array: Array, rows: Sequence[int], *, flat: bool = False) -> list[bytes] | None:
    """The JSON of the rows of each of several requests, without the outer brackets.

    All rows are written at once and cut where they end, in a fifth of the time. None for strings, scalars, and no rows
    or empty ones, which cannot be cut.

    Args:
        array: the rows of all requests, one after another.
        rows: the number of rows of each request.
        flat: write the elements of a request one after another, without lists.
    """
    # 1. The text of all rows, cut into rows.
    if not (array.ndim and array.size) or array.dtype.hasobject:
        return None
    numbers = array.reshape(len(array), -1) if flat else array
    inner = numbers.ndim - 1
    between = b"]" * inner + b"," + b"[" * inner
    texts = dumps(jsonable("", numbers))[1 + inner : -1 - inner].split(between)
    if len(texts) != sum(rows) or not min(rows):
        return None

    # 2. The texts of requests.
    if len(texts) != len(rows):  # a request has several rows
        join = b"," if flat else between
        texts = [join.join(texts[end - count : end]) for end, count in zip(accumulate(rows), rows, strict=True)]
    return texts


def takes_long(outputs: Mapping[str, Array]) -> bool:
    """Whether outputs have so many values that a thread writes them, by `dumps_in_slices`."""
    values = 0
    for array in outputs.values():  # faster than a list for `sum`; it runs for each request
        values += array.size
        if array.dtype.hasobject:
            values += sum(map(len, array.flat)) // _CHARACTERS_A_VALUE
    return values > _SLICE


def dumps_in_slices(document: object) -> bytes:
    """The JSON of a document with long arrays, as by `dumps`, for a thread: orjson keeps the GIL for one slice only."""
    return orjson.dumps(_in_slices(document), option=orjson.OPT_SERIALIZE_NUMPY)


def text_bytes(array: Array) -> int:
    """The bytes of an array's JSON; 0 for strings. For a thread: it writes slice by slice, and keeps no text."""
    if array.dtype.hasobject:
        return 0
    numbers = jsonable("", array)
    return sum(map(len, _slices(numbers))) if array.ndim else len(dumps(numbers))


def check_writable(dtype: np.dtype[Any]) -> None:
    """Check that JSON can represent the type. Raises Unsupported."""
    if not (dtype in _NATIVE or dtype == STRING or is_number(dtype)):
        raise Unsupported(f"Failed to write JSON value for tensor type: {enum_name(dtype)}")


def jsonable(name: str, array: Array) -> Any:
    """The array in the form that `dumps` writes as nested lists; a scalar if its rank is 0.

    Args:
        name: of the output. Strings of outputs named `..._bytes` are written as base64.

    Raises:
        Unsupported: as `check_writable`.
    """
    dtype = array.dtype
    if dtype == STRING:
        return _strings(array, name.endswith(_BYTES_SUFFIX))
    if dtype not in _NATIVE:
        check_writable(dtype)
        array = array.astype(np.float32 if is_floating(dtype) else np.int64)
    # orjson accepts neither arrays of rank 0 nor arrays that are not contiguous.
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _strings(array: Array, binary: bool) -> Any:
    texts = np.empty(array.shape, STRING)
    texts.reshape(-1)[:] = [text_or_base64(value, binary) for value in array.reshape(-1)]
    return texts.tolist()


def _mentions_null(text: bytes) -> bool:
    """Whether the text has `null`; `in` is slow among digits, and a search for a single letter as fast as memory."""
    at = text.find(b"l")
    for _ in range(_MOST_LETTERS):
        if at < 0:
            return False
        if text[at - 2 : at + 2] == b"null":
            return True
        at = text.find(b"l", at + 1)
    return b"null" in text


def _spelled_out(value: Any) -> Any:
    """The document with JSON text in place of arrays and numbers that are not all finite."""
    if isinstance(value, dict):
        return {key: _spelled_out(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled_out(each) for each in value]
    if isinstance(value, np.floating) and not np.isfinite(value):
        return orjson.Fragment(_word(float(value)))
    return orjson.Fragment(_numbers(value)) if isinstance(value, np.ndarray) else value


def _in_slices(value: Any) -> Any:
    """The document with JSON text in place of each array, list and long string."""
    if isinstance(value, dict):
        return {key: _in_slices(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        groups = [value[start : start + _GROUP] for start in range(0, len(value), _GROUP)]
        return orjson.Fragment(b"[%b]" % b",".join([_group(each) for each in groups]))
    if isinstance(value, str) and len(value) > _LONG_STRING:
        parts = range(0, len(value), _SLICE_CHARACTERS)
        return orjson.Fragment(b'"%b"' % b"".join([_text(value[at : at + _SLICE_CHARACTERS]) for at in parts]))
    if isinstance(value, np.floating) and not np.isfinite(value):
        return orjson.Fragment(_word(float(value)))
    return orjson.Fragment(b"".join(_slices(value))) if isinstance(value, np.ndarray) else value


def _group(values: Sequence[Any]) -> bytes:
    """The JSON of some elements of a list, without brackets."""
    short = set(map(type, values)) == {str} and sum(map(len, values)) <= _SLICE_CHARACTERS
    text = orjson.dumps(values if short else [_in_slices(each) for each in values], option=orjson.OPT_SERIALIZE_NUMPY)
    time.sleep(0)  # the thread of the event loop may have the GIL
    return text[1:-1]


def _text(value: str) -> bytes:
    """The JSON of a part of a string, without quotes."""
    text = orjson.dumps(value)
    time.sleep(0)
    return text[1:-1]


def _slices(array: Array) -> Iterator[bytes]:
    """The JSON of an array in pieces of at most this many numbers."""
    if array.size <= _SLICE:
        yield _numbers(array)
        return
    rows = max(1, _SLICE * len(array) // array.size)  # of which a slice has room for
    yield b"["
    for start in range(0, len(array), rows):
        if start:
            yield b","
        part = array[start : start + rows]
        yield from (_numbers(part)[1:-1],) if part.size <= _SLICE else _slices(part[0])
        time.sleep(0)  # the thread of the event loop may have the GIL
    yield b"]"


def _numbers(array: Array) -> bytes:
    """The JSON of an array, with the words of NaN and infinities in place of orjson's nulls."""
    text = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    if not (_L in text and _mentions_null(text)):
        return text
    words = iter([_word(value) for value in array[~np.isfinite(array)]])
    return re.sub(rb"null", lambda _: next(words), text)


def _word(value: float) -> bytes:
    if np.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"
