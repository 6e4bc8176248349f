"""Bodies by hand, wrong ones, too: what is repeated in them stays as it is."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]  # it has no public name

Frame = Callable[[tuple[bytes, ...], tuple[bytes, ...], int], bytes]


def repeated(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> list[bytes]:
    """The words, repeated up to `size` bytes, and those at the end."""
    return [*unit * (1 + size // max(1, sum(len(word) + 1 for word in unit))), *tail]


def text(before: bytes, after: bytes, between: bytes = b",") -> Frame:
    """The words between two texts."""
    return lambda unit, tail, size: before + between.join(repeated(unit, tail, size)) + after


def counted(before: bytes, after: bytes = b"") -> Frame:
    """A MessagePack array of the words."""

    def frame(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        words = repeated(unit, tail, size)
        return before + b"\xdd" + struct.pack(">I", len(words)) + b"".join(words) + after

    return frame


def distinct(before: bytes, after: bytes, form: Callable[[int, bytes], bytes], between: bytes = b"") -> Frame:
    """`form` makes a name of each word's number, so that none comes twice."""

    def frame(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        words = repeated(unit, tail, size * 2 // 3)
        return before + between.join(form(number, word) for number, word in enumerate(words)) + after

    return frame


# --- protocol buffers ---


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    content: bytes = _VarintBytes(value)
    return content


def within(before: bytes, *numbers: int) -> Frame:
    """`before` and the words as the content of a field within a field ..., the innermost number first."""

    def frame(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        content = before + b"".join(repeated(unit, tail, size))
        for number in numbers:
            content = field(number, content)
        return content

    return frame


# --- files ---


def npy_file(header: bytes, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + content


def npy_header(shape: bytes, dtype: bytes = b"<f4") -> bytes:
    return b"{'descr': '%b', 'fortran_order': False, 'shape': %b, }\n" % (dtype, shape)


def npz_file(members: list[tuple[bytes, bytes]], shared: bool = False) -> bytes:
    """An archive of deflated members; if `shared`, all entries of the directory are for the same bytes."""
    out, directory = bytearray(), bytearray()
    place = 0
    for number, (name, content) in enumerate(members):
        packed = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = packed.compress(content) + packed.flush()
        crc = zlib.crc32(content)
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(data), len(content), len(name), 0)
        if not (shared and number):
            place = len(out)
            out += b"PK\3\4" + fields + name + data
        directory += b"PK\1\2" + struct.pack("<H", 20) + fields
        directory += struct.pack("<HHHII", 0, 0, 0, 0, place) + name
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(members), len(members), len(directory), len(out), 0)
    return bytes(out + directory + end)


def png_file(chunks: bytes, width: int = 8, height: int = 8, pixels: bytes | None = None) -> bytes:
    rows = bytes((1 + 3 * width) * height) if pixels is None else pixels
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(rows, 9)) if pixels != b"" else b""
    return b"\x89PNG\r\n\x1a\n" + head + chunks + body + png_chunk(b"IEND", b"")


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
