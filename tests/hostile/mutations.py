"""Small damage to bytes, documents and messages, drawn from a seeded `Random`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

INTEGERS = (
    0,
    1,
    -1,
    2,
    31,
    32,
    33,
    127,
    128,
    255,
    2**16,
    2**31 - 1,
    -(2**31),
    2**32,
    2**62,
    2**63 - 1,
    -(2**63),
    2**64,
)
FLOATS = (0.0, -0.0, 0.5, 1e308, -1e308, 1e-320, math.nan, math.inf, -math.inf)
TEXTS = (
    "",
    "a",
    "x",
    "\0",
    "ä",
    "\ud800",
    "serving_default",
    "FP32",
    "BYTES",
    "INT64",
    "float32",
    "string",
    "x" * 3000,
)
VALUES: tuple[Any, ...] = (
    *INTEGERS,
    *FLOATS,
    *TEXTS,
    *(None, True, False, [], {}, [[]], [[], [1]], [None], {"b64": "!"}, {"b64": "AAA="}, {"b64": 1}, [1, [2]], 10**400),
)

_CHUNKS = (
    b"\0",
    b"\xff",
    b"\0" * 64,
    b"[" * 2000,
    b"{",
    b"}",
    b'"',
    b",",
    b"NaN",
    b"\xf0\x9f",
    b"\x80" * 11,
    b"PK\x05\x06",
)


def damaged(random: Random, content: bytes, other: bytes = b"") -> bytes:
    """One to four changes somewhere in the bytes."""
    for _ in range(random.randint(1, 4)):
        content = random.choice(_DAMAGES)(random, content, random.randrange(len(content) + 1), other)
    return content


def _flip(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    return content[:at] + bytes(each ^ (1 << random.randrange(8)) for each in content[at : at + 1]) + content[at + 1 :]


def _cut(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    return content[:at]


def _drop(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    return content[:at] + content[at + random.randint(1, 8) :]


def _repeat(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    return content[:at] + content[at : at + random.randint(1, 64)] * random.randint(2, 5) + content[at:]


def _insert(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    return content[:at] + random.choice((*_CHUNKS, random.randbytes(4))) + content[at:]


def _number(random: Random, content: bytes, at: int, _: bytes) -> bytes:
    size = random.choice((1, 2, 4, 8))
    number = random.choice(INTEGERS) % 256**size
    return content[:at] + number.to_bytes(size, random.choice(("little", "big"))) + content[at + size :]


def _splice(random: Random, content: bytes, at: int, other: bytes) -> bytes:
    return content[:at] + other[random.randrange(len(other) + 1) :]


_DAMAGES: tuple[Callable[[Random, bytes, int, bytes], bytes], ...] = (
    *(_flip, _flip, _cut, _drop, _repeat, _insert, _number, _number, _splice),
)


def damaged_document(random: Random, document: Any) -> Any:
    """One to three values of the document replaced, left out, renamed, wrapped or multiplied."""
    document = copy.deepcopy(document)
    for _ in range(random.randint(1, 3)):
        document = _damage_somewhere(random, document)
    return document


def _damage_somewhere(random: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        match random.randrange(8):
            case 0:
                del value[key]
            case 1:
                value[random.choice([text for text in TEXTS if text.isprintable()])] = value.pop(key)
            case _:
                value[key] = _damage_somewhere(random, value[key])
        return value
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                del value[at]
            case 1:
                value[at:at] = [value[at]] * random.randint(1, 40)
            case _:
                value[at] = _damage_somewhere(random, value[at])
        return value
    return _nested(value, random.randint(1, 300)) if random.random() < 0.05 else copy.deepcopy(random.choice(VALUES))


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def damage_message(random: Random, message: Any, changes: int = 3) -> None:
    """Up to so many fields of a protocol buffer, or of what is in it, set, cleared or multiplied."""
    for _ in range(random.randint(1, changes) if message.DESCRIPTOR.fields else 0):
        _damage_field(random, message, random.choice(message.DESCRIPTOR.fields))


def _damage_field(random: Random, message: Any, field: FieldDescriptor) -> None:
    held = getattr(message, field.name)
    if random.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        _damage_map(random, held, field.message_type.fields_by_name["value"])
    elif field.is_repeated:
        _damage_list(random, held, field)
    elif field.message_type is not None:
        held.SetInParent()
        damage_message(random, held)
    else:
        setattr(message, field.name, _scalar(random, field))


def _damage_map(random: Random, held: Any, values: FieldDescriptor) -> None:
    key = random.choice([*held, "x", ""])
    if values.message_type is not None:
        damage_message(random, held[key])
    else:
        held[key] = _scalar(random, values)


def _damage_list(random: Random, held: Any, field: FieldDescriptor) -> None:
    if held and random.random() < 0.3:
        del held[random.randrange(len(held))]
    elif field.message_type is not None:
        damage_message(random, random.choice(held) if held and random.random() < 0.7 else held.add())
    else:
        held.extend([_scalar(random, field)] * random.choice((1, 1, 2, 50)))


_RANGES = {
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
}


def _scalar(random: Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.choice((0, 1, 4, 7, 8, 64)))
        case FieldDescriptor.CPPTYPE_STRING:
            return random.choice([text for text in TEXTS if text != "\ud800"])
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return random.choice((*FLOATS, 1.0))
        case kind:
            least, beyond = _RANGES.get(kind, (-(2**31), 2**31))  # enums and int32
            return random.choice([each for each in INTEGERS if least <= each < beyond])
