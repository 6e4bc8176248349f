"""Long arrays of numbers in JSON, read without a Python object for each number.

1. `parse_long_arrays` removes each long array from the text and lets orjson parse the rest. It looks for an array
   between two strings: inside an array of numbers there are neither quotes nor braces. It returns None for every
   unusual text, and the caller parses the whole document in the ordinary way.
2. A removed array is put back into the document as `Numbers`, still as text. Once the tensor type is known, simdjson
   reads all numbers at once, rounded as correctly as by orjson, and rejects everything that is not a number.
3. simdjson flattens nested lists of any lengths. Whether the lists are rectangular is checked in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod
from typing import Any, Literal

import numpy as np
import orjson
import simdjson

from app.codecs.arrays import MAX_RANK
from app.codecs.at_once import SHORT_BYTES, are_few_numbers, check_numbers, check_text
from app.core.inference import Array

#: In shorter bodies, and for shorter arrays, orjson is as fast. Measured by bench/json_bodies.py.
SHORTEST_BYTES = 8192

#: If strings are closer together than this on average, the search for arrays costs more than it saves. Chosen.
_BYTES_BETWEEN_STRINGS = 512

#: All characters of valid JSON numbers and of white space.
_NUMERALS = b"0123456789+-.eE \t\r\n"

#: What simdjson raises for an element of another type or out of range, and for text that is not JSON.
_PARSE_ERRORS = (TypeError, ValueError, RuntimeError)


class Numbers:
    """A JSON array of at least one element, still as text. Its elements should be numbers or nested arrays of numbers.

    Args:
        most: the most values that `expanded` makes, and that take as long as reading the numbers.

    Raises:
        ValueError: the text is not a JSON array, or an empty one.
        TakesLong: the array is longer than `most` allows.
    """

    __slots__ = ("_array", "_known_marks", "_most", "_text")

    def __init__(self, text: bytes, most: float = inf) -> None:
        self._text, self._most = text, most
        self._known_marks: bytes | None = None
        if not are_few_numbers(len(text), most):
            check_numbers(len(text), text if text.rfind(b"[") == 0 else self._marks(), most)
        try:
            self._array: Any = simdjson.Parser().parse(text)  # simdjson copies the text and adds its padding
        except _PARSE_ERRORS as error:
            raise ValueError from error
        if type(self._array) is not simdjson.Array or not len(self._array):
            raise ValueError

    def doubles(self) -> Array | None:
        """A float64 array; None if an element is not a number or the lists are not rectangular."""
        return self._read("d", np.dtype(np.float64))

    def integers(self, signed: bool) -> Array | None:
        """An int64 or uint64 array; None as for `doubles`, and if an element is not a whole number of that range."""
        return self._read("i", np.dtype(np.int64)) if signed else self._read("u", np.dtype(np.uint64))

    def expanded(self) -> list[Any]:
        """The same as lists of Python objects. Raises TakesLong."""
        check_text(self._text, self._most)
        lists: list[Any] = orjson.loads(self._text)
        return lists

    def _read(self, of_type: Literal["d", "i", "u"], dtype: np.dtype[Any]) -> Array | None:
        try:
            flat = np.frombuffer(self._array.as_buffer(of_type=of_type), dtype)
        except _PARSE_ERRORS:
            return None
        shape = _first_lengths(self._array)
        if flat.size != prod(shape) or not flat.size or not self._is_rectangular(shape):
            return None
        return flat.reshape(shape)

    def _is_rectangular(self, shape: list[int]) -> bool:
        """Is the text nested as `shape` says? It is valid JSON with as many numbers as `shape` has elements.

        It is if its brackets and commas are exactly those of such an array: every place for a number then holds one.
        """
        if len(shape) == 1:
            return self._text.rfind(b"[") == 0
        brackets = 2 * sum(prod(shape[:level]) for level in range(len(shape)))
        return len(shape) <= MAX_RANK and brackets <= len(self._text) and self._marks() == _skeleton(shape)

    def _marks(self) -> bytes:
        """The text without its numbers and white space; kept, for finding it takes half as long as reading them."""
        if self._known_marks is None:
            self._known_marks = self._text.translate(None, _NUMERALS)
        return self._known_marks


def parse_long_arrays(body: bytes, most: float = inf) -> dict[str, Any] | None:
    """The JSON object in a body, with `Numbers` for its long arrays; None if it has none or is unusual.

    `Numbers` stand only as `instances` or `inputs`, as a field of an object there, or as a field of an object in a list
    there. Everything else is what orjson makes of it; a text that orjson rejects gives None. Raises TakesLong if there
    are more than `most` values.
    """
    spans = _long_arrays(body) if len(body) >= SHORTEST_BYTES else []
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


# --- is it rectangular? ---


def _first_lengths(array: Any) -> list[int]:
    """The length of the first list of each level: the shape, if the array is rectangular."""
    shape = []
    while type(array) is simdjson.Array:
        shape.append(len(array))
        array = array[0] if shape[-1] and len(shape) <= MAX_RANK else None
    return shape


def _skeleton(shape: list[int]) -> bytes:
    """The brackets and commas of an array of this shape."""
    text = b""
    for size in reversed(shape):
        text = b"[" + ((text + b",") * size)[:-1] + b"]"
    return text


# --- where are the arrays? ---


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
    """The text around the arrays, and the arrays; None for these if one of them is not a JSON array."""
    starts = [0, *(stop for _, stop in spans)]
    ends = [*(start for start, _ in spans), len(body)]
    pieces = [body[start:end] for start, end in zip(starts, ends, strict=True)]
    try:
        return pieces, [Numbers(body[start:stop], most) for start, stop in spans]
    except ValueError:
        return pieces, None


# --- marks in their place ---


def _mark(index: int) -> bytes:
    """A list, because an array was removed: a bare string could also be the name of a field."""
    return b'["\\u0000%d"]' % index


def _index(value: Any) -> int | None:
    """The number of a mark; None for any other value."""
    if type(value) is list and len(value) == 1 and type(value[0]) is str and value[0][:1] == "\0":
        return int(value[0][1:])
    return None


def _put_back(document: dict[str, Any], numbers: list[Numbers]) -> bool:
    """Replaces all marks by their arrays; False if a mark is in a place that `parse_long_arrays` does not name."""
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
