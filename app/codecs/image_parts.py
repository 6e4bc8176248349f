"""The count of an image file's parts before Pillow reads it: a part takes a call of Python, a scan a pass."""

from __future__ import annotations

from app.core.errors import InvalidRequest

#: An image may have this many segments or chunks, and one more per this many bytes. Chosen: cameras write some 20
#: segments, encoders chunks of 8 KiB or more.
_FREE_PARTS, _BYTES_A_PART = 200, 1024

#: Each scan of a progressive JPEG is a pass over all pixels. Chosen: encoders write 10, and a thumbnail has its own.
_MOST_SCANS = 64

_PNG_START, _MARKER = 8, 0xFF


def check_parts(format_: str, body: bytes) -> None:
    """Raises InvalidRequest if a JPEG or PNG has very many parts. Pillow finds other faults."""
    if format_ == "PNG" and body.count(b"iCCP") > 1:  # each is inflated (PNG, section 5.6: at most one)
        raise InvalidRequest("The PNG image has more than one colour profile")
    most = _FREE_PARTS + len(body) // _BYTES_A_PART
    position = _PNG_START if format_ == "PNG" else 2
    following = _after_chunk if format_ == "PNG" else _after_segment
    for _ in range(most):
        if position >= len(body):
            break
        position = following(body, position)
    if position < len(body) or body.count(b"\xff\xda") > _MOST_SCANS + len(body) // _BYTES_A_PART:
        raise InvalidRequest(f"The {format_} image has more than {most} parts, or more than {_MOST_SCANS} scans")


def _after_chunk(body: bytes, position: int) -> int:
    """The place after a chunk: length, type, data and checksum (PNG, section 5.3)."""
    return position + 12 + int.from_bytes(body[position : position + 4], "big")


def _after_segment(body: bytes, position: int) -> int:
    """The place after a segment; the end of the file at the first scan (JPEG, B.1.1). A stray byte is a part, too."""
    if body[position] != _MARKER or body[position + 1 : position + 2] in (b"\xff", b"\0"):
        return position + 1
    if body[position + 1 : position + 2] == b"\xda":
        return len(body)
    if body[position + 1 : position + 2] in _WITHOUT_LENGTH:
        return position + 2
    return position + 2 + int.from_bytes(body[position + 2 : position + 4], "big")


#: TEM, RST0 to RST7, SOI, EOI.
_WITHOUT_LENGTH = [bytes([marker]) for marker in (0x01, *range(0xD0, 0xDA))]
