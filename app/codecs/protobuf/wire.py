"""Protocol buffers' wire encoding, for large values that are written without a message object.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

#: Serialized pieces, joined once at the end; large ones are views of arrays.
Parts = Sequence[bytes | memoryview]

_LENGTH_DELIMITED = 2


@lru_cache(maxsize=4096)
def field_start(number: int, length: int) -> bytes:
    """The tag and length before the `length` bytes of a string, a message or a packed list."""
    return bytes((*_varint(number << 3 | _LENGTH_DELIMITED), *_varint(length)))


def map_entry(number: int, key: str, value: Parts) -> Parts:
    """One entry of a map from strings to messages."""
    encoded = key.encode()
    length = sum([len(part) for part in value])
    entry = field_start(1, len(encoded)) + encoded + field_start(2, length)
    return [field_start(number, len(entry) + length), entry, *value]


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
