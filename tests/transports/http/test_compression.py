from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from app.transports.http.compression import choose_encoding, compress


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        (None, None),
        (b"", None),
        (b"identity", None),
        (b"br, zstd", None),
        (b"gzip", "gzip"),
        (b"GZIP", "gzip"),
        (b"deflate", "deflate"),
        (b"deflate, gzip", "gzip"),
        (b"gzip;q=0.2, deflate;q=0.5", "deflate"),
        (b"gzip;q=0, deflate", "deflate"),
        (b"gzip;q=0", None),
        (b"gzip;q=x", None),
        (b"gzip ; q=1", "gzip"),
        (b"\xff\xfe;;;=,", None),
    ],
)
def test_choice(accept, encoding):
    assert choose_encoding(accept) == encoding


@pytest.mark.parametrize(("encoding", "inflate"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
@pytest.mark.parametrize("size", [0, 2000, 100_000])
def test_bodies_come_back(encoding, inflate, size):
    assert inflate(asyncio.run(compress(b"a" * size, encoding))) == b"a" * size
