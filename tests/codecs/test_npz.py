from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest

from app.codecs.errors import BodyTooLarge
from app.codecs.npz import FORMAT
from app.core.errors import InvalidRequest
from tests.support.bodies import npy, npz
from tests.support.protocol_fakes import signature_of, specs

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SIGNATURE = signature_of(specs(x=("float32", (None, 3))), {})


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return file.getvalue()


def read(body: bytes, limit: int = 1 << 20) -> Any:
    return FORMAT.read(body, limit).inputs(SIGNATURE)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_deflated(compression: int) -> None:
    np.testing.assert_array_equal(read(archive({"x.npy": npy(X)}, compression))["x"], X)


def test_what_numpy_saves() -> None:
    np.testing.assert_array_equal(read(npz({"x": X.astype(">f4")}))["x"], X)
    file = io.BytesIO()
    np.savez_compressed(file, x=X)
    np.testing.assert_array_equal(read(file.getvalue())["x"], X)
    assert FORMAT.read(archive({}), 1 << 20).inputs(signature_of({}, {})) == {}


def test_names_with_points_and_paths_are_names() -> None:
    signature = signature_of({name: specs(x=("float32", (None, 3)))["x"] for name in ("../../x", "a.npy")}, {})
    arrays = FORMAT.read(archive({"../../x.npy": npy(X), "a.npy.npy": npy(X)}), 1 << 20).inputs(signature)
    assert arrays.keys() == {"../../x", "a.npy"}


def patched(body: bytes, offset: int, content: bytes) -> bytes:
    """Changed from the end: the last 22 bytes end the archive."""
    place = len(body) + offset
    return body[:place] + content + body[place + len(content) :]


def two_of_one_name() -> bytes:
    return archive({"x.npy": npy(X), "y.npy": npy(X)}).replace(b"y.npy", b"x.npy")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not an .npz archive"),
        (b"PK", "not an .npz archive"),
        (npy(X), "not an .npz archive"),
        (npz({"x": X})[:-1], "not an .npz archive"),
        (npz({"x": X}) + b"x", "not an .npz archive"),
        (npz({"x": X})[:-22] + b"PK\x06\x07" + bytes(16) + npz({"x": X})[-22:], "zip64"),
        (patched(npz({"x": X}), -10, struct.pack("<I", 1 << 30)), "directory is larger than a third of it"),
        (patched(npz({"x": X}), -6, struct.pack("<I", 1 << 30)), "not a valid .npz archive"),
        (archive({"x": npy(X)}), "Member 'x': expected a name that ends in .npy"),
        (archive({"x.npy": b"content"}), "Array 'x.npy' is not an .npy file"),
        (archive({"x.npy": npy(X)}, zipfile.ZIP_BZIP2), "Member 'x.npy': expected compression 'stored' or 'deflated'"),
        (archive({"x.npy": npy(X)}, zipfile.ZIP_LZMA), "Member 'x.npy': expected compression 'stored' or 'deflated'"),
        (two_of_one_name(), "two members of the same name"),
        (npz({"x": X.astype(np.float64)}), "Input 'x' has dtype float64, which float32 cannot hold"),
        (npz({"x": np.array([{}])}), "Array 'x.npy' has dtype '|O'"),
        (npz({"x": X}).replace(X.tobytes(), bytes(X.nbytes)), "Bad CRC-32"),
    ],
)
def test_malformed_archives_are_rejected(body: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert text in str(caught.value)


def test_encrypted_members_are_rejected() -> None:
    body = archive({"x.npy": npy(X)})
    flags = body.index(b"PK\x01\x02") + 8
    with pytest.raises(InvalidRequest, match="encrypted"):
        read(body[:flags] + b"\x01\x00" + body[flags + 2 :])


def test_a_bomb_is_not_inflated() -> None:
    body = archive({"x.npy": bytes(10_000_000)})
    with pytest.raises(BodyTooLarge, match="holds more than 1000000 bytes: max_body_bytes, or 200 times its size"):
        read(body, 1_000_000)


def test_a_bomb_that_lies_about_its_size_is_not_inflated() -> None:
    bomb = bytes(50_000_000)
    size = struct.pack("<I", len(bomb))
    body = archive({"x.npy": bomb}).replace(size, struct.pack("<I", 1000))
    body = body.replace(struct.pack("<I", zlib.crc32(bomb)), struct.pack("<I", zlib.crc32(bytes(1000))))
    del bomb
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            read(body, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_directory_is_no_larger_than_that_of_honest_arrays() -> None:
    names = [f"{number}" for number in range(2000)]
    honest = npz({name: np.float32([1]) for name in names})
    FORMAT.read(honest, 1 << 20).inputs(signature_of(specs(**dict.fromkeys(names, ("float32", (None,)))), {}))
    body = archive({f"{name}.npy": b"" for name in names}, zipfile.ZIP_STORED)
    with pytest.raises(InvalidRequest, match="directory is larger"):
        read(body)


def test_names_are_checked_before_members_are_inflated() -> None:
    with pytest.raises(InvalidRequest, match="Inputs do not match signature 'x': missing 'x'; unknown 'y'"):
        read(archive({"y.npy": b"not an array"}))


def test_members_grow_by_a_ratio_after_their_first_mib() -> None:
    zeros = archive({"x.npy": npy(np.zeros((1 << 20, 3), np.float32))})
    with pytest.raises(BodyTooLarge, match="200 times its size"):
        read(zeros, 1 << 26)
    read(archive({"x.npy": npy(np.zeros((1 << 16, 3), np.float32))}), 1 << 26)
