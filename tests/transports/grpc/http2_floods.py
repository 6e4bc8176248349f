"""Floods of HTTP/2 frames that cost a server work and ask for nothing, as clients of gRPC.

Each is a function of the number of a stream, which is odd: CVE-2023-44487 (rapid reset), CVE-2025-8671 (made you
reset), CVE-2024-27316 (continuations), CVE-2019-9512 to 9518 (pings, settings, empty frames), and bombs of HPACK.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from app.transports.http2.hpack import encode_number
from tests.transports.grpc.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    grpc_call,
)

PATH = "/inference.GRPCInferenceService/ServerLive"

_PRIORITY, _UNKNOWN = 2, 99

#: A value enters the table, and is then referred to by a byte each (RFC 7541, section 6).
_BOMB, _SMALL_BOMB = (b"\x40\1a" + encode_number(size, 0x7F, 0) + b"a" * size + b"\xbe" * 12_000 for size in (4000, 1))


def call_head(stream: int) -> bytes:
    """The head of a call that does not end."""
    return grpc_call(stream, PATH, b"")[: -len(frame(DATA, END_STREAM, 1, bytes(5)))]


FLOODS: Mapping[str, Callable[[int], bytes]] = {
    "rapid reset": lambda n: call_head(n) + frame(RESET, 0, n, bytes(3) + b"\x08"),
    "made you reset": lambda n: call_head(n) + frame(WINDOW_UPDATE, 0, n, bytes(4)),
    "settings": lambda _: frame(SETTINGS, payload=struct.pack("!HI", 4, 10) * 2),
    "pings": lambda _: frame(PING, payload=bytes(8)),
    "pings answered": lambda _: frame(PING, ACK, payload=bytes(8)),
    "empty data": lambda n: call_head(n) + frame(DATA, 0, n) * 20,
    "windows": lambda _: frame(WINDOW_UPDATE, payload=b"\0\0\0\1"),
    "priorities": lambda n: frame(_PRIORITY, 0, n, bytes(5)),
    "continuations": lambda n: frame(HEADERS, 0, 1, b"\x82") if n == 1 else frame(CONTINUATION, 0, 1),
    "bombs": lambda n: frame(HEADERS, END_HEADERS | END_STREAM, n, _BOMB),
    "small bombs": lambda n: frame(HEADERS, END_HEADERS | END_STREAM, n, _SMALL_BOMB),
    "unknown frames": lambda _: frame(_UNKNOWN),
    "data of closed streams": lambda n: frame(RESET, 0, 1, bytes(4)) if n > 1 else call_head(1),
    "data of streams that the server ended": lambda n: frame(DATA, 0, 1) * 20 if n > 1 else _refused(1),
}


def _refused(stream: int) -> bytes:
    """The head of a call of no method, which the server answers and resets."""
    return call_head(stream).replace(b"ServerLive", b"NothingYet")


def pieces(flood: str, requests: int = 10_000, together: int = 20) -> Iterator[bytes]:
    """Its frames, some requests at a time."""
    make = FLOODS[flood]
    for first in range(1, 2 * requests, 2 * together):
        yield b"".join(make(number) for number in range(first, first + 2 * together, 2))
