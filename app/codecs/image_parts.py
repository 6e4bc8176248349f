"""The check of the number of parts and scans in an image file, before Pillow reads it.

Pillow calls Python for every part (a segment of JPEG, a chunk of PNG), and passes over all pixels for every scan.
"""

from __future__ import annotations

from app.core.errors import InvalidRequest

#: The parts that any image may have, and the bytes of the file that allow another part. Chosen: cameras write some 20
#: segments, and encoders write chunks of 8 KiB or more.
_FREE_PARTS, _BYTES_A_PART = 200, 1024

#: The scans that any progressive JPEG may have. Chosen: encoders write 10, and an embedded thumbnail has scans, too.
_MOST_SCANS = 64

#: The bytes before the first part of PNG and of JPEG, and the first byte of a marker of JPEG.
_PNG_START, _JPEG_START, _MARKER = 8, 2, 0xFF


def check_parts(format_: str, body: bytes) -> None:
    """Check the number of parts and scans of a JPEG or PNG; Pillow finds all other faults. Raises InvalidRequest."""
    if format_ == "PNG" and body.count(b"iCCP") > 1:  # Pillow inflates every profile; PNG allows one (section 5.6)
        raise InvalidRequest("The PNG image has more than one colour profile")
    most_parts = _FREE_PARTS + len(body) // _BYTES_A_PART
    position = _PNG_START if format_ == "PNG" else _JPEG_START
    next_part = _after_chunk if format_ == "PNG" else _after_segment
    for _ in range(most_parts):
        if position >= len(body):
            break
        position = next_part(body, position)
    if position < len(body) or body.count(b"\xff\xda") > _MOST_SCANS + len(body) // _BYTES_A_PART:
        raise InvalidRequest(f"The {format_} image has more than {most_parts} parts, or more than {_MOST_SCANS} scans")


def _after_chunk(body: bytes, position: int) -> int:
    """The position after a chunk: length, type, data and checksum (PNG, section 5.3)."""
    return position + 12 + int.from_bytes(body[position : position + 4], "big")


def _after_segment(body: bytes, position: int) -> int:
    """The position after a segment (JPEG, B.1.1); at a scan, the end of the file. A stray byte counts as a part."""
    if body[position] != _MARKER or body[position + 1 : position + 2] in (b"\xff", b"\0"):
        return position + 1
    if body[position + 1 : position + 2] == b"\xda":
        return len(body)
    if body[position + 1 : position + 2] in _BARE_MARKERS:
        return position + 2
    return position + 2 + int.from_bytes(body[position + 2 : position + 4], "big")


#: The markers without a length and data: TEM, RST0 to RST7, SOI, EOI.
_BARE_MARKERS = [bytes([marker]) for marker in (0x01, *range(0xD0, 0xDA))]
