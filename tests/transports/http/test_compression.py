from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.errors import BodyTooLarge
from app.core.errors import InvalidRequest
from app.transports.http.compression import PIECE_BYTES, Inflater, UnsupportedEncoding, choose_encoding, compress

# --- requests ---


def raw(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:3]) + gzip.compress(data[3:])


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    " GZIP ": gzip.compress,
    "x-gzip": two_members,
    "deflate": zlib.compress,
}


def in_pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    ends = sorted(cut % (len(data) + 1) for cut in cuts)
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        yield data[start:end]


def inflated(encoding: str, pieces: Iterator[bytes]) -> bytes:
    inflater = Inflater(encoding)
    whole = b"".join(inflated for piece in pieces for inflated in inflater.pieces(piece))
    inflater.finish()
    return whole


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=6), st.sampled_from([*FORMS, "raw"]))
def test_however_it_is_cut_it_is_the_same_body(data: bytes, cuts: list[int], form: str) -> None:
    encoding, compress = ("deflate", raw) if form == "raw" else (form, FORMS[form])
    assert inflated(encoding, in_pieces(compress(data), cuts)) == data


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_no_piece_is_large(encoding: str) -> None:
    data = bytes(10 * PIECE_BYTES + 1)
    assert len(data) < MIB
    pieces = [*Inflater(encoding).pieces(gzip.compress(data) if encoding else data)]
    assert max(map(len, pieces)) == PIECE_BYTES
    assert b"".join(pieces) == data


def test_a_body_is_inflated_only_as_far_as_it_is_read() -> None:
    pieces = Inflater("gzip").pieces(gzip.compress(bytes(1000 * PIECE_BYTES)))
    assert len(next(pieces)) == PIECE_BYTES
    assert len(next(pieces)) == PIECE_BYTES


@pytest.mark.parametrize(
    "data", [b"\x1f", gzip.compress(b"abc", mtime=0)[:-1], gzip.compress(b"abc", mtime=0) + b"\x1f"]
)
def test_a_body_that_is_cut_off_is_rejected_at_its_end(data: bytes) -> None:
    inflater = Inflater("gzip")
    assert b"".join(inflater.pieces(data)) in (b"", b"abc")
    with pytest.raises(InvalidRequest, match="The body is not valid gzip though Content-Encoding says so"):
        inflater.finish()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_not_compressed_is_rejected(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match=f"not valid {encoding} though"):
        [*Inflater(encoding).pieces(b"[1.0, 2.0]\n")]


def test_an_encoding_that_is_not_known_is_rejected() -> None:
    with pytest.raises(UnsupportedEncoding, match="'br' is not supported; send gzip, deflate or identity"):
        Inflater("br")


MIB = 1024 * 1024


def zeros(size: int) -> bytes:
    return gzip.compress(bytes(size), mtime=0)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_after_the_first_mib_a_body_grows_to_200_times_its_size_at_most(encoding: str) -> None:
    sizes: list[int] = []
    with pytest.raises(BodyTooLarge, match="more than 200 times its size"):
        sizes.extend(map(len, Inflater(encoding).pieces(zeros(64 * MIB))))
    assert MIB + 200 * len(zeros(64 * MIB)) - PIECE_BYTES < sum(sizes) <= MIB + 200 * len(zeros(64 * MIB))


def test_one_mib_of_zeros_is_no_bomb_however_short_it_is() -> None:
    assert inflated("gzip", iter([zeros(MIB)])) == bytes(MIB)


def test_a_body_in_pieces_grows_by_what_has_arrived() -> None:
    """Not by what a stream may still send."""
    inflater = Inflater("gzip")
    with pytest.raises(BodyTooLarge):
        list(inflater.pieces(zeros(8 * MIB)))


@given(st.lists(st.sampled_from([b"", b"a", bytes(100_000), bytes(65536)]), max_size=6))
def test_members_end_where_they_end_whatever_they_inflate_to(contents: list[bytes]) -> None:
    assert inflated("gzip", iter([b"".join(map(gzip.compress, contents))])) == b"".join(contents)


@pytest.mark.parametrize(("encoding", "form"), [("deflate", raw), ("deflate", zlib.compress), ("gzip", zlib.compress)])
def test_only_gzip_has_several_members(encoding: str, form: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InvalidRequest, match=f"not valid {encoding}"):
        list(Inflater(encoding).pieces(form(b"a") * 2))


class CountedMember:
    """A gzip member that counts the bytes which zlib is given, and so may copy."""

    given = 0

    def __init__(self, wbits: int) -> None:
        self._member = decompressobj(wbits)

    def decompress(self, data: bytes, size: int) -> bytes:
        CountedMember.given += len(data)
        return self._member.decompress(data, size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._member, name)


decompressobj = zlib.decompressobj


@pytest.mark.parametrize("body", [gzip.compress(b"") * 5000, gzip.compress(np.random.default_rng(1).bytes(2 * MIB))])
def test_zlib_is_given_little_at_a_time(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies what is left at the end of each member and after each piece: 2 MB of empty members took 15 s."""
    monkeypatch.setattr(zlib, "decompressobj", CountedMember)
    CountedMember.given = 0
    inflated("gzip", iter([body]))
    assert CountedMember.given / len(body) < 8 * 1024 / 20 + 2


# --- replies ---


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
