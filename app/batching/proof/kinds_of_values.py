"""The kinds of values that a request holds: rows may see each other at some kinds only.

Numbers, by input: the sign and the size of a value, by factors of four; zero; not finite.
Texts, by input: the classes of characters, with each sign a class of its own; the length, by factors of two.

The kinds are few, whatever is sent (test_kinds_of_values.py): some 2,100 for an input of float64. Of a large tensor
`_MOST_VALUES` values are looked at, evenly spread, and the beginnings of long texts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from app.core.inference import Array

Kind = Hashable

#: Values of a tensor that are looked at. Chosen: 30 us.
_MOST_VALUES = 4096

#: Characters of a text, and of all texts of an input, that are looked at. Chosen.
_BEGINNING, _MOST_CHARACTERS = 256, 4096

#: The class of each byte of a text; a byte that has none is a kind of its own.
_CLASSES = (
    dict.fromkeys(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "upper")
    | dict.fromkeys(b"abcdefghijklmnopqrstuvwxyz", "lower")
    | dict.fromkeys(b"0123456789", "digit")
    | dict.fromkeys(range(128, 256), "beyond ASCII")
)


def kinds_of(inputs: Mapping[str, Array]) -> set[Kind]:
    """The kinds of all values of a request."""
    kinds: set[Kind] = set()
    for name, array in inputs.items():
        values = array.ravel()
        if values.size > _MOST_VALUES:
            values = values[:: -(-values.size // _MOST_VALUES)]
        kinds |= {(name, kind) for kind in (_of_texts(values) if array.dtype.hasobject else _of_numbers(values))}
    return kinds


def _of_numbers(values: Array) -> Iterable[Kind]:
    if values.dtype.kind == "b":
        return set(values.tolist())
    if values.dtype.kind == "c":
        values = np.concatenate([values.real, values.imag])
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    fractions, exponents = np.frexp(numbers[finite])
    #  The sign and half of the exponent in one number; zero is one that no other value has.
    codes = np.where(fractions == 0, 0, np.sign(fractions) * (exponents // 2 + 4096)).astype(np.int64)
    found: list[Kind] = np.unique(codes).tolist()
    return [*found, *(["not finite"] if not finite.all() else [])]


def _of_texts(values: Array) -> Iterable[Kind]:
    kinds: set[Kind] = set()
    seen = bytearray()
    for text in values:
        content = text if isinstance(text, bytes) else str(text).encode()
        kinds.add(len(content).bit_length())
        if len(seen) < _MOST_CHARACTERS:
            seen += content[:_BEGINNING]
    return kinds | {_CLASSES.get(byte, chr(byte)) for byte in set(seen)}
