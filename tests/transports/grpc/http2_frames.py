"""An HTTP/2 client that sends any frames (RFC 9113, section 4.1), for what a well-behaved one cannot do."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.support.waiting import HANG_S

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4

#: RFC 9113, section 7.
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11

#: RFC 9113, section 6.5.2.
MAX_CONCURRENT_STREAMS = 3

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of a frame that resets a stream."""
        return int.from_bytes(self.payload[:4], "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def grpc_call(stream: int, path: str, message: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The frames of a whole unary call."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    pairs += [("content-type", "application/grpc"), ("te", "trailers"), *headers]
    block = b"".join(_field(name.encode(), value.encode(errors="surrogateescape")) for name, value in pairs)
    body = struct.pack("!BI", 0, len(message)) + message
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)


def _field(name: bytes, value: bytes) -> bytes:
    """Literal, not indexed (RFC 7541, section 6.2.2); both are shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Http2Client:
    """A connection on which the preface and empty settings were sent. `tls`: how it speaks it."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), HANG_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.sendall(_PREFACE + frame(SETTINGS))
        self._unread = b""

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def read(self) -> Frame | None:
        """The next frame; None at the end of the connection. Settings and pings are acknowledged."""
        head = self._exactly(9)
        if head is None:
            return None
        payload = self._exactly(int.from_bytes(head[:3], "big"))
        if payload is None:
            return None
        got = Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        if got.kind in (SETTINGS, PING) and not got.flags & ACK:
            self.send(frame(got.kind, ACK, payload=payload if got.kind == PING else b""))
        return got

    def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        while (got := self.read()) is not None:
            if wanted(got):
                return got
        raise AssertionError("The connection ended before")

    def _exactly(self, size: int) -> bytes | None:
        while len(self._unread) < size:
            more = self.socket.recv(2**16)
            if not more:
                return None
            self._unread += more
        content, self._unread = self._unread[:size], self._unread[size:]
        return content
