"""Where a frame ends: bytes as they arrive come in, the client's frames go out (RFC 9113, sections 3.4 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from sys import maxsize

from app.transports.http2 import frames
from app.transports.http2.events import ConnectionFailed
from app.transports.http2.frames import HEAD, HEAD_BYTES, LARGEST_STREAM, PREFACE, ErrorCode

#: The most that a client may send, since our settings name no other (section 4.2).
MAX_FRAME_BYTES = frames.DEFAULT_FRAME_BYTES

#: Its kind, flags, stream and payload.
Frame = tuple[int, int, int, bytes]


class FrameReader:
    """Cuts the bytes of one connection into frames.

    Attributes:
        more: whole frames may be left, since `read` was to give no more of them.
    """

    __slots__ = ("_at", "_content", "_preface_read", "more")

    def __init__(self) -> None:
        self._preface_read = False
        self._content = b""
        self._at = 0  # bytes before this were read
        self.more = False

    @property
    def unread(self) -> bytes:
        """Frames that were not asked for yet, then the beginning of one (or of the preface) that is not whole."""
        return self._content[self._at :]

    @property
    def unread_bytes(self) -> int:
        return len(self._content) - self._at

    def keep(self, content: bytes) -> None:
        """Keeps bytes that come next, once frames are asked for."""
        if self._at < len(self._content):
            content = self.unread + content
        self._content, self._at = content, 0

    def drop(self) -> None:
        self._content, self._at, self.more = b"", 0, False

    def read(self, content: bytes, most: int = maxsize) -> Iterator[Frame]:
        """The whole frames of these bytes and those before them, `most` of them; the rest is kept.

        Raises ConnectionFailed, after the frames before the fault.
        """
        # 1. The preface, once.
        self.more = False
        if content:
            self.keep(content)
        content, at = self._content, self._at
        if not self._preface_read:
            self._check_preface(content)
            if len(content) < len(PREFACE):
                return
            self._preface_read = True
            self._at = at = len(PREFACE)

        # 2. Whole frames; one that is too long ends the connection.
        size, unpack = len(content), HEAD.unpack_from
        while size - at >= HEAD_BYTES:
            if not most:
                self.more = True
                return
            high, low, kind, flags, number = unpack(content, at)
            length = high << 8 | low
            if length > MAX_FRAME_BYTES:  # section 4.2
                text = f"a frame of {length} bytes; expected {MAX_FRAME_BYTES:,} at most"
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, text)
            start = at + HEAD_BYTES
            end = start + length
            if end > size:
                break
            self._at = at = end
            most -= 1
            yield kind, flags, number & LARGEST_STREAM, content[start:end]

        # 3. What is left waits for the next bytes.
        if self._content is content:  # else the connection has failed meanwhile
            self._content, self._at = content[at:], 0

    def _check_preface(self, content: bytes) -> None:
        """Checks that the client begins with the preface (section 3.4), as far as it has come."""
        if not PREFACE.startswith(content[: len(PREFACE)]):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "expected the preface of HTTP/2")
