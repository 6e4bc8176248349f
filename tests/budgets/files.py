"""Bodies that are files: numpy's, images, and what is compressed."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from app.core.errors import ServingError
from app.transports.http.compression import Inflater
from tests.budgets.readers import FLOATS, PIXELS, STRINGS, TWO, predicts, rest
from tests.budgets.search import Form
from tests.budgets.wire import npy_file, npy_header, npz_file, png_chunk, png_file, repeated, text
from tests.support.protocol_fakes import specs

_HEADERS = (
    *(
        b"(",
        b"[1,",
        b"1,",
        b"'",
        b'"""',
        b"1L ",
        b"\\\n",
        b"-",
        b"{",
        b" ",
        b"1.",
        b"\n ",
        b"#",
        b"'a': ",
        b"1, ",
        b"(1,), ",
    ),
    *(
        b"'descr': '<f4', ",
        b"'shape': (1,), ",
        b"'fortran_order': False, ",
        b"\0",
        b"\xff",
        b"f'",
        b"_",
        b"9",
        b"lambda:",
    ),
)


def npy() -> Form:
    def header(before: bytes, after: bytes) -> Any:
        return lambda unit, tail, size: npy_file(before + b"".join(repeated(unit, tail, size)) + after)

    def short_header(before: bytes, after: bytes) -> Any:
        return lambda unit, tail, _: npy_file(before + b"".join(repeated(unit, tail, 2000 - len(before))) + after) * 100

    def data(dtype: bytes, unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        content = b"".join(repeated(unit, tail, size)).translate(bytes([0, 1] * 128))
        content += bytes(-len(content) % 8)
        shape = b"(%d,)" % (len(content) // np.dtype(dtype.decode()).itemsize)
        return npy_file(npy_header(shape, dtype), content)

    frames = (
        *(header(b"", b""), header(npy_header(b"(")[:-4], b")}\n"), short_header(b"", b"")),
        *(short_header(b"{'shape': (", b")}"), partial(data, b"|b1"), partial(data, b"<f4"), partial(data, b">f4")),
        *(partial(data, b"|S1"), partial(data, b"<U1"), partial(data, b"|S8")),
    )
    return Form(frames, _HEADERS, predicts("application/x-npy", FLOATS, STRINGS, specs(x=("bool", (None,)))))


def npz() -> Form:
    good = npy_file(npy_header(b"(1, 1)"), bytes(4))
    contents = [good, b"", npy_file(b"(" * 2000), npy_file(b"-" * 2000), npy_file(npy_header(b"(0, 9)")), bytes(10**6)]
    words = tuple(b"%d" % number for number in range(len(contents)))

    def frame(name: bytes, shared: bool, unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        sizes = [len(zlib.compress(content)) + 100 for content in contents]
        each = 60 if shared else sum(sizes[int(word)] for word in unit) // len(unit)
        chosen = [contents[int(word)] for word in unit * (1 + size // each // len(unit))]
        members = [(name % number + b".npy" if b"%" in name else name, each) for number, each in enumerate(chosen)]
        return npz_file(members, shared)

    frames = tuple(partial(frame, name, shared) for name in (b"%x", b"x.npy") for shared in (False, True))
    return Form(frames, words, predicts("application/x-npz", FLOATS, TWO))


def png() -> Form:
    words = (
        *(png_chunk(b"tEXt", b""), png_chunk(b"tEXt", b"a\0b"), png_chunk(b"aaAa", b""), png_chunk(b"IDAT", b"")),
        *(png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**6), 9)), png_chunk(b"pHYs", bytes(9))),
        *(png_chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(250_000), 9)), png_chunk(b"fcTL", bytes(26))),
        *(png_chunk(b"acTL", bytes(8)), png_chunk(b"PLTE", bytes(3)), png_chunk(b"tRNS", b"\0"), b"\0", b"IDAT"),
        *(png_chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(10**6), 9)), png_chunk(b"eXIf", bytes(8))),
    )

    def many_pixels(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        side = int((size * 300) ** 0.5)
        return png_file(b"".join((*unit, *tail)), side, side)

    frames = (
        lambda unit, tail, size: png_file(b"".join(repeated(unit, tail, size))),
        lambda unit, tail, size: png_file(b"".join(repeated(unit, tail, size)), pixels=b""),
        many_pixels,
    )
    return Form(frames, words, [rest(PIXELS, "image/png")])


def jpeg() -> Form:
    file = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(file, "JPEG", progressive=True)
    good = file.getvalue()
    start = good.index(b"\xff\xc2")
    scans = good[good.index(b"\xff\xda") : -2]
    words = (
        *(
            b"\xff\xe1\0\2",
            b"\xff\xfe\0\2",
            b"\xff",
            b"\0",
            b"\xff\xff",
            b"a",
            b"\xff\xe0\0\2",
            b"\xff\xed\0\2",
            b"\xff\xd0",
        ),
        *(
            b"\xff\xe2\0\6MPF\0",
            b"\xff\xe1\0\x08Exif\0\0",
            b"\xff\xdb\0\2",
            b"\xff\xc4\0\2",
            b"\xff\x01",
            b"\xff\xee\0\2",
        ),
        b"\xff\xed\0\x16Photoshop 3.0\0" + b"8BIM\0\0",
        scans,
    )

    def before_pixels(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        return good[:2] + b"".join(repeated(unit, tail, size)) + good[2:]

    def many_scans(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        large = struct.pack(">HH", 1400, 1400)
        head = good[:start] + good[start : start + 5] + large + good[start + 9 : good.index(b"\xff\xda")]
        return head + b"".join(repeated((scans,), (*unit, *tail), size)) + b"\xff\xd9"

    return Form((before_pixels, many_scans), words, [rest(PIXELS, "image/jpeg")])


# --- compressed ---


def members() -> Form:
    """What a body is inflated to counts, too, as far as it may be inflated."""
    noise = np.random.default_rng(1).bytes(30_000)
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    words = (
        *(gzip.compress(b""), gzip.compress(b"a"), gzip.compress(bytes(10**5)), gzip.compress(noise), b"\0", b"\x1f"),
        *(
            zlib.compress(b""),
            zlib.compress(bytes(10**5), 9),
            raw.compress(b"a") + raw.flush(),
            gzip.compress(bytes(99)),
        ),
    )
    inflated: dict[bytes, int] = {}

    def way(encoding: str) -> Callable[[bytes], object]:
        def inflate(body: bytes) -> object:
            inflater, size = Inflater(encoding), 0
            try:
                for piece in inflater.pieces(body):
                    size += len(piece)
                inflater.finish()
            except ServingError:
                pass
            finally:
                inflated[body] = max(size, inflated.get(body, 0))
            return None

        return inflate

    joined = text(b"", b"", b"")
    return Form(
        (lambda unit, tail, size: joined(unit, tail, size // 8),),
        words,
        [way("gzip"), way("deflate")],
        lambda body: len(body) + min(inflated[body], 200 * len(body)),
    )
