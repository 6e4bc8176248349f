"""Request bodies inflated by Content-Encoding, in bounded pieces; reply bodies compressed by Accept-Encoding.

zlib and not gzip.GzipFile: a stream is inflated while it arrives, and a file object would have to wait for its bytes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

from app.codecs.errors import BodyTooLarge
from app.codecs.media_types import quality_values
from app.core.errors import InvalidRequest
from app.transports.rendered_pages import Page, Pieces

#: The largest piece, however much a small body grows (chosen).
PIECE_BYTES = 64 * 1024

#: zlib gets this much at a time: it copies the rest of it for each piece and at the end of each member (chosen).
_PART_BYTES = 8 * 1024

#: zlib's window sizes: gzip or zlib by the header; raw deflate, which some clients send as `deflate`.
_ANY_HEADER, _NO_HEADER = 47, -15

#: This many bytes decide between them.
_TELLING_BYTES = 2
_GZIP = b"\x1f\x8b"

#: A body may be inflated to this many bytes, whatever its own size (chosen).
_FREE_BYTES = 1024 * 1024

#: The most that a body's inflated size beyond that may be, as a multiple of the bytes received. Chosen: Apache's
#: DeflateInflateRatioLimit; deflate's own most is 1,032.
_MOST_RATIO = 200


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
        self._received = self._inflated = 0  # bytes
        self._start = b""
        self._is_first = True
        self._member: zlib._Decompress | None = None  # gzip allows several members in a row; this one is read now

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The next bytes, inflated. Raises InvalidRequest if they cannot be; BodyTooLarge if they become too many."""
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
        whole, end = memoryview(self._start + data), 0
        self._start = b""
        self._received += len(data)
        while end < len(whole):
            if self._member is None:
                if len(whole) - end < _TELLING_BYTES:
                    self._start = bytes(whole[end:])
                    return
                self._member = zlib.decompressobj(self._window(bytes(whole[end : end + _TELLING_BYTES])))
            member = self._member
            part: bytes | memoryview = whole[end : end + _PART_BYTES]
            end += len(part)
            while not member.eof and (piece := member.decompress(part, PIECE_BYTES)):
                self._count(len(piece))
                yield piece
                part = member.unconsumed_tail
            if member.eof:
                end -= len(member.unused_data)
                self._member, self._is_first = None, False

    def _count(self, size: int) -> None:
        self._inflated += size
        if self._inflated > _FREE_BYTES + _MOST_RATIO * self._received:
            raise BodyTooLarge(
                f"The {self._encoding} body has more than {_MOST_RATIO} times its size in it; send it "
                "with another Content-Encoding, or in parts"
            )

    def _window(self, start: bytes) -> int:
        """zlib's `wbits` for the form, by the two bytes that it begins with (RFC 1950, 2.2; RFC 1952, 2.3.1).

        Only gzip has several members (RFC 1952, 2.2).
        """
        if not self._is_first and start != _GZIP:
            raise self._invalid()
        zlib_header = start[0] & 15 == 8 and int.from_bytes(start, "big") % 31 == 0
        return _NO_HEADER if self._encoding == "deflate" and not (zlib_header or start == _GZIP) else _ANY_HEADER

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
    arguments = body, _LEVEL, _WINDOWS[encoding]
    return zlib.compress(*arguments) if len(body) < _LARGE_BYTES else await asyncio.to_thread(zlib.compress, *arguments)


def compressed_page(page: bytes, content_type: str, encoding: str | None) -> Pieces[Page]:
    """A page in this encoding; as it is if that is None, or it is small."""
    if encoding is None or len(page) < MIN_BYTES:
        return Page(page, content_type)
    stream, written = zlib.compressobj(_LEVEL, wbits=_WINDOWS[encoding]), list[bytes]()
    for start in range(0, len(page), PIECE_BYTES):
        written.append(stream.compress(page[start : start + PIECE_BYTES]))
        yield
    return Page(b"".join([*written, stream.flush()]), content_type, encoding)
