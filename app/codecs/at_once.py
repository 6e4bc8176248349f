"""Limits of bodies that the event loop reads itself: about two milliseconds of work, on a slow core.

A reader that makes an object of each value gets the most values that it may make. It counts the values before it makes
any, in far less time, and raises `TakesLong` above the limit: another process has to read the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from app.core.inference import Buffer

#: A shorter body is read at once without a count, but for examples. Chosen: it takes 2.5 ms at worst.
SHORT_BYTES = 8192

#: The most values of a body that is read at once: in JSON, examples in JSON, MessagePack, and fields of protobuf.
#: Measured by tests/budgets at its worst bodies: up to 1, 2.5, 1.2 and, with counting them, 3 us each.
MOST_VALUES, MOST_EXAMPLE_VALUES, MOST_ELEMENTS, MOST_FIELDS = 2000.0, 800.0, 1000, 500

#: This many bytes of text, or quotes, take as long as a value. Measured: text of base64 takes 5 ns a byte.
_BYTES_A_VALUE, _QUOTES_A_VALUE = 128, 4

#: The lenient parser takes this many times as long for a text that orjson rejects. Measured: up to 22 ns a byte.
LENIENT = 4

#: This many numbers read by numbers.c, or bytes of them, take as long as a value. Measured: up to 30 ns a number of
#: forty digits, less than 1 ns for each further byte.
_NUMBERS_A_VALUE, _BYTES_OF_NUMBERS = 32, 1024

#: This many bytes of any numbers take no longer than a value. Measured: up to 4.5 ns a byte, for short numbers of
#: varying forms.
_BYTES_AT_WORST = 160

#: An image of more pixels, and an archive of more bytes, is not decoded at once. Measured: 1.3 ms, and 1 ms.
MOST_PIXELS, MOST_INFLATED_BYTES = 256 * 256, 1024 * 1024

#: Strings of numpy's arrays that are converted at once. Chosen: each takes some 0.1 us.
MOST_STRINGS = 10_000


class TakesLong(Exception):
    """Reading this body here would hold up the event loop."""


def check_text(text: Buffer, most: float = inf) -> None:
    """Check that a JSON text is read as fast as `most` values. Raises TakesLong."""
    if len(text) <= most:
        return
    weight = len(text) / _BYTES_A_VALUE
    if weight <= most:
        weight += _count(text, b",:[{") + _count(text, b'"') / _QUOTES_A_VALUE
    if weight > most:
        raise TakesLong


def check_numbers(texts: Sequence[Buffer], most: float) -> None:
    """Check that numbers.c reads these arrays as fast as other code reads `most` values. Raises TakesLong."""
    size = sum(map(len, texts))
    if size <= most * _BYTES_AT_WORST:
        return
    if size / _BYTES_OF_NUMBERS + sum(_count(text, b",") for text in texts) / _NUMBERS_A_VALUE > most:
        raise TakesLong


def _count(text: Buffer, characters: bytes) -> int:
    """The number of these characters in a text. Each value but the first follows one; those in strings count, too."""
    codes = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(codes == character)) for character in characters)
