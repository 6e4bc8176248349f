"""Request bodies inflated by Content-Encoding, in bounded pieces; reply bodies compressed by Accept-Encoding.

zlib and not gzip.GzipFile: a stream is inflated while it arrives, and a file object would have to wait for its bytes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

from app.codecs.media_types import quality_values
from app.core.errors import InvalidRequest

#: The largest piece, however much a small body grows (chosen).
PIECE_BYTES = 64 * 1024

#: zlib's window sizes: gzip or zlib by the header; raw deflate, which some clients send as `deflate`.
_ANY_HEADER, _NO_HEADER = 47, -15

#: So many bytes decide between them.
_TELLING_BYTES = 2


class UnsupportedEncoding(InvalidRequest):
    """The request has a Content-Encoding that is not supported."""


class Inflater:
    """Inflates one body.

    Args:
        encoding: Content-Encoding as sent; empty and `identity` do not change the body.

    Raises:
        UnsupportedEncoding.
    """

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnsupportedEncoding(
                f"Content-Encoding {encoding[:64]!r} is not supported; send gzip, deflate or identity"
            )
        self._encoding = encoding
        self._start = b""
        self._member: zlib._Decompress | None = None  # gzip allows several members in a row; this one is read now

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The next bytes, inflated. Raises InvalidRequest if they cannot be inflated."""
        if self._encoding in ("", "identity"):
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
            return
        try:
            yield from self._inflate(data)
        except zlib.error as error:
            raise self._invalid() from error

    def finish(self) -> None:
        """Ends the body. Raises InvalidRequest if it is cut off."""
        if self._member is not None or self._start:
            raise self._invalid()

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        data, self._start = self._start + data, b""
        while data:
            if self._member is None:
                if len(data) < _TELLING_BYTES:
                    self._start = data
                    return
                self._member = zlib.decompressobj(self._window(data))
            member = self._member
            while piece := member.decompress(data, PIECE_BYTES):
                yield piece
                data = member.unconsumed_tail
            data = member.unused_data
            if member.eof:
                self._member = None

    def _window(self, start: bytes) -> int:
        try:
            zlib.decompressobj(_ANY_HEADER).decompress(start[:_TELLING_BYTES])
        except zlib.error:
            if self._encoding != "deflate":
                raise
            return _NO_HEADER
        return _ANY_HEADER

    def _invalid(self) -> InvalidRequest:
        return InvalidRequest(f"The body is not valid {self._encoding} though Content-Encoding says so")


#: Compressing a smaller body saves no packet (chosen: an Ethernet packet carries 1,460 bytes).
MIN_BYTES = 1024

#: A larger body is compressed in a thread, since that takes long (chosen).
_LARGE_BYTES = 32 * 1024

#: The fastest level (chosen).
_LEVEL = 1

#: zlib's window size by which it writes the header of each encoding; the preferred encoding comes first.
_WINDOWS = {"gzip": 31, "deflate": 15}


def choose_encoding(accept: bytes | None) -> str | None:
    """'gzip', 'deflate', or None for neither. Of two with the same quality value, gzip."""
    if not accept:
        return None
    accepted = quality_values(accept)
    best = max(_WINDOWS, key=lambda name: accepted.get(name, 0.0))
    return best if accepted.get(best, 0.0) > 0 else None


async def compress(body: bytes, encoding: str) -> bytes:
    """The body, compressed; `encoding` is a result of `choose_encoding`."""
    if len(body) < _LARGE_BYTES:
        return _compress(body, encoding)
    return await asyncio.to_thread(_compress, body, encoding)


def _compress(body: bytes, encoding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, wbits=_WINDOWS[encoding])
    return stream.compress(body) + stream.flush()
