"""Where a frame ends: bytes as they arrive come in, the client's frames go out (RFC 9113, sections 3.4 and 4)."""

from __future__ import annotations

from collections.abc import Iterator

from app.transports.http2 import frames
from app.transports.http2.events import ConnectionFailed
from app.transports.http2.frames import HEAD, HEAD_BYTES, LARGEST_STREAM, PREFACE, ErrorCode

#: The most that a client may send, since our settings name no other (section 4.2).
MAX_FRAME_BYTES = frames.DEFAULT_FRAME_BYTES

#: Its kind, flags, stream and payload.
Frame = tuple[int, int, int, bytes]


class FrameReader:
    """Of one connection.

    Attributes:
        unread: the beginning of a frame, or of the preface, that is not whole.
    """

    __slots__ = ("_preface_read", "unread")

    def __init__(self) -> None:
        self._preface_read = False
        self.unread = b""

    def read(self, content: bytes) -> Iterator[Frame]:
        """The whole frames of these bytes and those before them; what is left is kept once the last one was taken.

        Raises ConnectionFailed, after the frames before the fault.
        """
        if self.unread:
            content = self.unread + content
            self.unread = b""
        at = 0
        if not self._preface_read:
            self._check_preface(content)
            if len(content) < len(PREFACE):
                self.unread = content
                return
            self._preface_read = True
            at = len(PREFACE)

        size, unpack = len(content), HEAD.unpack_from
        while size - at >= HEAD_BYTES:
            high, low, kind, flags, number = unpack(content, at)
            length = high << 8 | low
            if length > MAX_FRAME_BYTES:  # section 4.2
                text = f"a frame of {length} bytes; expected {MAX_FRAME_BYTES:,} at most"
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, text)
            start = at + HEAD_BYTES
            end = start + length
            if end > size:
                break
            at = end
            yield kind, flags, number & LARGEST_STREAM, content[start:end]
        self.unread = content[at:]

    def _check_preface(self, content: bytes) -> None:
        """Section 3.4."""
        if not PREFACE.startswith(content[: len(PREFACE)]):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "expected the preface of HTTP/2")
