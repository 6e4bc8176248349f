"""Long arrays of numbers in JSON text, read without a Python object for each number. Pure.

simdjson reads the numbers, as correctly rounded as orjson does, and rejects everything that is no number. It also
flattens lists of any lengths, so whether they are rectangular is seen from the text.


JSON documents whose long arrays of numbers stay text until it is known what they are for. Pure.

The arrays are cut out, and what remains is parsed by orjson. An array is looked for between two strings: there
are no quotes inside it, and no braces. Anything unusual is left to those who parse the document as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal

import numpy as np
import orjson
import simdjson

from app.core.inference import Array

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


#: In shorter bodies, and for shorter arrays, orjson is as fast.
SHORTEST_BYTES = 8192

#: Where a document has strings more often than this, looking for arrays between them does not pay.
_BYTES_BETWEEN_STRINGS = 512


def cut(body: bytes) -> dict[str, Any] | None:
    """The object in a body, with Numbers for long arrays of numbers; None where it has none or is unusual.

    Numbers stand in these places only: `instances` or `inputs`, the fields of an object there, and the fields of
    objects in a list there. Everything else is as orjson reads it; texts that orjson rejects give None.
    """
    spans = _long_arrays(body) if len(body) >= SHORTEST_BYTES else []
    if not spans:
        return None
    pieces, numbers = _cut_out(body, spans)
    # Without an escape all quotes delimit strings, and no string can look like a mark.
    if numbers is None or any(b"\\" in piece for piece in pieces):
        return None
    text = pieces[0] + b"".join(_mark(index) + piece for index, piece in enumerate(pieces[1:]))
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document if type(document) is dict and _put_back(document, numbers) else None


def _long_arrays(body: bytes) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start, strings = 0, 0
    while True:
        quote = body.find(b'"', start)
        end = len(body) if quote < 0 else quote
        if end - start >= SHORTEST_BYTES:
            spans += _array_between(body, start, end)
        if quote < 0:
            return spans
        start = body.find(b'"', quote + 1) + 1
        strings += 1
        if not start or strings * _BYTES_BETWEEN_STRINGS > start + 16 * _BYTES_BETWEEN_STRINGS:
            return []


def _array_between(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    first = body.find(b"[", start, end)
    brace = body.find(b"}", start, end)
    last = body.rfind(b"]", start, end if brace < 0 else brace)
    if 0 <= first <= last - SHORTEST_BYTES:
        yield first, last + 1


def _cut_out(body: bytes, spans: list[tuple[int, int]]) -> tuple[list[bytes], list[Numbers] | None]:
    """The text around the arrays, and these; None where one is no array of numbers."""
    starts = [0, *(stop for _, stop in spans)]
    ends = [*(start for start, _ in spans), len(body)]
    pieces = [body[start:end] for start, end in zip(starts, ends, strict=True)]
    try:
        return pieces, [Numbers(body[start:stop]) for start, stop in spans]
    except ValueError:
        return pieces, None


def _mark(index: int) -> bytes:
    """An array, as what it stands for: a string could be the name of a field too."""
    return b'["\\u0000%d"]' % index


def _index(value: Any) -> int | None:
    if type(value) is list and len(value) == 1 and type(value[0]) is str and value[0][:1] == "\0":
        return int(value[0][1:])
    return None


def _put_back(document: dict[str, Any], numbers: list[Numbers]) -> bool:
    """Replaces the marks by what they stand for; False where one is in another place than these."""
    left = len(numbers)
    for fields, names in _places(document):
        for name in names:
            index = _index(fields[name])
            if index is not None:
                fields[name] = numbers[index]
                left -= 1
    return not left


def _places(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    for key in ("instances", "inputs"):
        value = document.get(key)
        if key in document:
            yield document, [key]
        if type(value) is dict:
            yield value, list(value)
        elif type(value) is list:
            for each in value:
                if type(each) is dict:
                    yield each, list(each)
