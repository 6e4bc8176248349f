"""gRPC's messages in the content of a request: a flag, a length, and the message, perhaps compressed.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from app.transports.body_parts import keep_part
from app.transports.grpc.codes import StatusCode

PREFIX = struct.Struct(">BI")

#: Encodings of messages that we read, as `grpc-accept-encoding` names them.
ENCODINGS = b"identity, deflate, gzip"

#: The memory of a message beside its content. Chosen: somewhat more than Python takes.
_OBJECT_BYTES = 128

#: zlib's window bits for each.
_WINDOW_BITS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}


class Rejected(Exception):
    """The request's messages end the call, with this code and text."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Message(NamedTuple):
    """A message as it came, perhaps compressed."""

    compressed: int
    content: bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the message takes while it waits, those of the object included."""
        return len(self.content) + _OBJECT_BYTES


class MessageReader:
    """Cuts the content of a request into messages, of `limit` bytes at most.

    Attributes:
        size: bytes of the message that is not whole.
    """

    __slots__ = ("_compressed", "_length", "_limit", "_parts", "_prefix", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self._compressed = 0
        self._length = -1  # of the message that is being read; -1 before its prefix is whole
        self._parts: list[bytes | bytearray] = []
        self.size = 0

    @property
    def between(self) -> bool:
        """Whether nothing of a further message has come."""
        return self._length < 0 and not self._prefix

    @property
    def missing(self) -> int:
        """Bytes of the message that are to come, as far as that is known."""
        return self._length - self.size if self._length >= 0 else 0

    def feed(self, content: bytes) -> list[Message]:
        """The messages that are whole now; content that is many of them is copied once. Raises Rejected."""
        messages: list[Message] = []
        if self._prefix:
            content, self._prefix = self._prefix + content, b""
        at, size = 0, len(content)
        while True:
            if self._length < 0:
                if size - at < PREFIX.size:
                    self._prefix = content[at:]
                    return messages
                self._begin(content, at)
                at += PREFIX.size
            end = at + self._length - self.size
            if size < end:
                if at < size:
                    keep_part(self._parts, content[at:])
                    self.size += size - at
                return messages
            last = content[at:end]
            messages.append(Message(self._compressed, b"".join([*self._parts, last]) if self._parts else last))
            self._parts, self.size, self._length, at = [], 0, -1, end

    def _begin(self, content: bytes, at: int) -> None:
        self._compressed, self._length = PREFIX.unpack_from(content, at)
        if self._compressed > 1:
            raise _not_a_message("A message begins with a byte that is neither 0 nor 1")
        if self._length > self._limit:
            raise too_large(self._length, self._limit)


def too_large(size: int, limit: int) -> Rejected:
    """The rejection of a message above the limit, in the words of gRPC's own servers."""
    return Rejected(StatusCode.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {limit})")


def _not_a_message(text: str) -> Rejected:
    return Rejected(StatusCode.INVALID_ARGUMENT, text)


def inflate(content: bytes, encoding: bytes, limit: int) -> bytes:
    """The message, of `limit` bytes at most. Raises Rejected."""
    bits = _WINDOW_BITS.get(encoding)
    if encoding == b"identity":  # https://github.com/grpc/grpc/blob/master/doc/compression.md
        raise Rejected(StatusCode.INTERNAL, "A message is compressed, but grpc-encoding does not say how")
    if bits is None:
        raise Rejected(StatusCode.UNIMPLEMENTED, f"A message is compressed in none of the ways {ENCODINGS.decode()}")
    inflater = zlib.decompressobj(bits)
    try:
        inflated = inflater.decompress(content, limit + 1)
    except zlib.error as error:
        raise _not_a_message(f"A message cannot be decompressed: {error}") from None
    if len(inflated) > limit:
        raise too_large(len(inflated), limit)
    if not inflater.eof:
        raise _not_a_message("A compressed message ends before its end")
    return inflated
