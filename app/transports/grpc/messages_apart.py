"""Which messages are read in another process, and how they are parsed there; it imports no gRPC.

A parser takes up to 80 ns a byte where a message has many fields (30 MB of empty strings or parameters: 1 to 2 s in one
call, with the GIL), and hardly anything where it has few, however long they are: tensors as bytes or packed lists.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from app.codecs.protobuf.field_count import has_many_fields
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import check_fields
from app.core.errors import InvalidRequest

#: A shorter message is parsed at once. Chosen: as bodies over HTTP; it takes 0.1 s at worst.
_LONG_BYTES = 1024 * 1024

#: Chosen: counting this many takes 2 ms, which only long messages pay, and parsing them less than that.
_MANY_FIELDS = 2_000


def takes_long(content: bytes, descriptor: Descriptor) -> bool:
    """Would parsing it here keep the GIL for long?"""
    return len(content) >= _LONG_BYTES and has_many_fields(content, descriptor, _MANY_FIELDS)


def parse_apart(message: str, method: str, content: memoryview) -> Any:
    """The message of that full name. Raises InvalidRequest."""
    serialized = bytes(content)
    check_fields(serialized)
    try:
        return message_class(message).FromString(serialized)
    except DecodeError:
        raise InvalidRequest(f"The request is not a message that {method} takes") from None
