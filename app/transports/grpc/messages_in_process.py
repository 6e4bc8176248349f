"""Which messages are read in another process, and how they are parsed there; it imports no gRPC.

A parser takes up to 80 ns a byte if a message has many fields: 30 MB of empty strings or parameters take 1 to 2 s in
one call, with the GIL. It takes hardly any time for few fields, however long: tensors as bytes or packed lists.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from app.codecs.at_once import MOST_FIELDS, SHORT_BYTES
from app.codecs.errors import NotParsed
from app.codecs.protobuf.field_count import has_many_fields
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import check_fields
from app.core.errors import InvalidRequest


def takes_long(content: bytes, descriptor: Descriptor) -> bool:
    """Would parsing it here hold up the event loop? Short messages and few fields do not."""
    return len(content) >= SHORT_BYTES and has_many_fields(content, descriptor, MOST_FIELDS)


def parse_in_process(message: str, method: str, content: memoryview) -> Any:
    """The message of that full name. Raises NotParsed."""
    serialized = bytes(content)
    try:
        check_fields(serialized)
        return message_class(message).FromString(serialized)
    except DecodeError:
        raise NotParsed(f"The request is not a message that {method} takes") from None
    except InvalidRequest as error:
        raise NotParsed(str(error)) from None
