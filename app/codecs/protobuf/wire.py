"""Protocol buffers' wire encoding: large values that are written without a message object, and fields that are counted.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from app.core.errors import InvalidRequest

#: Serialized pieces, joined once at the end; large ones are views of arrays.
Parts = Sequence[bytes | memoryview]

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5

#: A message of this size may have so many fields. Chosen: a field of two bytes may become a message object of 180.
_SHORT_BYTES, _MOST_FIELDS = 16 * 1024, 4096

#: The longest varint.
_VARINT_BYTES = 10


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


def check_fields(content: bytes) -> None:
    """Raises InvalidRequest if a message has very many fields at its top level: inputs, mostly."""
    if len(content) < _SHORT_BYTES:
        return
    position = 0
    for _ in range(_MOST_FIELDS):
        if position >= len(content):
            return
        tag, position = _read_varint(content, position)
        match tag & 7:
            case wire if wire == _LENGTH_DELIMITED:
                length, position = _read_varint(content, position)
                position += length
            case wire if wire == _VARINT:
                _, position = _read_varint(content, position)
            case wire if wire == _FIXED_64:
                position += 8
            case wire if wire == _FIXED_32:
                position += 4
            case _:
                return  # the parser rejects it
    raise InvalidRequest(f"The message has more than {_MOST_FIELDS} inputs, outputs or other fields")


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it. One that is too long or cut off is for the parser."""
    number = 0
    for place, byte in enumerate(content[position : position + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, position + place + 1
    return number, len(content)


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
