"""HTTP/2's frames (RFC 9113, sections 4, 6 and 7): their kinds, flags, error codes, and bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

#: What a client sends first (section 3.4).
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Section 4.1: 24 bits of length in two parts, kind, flags, stream with a reserved bit.
HEAD = struct.Struct(">HBBBI")
HEAD_BYTES = 9

#: Section 6.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20

#: Section 6.5.2.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

#: The values that hold until a peer sets others, and the limits of what it may set (section 6.5.2).
DEFAULT_WINDOW, LARGEST_WINDOW = 2**16 - 1, 2**31 - 1
DEFAULT_FRAME_BYTES, LARGEST_FRAME_BYTES = 2**14, 2**24 - 1

LARGEST_STREAM = 2**31 - 1

_U16_U32 = struct.Struct(">HI")
_U32 = struct.Struct(">I")
_U32_U32 = struct.Struct(">II")


class ErrorCode(IntEnum):
    """The codes of errors (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return head(len(payload), kind, flags, stream) + payload


def head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The head of a frame with a payload of this length."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([_U16_U32.pack(*each) for each in values]))


def read_settings(payload: bytes) -> Iterable[tuple[int, int]]:
    return _U16_U32.iter_unpack(payload)


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def goaway(last_stream: int, code: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _U32_U32.pack(last_stream, code) + text.encode())
