"""Long arrays of numbers in JSON, read without a Python object for each number.

1. `parse_long_arrays` cuts each long array out of the text, and orjson parses the rest. A long array lies between two
   strings: inside an array of numbers there are neither quotes nor braces.
2. numbers.c reads all numbers of an array at once, rounded as correctly as by orjson, if its lists are rectangular. The
   array is put back into the document as `Numbers`.
For any unusual text, for arrays that numbers.c declines, and where it was not compiled, the result is None: then the
caller parses the whole document in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import orjson

from app.codecs.arrays import MAX_RANK
from app.codecs.at_once import SHORT_BYTES, check_numbers, check_text
from app.codecs.json.compiled_numbers import available, read_numbers
from app.core.inference import Array

#: The bytes of a body, and of an array, below which orjson is as fast. Measured: docs/http-bodies.md.
SHORTEST_BYTES = 8192

#: The average bytes between two strings below which the search for arrays costs more than it saves. Chosen.
_BYTES_BETWEEN_STRINGS = 512


class Numbers:
    """A JSON array of numbers, or of nested arrays of them that are rectangular.

    Args:
        most: the most values of `expanded`.

    Raises:
        ValueError: the text is no such array, or has numbers that no normal double holds.
    """

    __slots__ = ("_most", "_numbers", "_text", "_whole")

    def __init__(self, text: bytes, most: float = inf) -> None:
        read = read_numbers(text)
        if read is None or read.numbers.ndim > MAX_RANK:
            raise ValueError
        self._text, self._most = text, most
        self._numbers, self._whole = read

    def doubles(self) -> Array:
        """The numbers as a float64 array."""
        return self._numbers

    def integers(self, signed: bool) -> Array | None:
        """The numbers as an int64 or uint64 array; None if one is not whole, out of range, or 2^53 or more."""
        if not self._whole or not (signed or self._numbers.min() >= 0):
            return None
        return self._numbers.astype(np.int64 if signed else np.uint64)

    def expanded(self) -> list[Any]:
        """The array as lists of Python objects. Raises TakesLong."""
        check_text(self._text, self._most)
        lists: list[Any] = orjson.loads(self._text)
        return lists


def parse_long_arrays(body: bytes, most: float = inf) -> dict[str, Any] | None:
    """The JSON object in a body, with `Numbers` for its long arrays; None if it has none or is unusual.

    `Numbers` stand only as `instances` or `inputs`, as a field of an object there, or as a field of an object in a list
    there. orjson parses the rest; a text that it rejects gives None. Raises TakesLong if there are more than `most`
    values.
    """
    spans = _long_arrays(body) if len(body) >= SHORTEST_BYTES and available() else []
    if not spans:
        return None

    # 1. Remove the arrays. Without a backslash every quote delimits a string, and no string can look like a mark.
    pieces, numbers = _cut_out(body, spans, most)
    if numbers is None or any(b"\\" in piece for piece in pieces):
        return None

    # 2. Parse the rest, with a mark in place of each array.
    text = pieces[0] + b"".join(_mark(index) + piece for index, piece in enumerate(pieces[1:]))
    if len(text) >= SHORT_BYTES:
        check_text(text, most)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None

    # 3. Replace the marks by the arrays.
    return document if type(document) is dict and _put_back(document, numbers) else None


# --- the places of arrays ---


def _long_arrays(body: bytes) -> list[tuple[int, int]]:
    """Start and end of every long array; none if there are many strings."""
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


def _cut_out(body: bytes, spans: list[tuple[int, int]], most: float) -> tuple[list[bytes], list[Numbers] | None]:
    """The text around the arrays, and the arrays; None for all arrays if one cannot be read. Raises TakesLong."""
    starts = [0, *(stop for _, stop in spans)]
    ends = [*(start for start, _ in spans), len(body)]
    pieces = [body[start:end] for start, end in zip(starts, ends, strict=True)]
    texts = [body[start:stop] for start, stop in spans]
    check_numbers(texts, most)
    try:
        return pieces, [Numbers(text, most) for text in texts]
    except ValueError:
        return pieces, None


# --- marks in their place ---


def _mark(index: int) -> bytes:
    """The mark in place of an array: a list, because a bare string could also be the name of a field."""
    return b'["\\u0000%d"]' % index


def _index(value: Any) -> int | None:
    """The number of a mark; None for any other value."""
    if type(value) is list and len(value) == 1 and type(value[0]) is str and value[0][:1] == "\0":
        return int(value[0][1:])
    return None


def _put_back(document: dict[str, Any], numbers: list[Numbers]) -> bool:
    """Replace all marks by their arrays. False if a mark is in a place that `parse_long_arrays` does not name."""
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
