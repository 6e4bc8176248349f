from __future__ import annotations

import io
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.at_once import MOST_STRINGS, TakesLong
from app.codecs.npy import made_bytes, read, read_npy, write_npy
from app.core.errors import InvalidRequest
from tests.support.bodies import npy

SCALARS = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?"),
    npst.complex_number_dtypes(endianness="?"),
    npst.byte_string_dtypes(max_len=5),
    npst.unicode_string_dtypes(max_len=5),
)


def with_header(header: str, content: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode("latin-1") + content


def plain(dtype: str = "<f4", shape: str = "(2,)", columns: str = "False") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': {columns}, 'shape': {shape}, }}\n"


@given(npst.arrays(SCALARS, npst.array_shapes(min_dims=0, min_side=0, max_side=4)), st.booleans())
def test_what_numpy_saves_is_read(array: Any, columns: bool) -> None:
    array = np.asfortranarray(array) if columns and array.ndim else array
    back = read_npy(npy(array), "x")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.c_contiguous


@given(npst.arrays(npst.scalar_dtypes().filter(lambda d: d.kind not in "mM"), npst.array_shapes(min_dims=0)))
def test_numpy_reads_what_is_written(array: Any) -> None:
    back = np.load(io.BytesIO(write_npy(array)), allow_pickle=False)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_types_that_numpy_lacks_are_bytes(dtype: Any) -> None:
    array = np.array([1, 2], dtype)
    back = read_npy(write_npy(array), "x")
    assert back.dtype == np.dtype(f"V{array.itemsize}")
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_read(version: int) -> None:
    content = with_header(plain(), np.ones(2, np.float32).tobytes(), version)
    assert read_npy(content, "x").tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "header",
    [
        "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ( 2, ) , }      \n",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1,2)}",
        "{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}",
        "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}" + " " * 1800,
    ],
)
def test_headers_of_other_writers_are_read(header: str) -> None:
    assert read_npy(with_header(header, np.ones(2, np.float32).tobytes()), "x").size == 2


def test_a_scalar_is_read() -> None:
    assert read_npy(npy(np.float64(0.5)), "x").tolist() == 0.5


TWO = bytes(8)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "x is not an .npy file"),
        (b"\x93NUMPY", "x is not an .npy file"),
        (b"\x93NUMPY\x01\x00", "x is not an .npy file"),
        (b"\x93NUMPY\x04\x00\x00\x00", "x is not an .npy file"),
        (b"\x93NUMPX\x01\x00\x00\x00", "x is not an .npy file"),
        (b"\x93NUMPY\x01\x00\xff", "x is not an .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xff", "x is not an .npy file"),
        (with_header("__import__('os')"), "x is not an .npy file"),
        (with_header("{" * 9000), "x is not an .npy file"),
        *[(with_header(text), "x is not an .npy file") for text in ("-" * 2000 + "1", "[" * 2000, "1+" * 999 + "1")],
        (with_header(plain() + " " * 2048, TWO), "x is not an .npy file"),
        (with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", TWO), "x is not an .npy file"),
        (with_header(plain("|O"), TWO), "x has dtype '|O'; expected a type of numbers"),
        (npy(np.array([{}])), "x has dtype '|O'"),
        (npy(np.zeros(2, "M8[s]")), "x has dtype '<M8[s]'"),
        (with_header(plain("<f3"), TWO), "x is not an .npy file"),
        (with_header(plain("<U999999999"), TWO), "x is not an .npy file"),
        (with_header("{'descr': '(2,)u1', 'fortran_order': False, 'shape': (2,)}", TWO[:4]), "x has dtype '|V2'"),
        (with_header(plain("<f4,<f4"), TWO + TWO), "x has dtype '|V8'"),
        (with_header(plain("|S0"), b""), "x has 0 bytes of data"),
        (with_header(plain("|S0", "(999999999,)"), b""), "x has 0 bytes of data"),
        (with_header(plain(), TWO[:7]), r"x has 7 bytes of data; float32 of shape [2] takes 8"),
        (with_header(plain(), TWO + b"x"), r"x has 9 bytes of data; float32 of shape [2] takes 8"),
        (with_header(plain(shape="(999999999999,)"), TWO), "takes 3999999999996"),
        (with_header(plain(shape="(0, 999999999999,)")), "takes 0"),
        (with_header(plain(shape="(0, 99999999999999999999,)")), "x is not an .npy file"),
        (with_header(plain(shape="(1 2)"), TWO), "x is not an .npy file"),
        (with_header(plain(shape="(" + "1," * 40 + ")"), TWO[:4]), "x has 32 dimensions; expected 31 at most"),
        (with_header(plain(shape="(-2,)"), TWO), "x is not an .npy file"),
        (with_header(plain(shape="(True, 2)"), TWO), "x is not an .npy file"),
        (with_header(plain(shape="(2)"), TWO), "x is not an .npy file"),
        (with_header(plain(shape="(,)"), TWO), "x is not an .npy file"),
        (with_header(plain().replace("}", ", 'shape': 2}"), TWO), "x is not an .npy file"),
        (with_header(plain().replace("'shape'", "'fortran_order'"), TWO), "x is not an .npy file"),
        (with_header(plain("|b1"), b"\x00\x02"), "x is of type bool but has a byte that is neither 0 nor 1"),
    ],
)
def test_what_is_not_a_plain_array_is_rejected(content: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_npy(content, "x")
    assert text in str(caught.value)


@given(st.binary(max_size=40), st.sampled_from([1, 2, 3]))
def test_any_bytes_are_an_array_or_rejected(content: bytes, version: int) -> None:
    for body in (content, b"\x93NUMPY" + bytes([version, 0]) + content, with_header(plain(), content, version)):
        try:
            read_npy(body, "x")
        except InvalidRequest:
            continue


@pytest.mark.parametrize(("dtype", "each"), [("S1", 64), ("U1", 64), ("S2", 112), ("U3", 176), ("u1", 0), ("f4", 0)])
def test_strings_are_counted_before_they_are_made(dtype: str, each: int) -> None:
    assert made_bytes(npy(np.zeros((10, 3), dtype))) == 30 * each


def test_no_more_strings_are_counted_than_the_body_has_room_for() -> None:
    assert made_bytes(with_header(plain("|S2", "(99999999,)"), b"ab" * 100)) < 200 * 112
    assert made_bytes(with_header(plain("|S0", "(99999999,)"))) == made_bytes(b"") == 0


def test_many_strings_are_not_converted_on_the_event_loop() -> None:
    read(npy(np.zeros(MOST_STRINGS, "S1")), 10**6, at_once=True)
    with pytest.raises(TakesLong):
        read(npy(np.zeros(MOST_STRINGS + 1, "S1")), 10**6, at_once=True)
