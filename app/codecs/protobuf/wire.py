"""Protocol buffers' wire encoding: large values are written without a message object, and fields are counted.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from app.core.errors import InvalidRequest

#: Serialized pieces, joined once at the end; large pieces are views of arrays.
Parts = Sequence[bytes | memoryview]

VARINT, LENGTH_DELIMITED = 0, 2
_USUAL = (VARINT, LENGTH_DELIMITED)

#: The bytes of a value of fixed size, by its wire type.
FIXED_BYTES = {1: 8, 5: 4}

#: The bytes of a message below which its fields are not counted; the most fields of a longer one, and the bytes for one
#: more. Chosen: a field of two bytes may become a message object of 180.
_SHORT_BYTES, _FREE_FIELDS, _BYTES_A_FIELD = 16 * 1024, 1024, 64

#: The longest varint.
_VARINT_BYTES = 10


@lru_cache(maxsize=4096)
def field_start(number: int, length: int) -> bytes:
    """The tag and length before the `length` bytes of a string, a message or a packed list."""
    return varint(number << 3 | LENGTH_DELIMITED) + varint(length)


@lru_cache(maxsize=4096)
def map_entry_start(number: int, key: str, length: int) -> bytes:
    """The bytes before the `length` bytes of a message in a map from strings to messages."""
    encoded = key.encode()
    entry = field_start(1, len(encoded)) + encoded + field_start(2, length)
    return field_start(number, len(entry) + length) + entry


def check_fields(content: bytes) -> None:
    """Check the number of top-level fields, mostly inputs. Raises InvalidRequest if a message has very many."""
    size = len(content)
    if size < _SHORT_BYTES:
        return
    most = _FREE_FIELDS + size // _BYTES_A_FIELD
    position = 0
    for _ in range(most):
        tag, length = content[position : position + 2] if position + 1 < size else b"\0\0"
        wire = tag & 7
        if tag < 0x80 and length < 0x80 and wire in _USUAL:  # in one byte each
            position += 2 + length if wire else 2
        else:
            position = _field_end(content, position)
        if position >= size:
            return
    raise InvalidRequest(f"The message has more than {most} inputs, outputs or other fields")


def _field_end(content: bytes, position: int) -> int:
    """The end of the field at `position`; the end of the content where the parser will find a fault."""
    tag, position = read_varint(content, position)
    wire = tag & 7
    if wire == LENGTH_DELIMITED:
        length, position = read_varint(content, position)
        return position + length
    if wire == VARINT:
        return read_varint(content, position)[1]
    return position + FIXED_BYTES.get(wire, len(content))


def read_varint(content: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it. The parser rejects a number that is too long or cut off."""
    number = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    return number, len(content)


def varint(number: int) -> bytes:
    """The varint of a number from 0 to 2**64 - 1."""
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)
