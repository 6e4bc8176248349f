from __future__ import annotations

import struct
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.core.errors import InvalidRequest
from app.core.inference import TensorSpec
from app.protocols.open_inference.binary_tensors import decode, encode
from app.protocols.open_inference.datatypes import checked_shape

NUMBERS = [np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += [np.dtype(name) for name in ("float16", "float32", "float64", "bool")]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DIMENSIONS = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)


def spec(dtype):
    return TensorSpec("x", np.dtype(dtype), None)


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays(dtype, SHAPES)))
def test_numbers_come_back_bit_for_bit(array):
    got = decode(bytes(encode(array)), spec(array.dtype), array.shape)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tobytes() == array.tobytes()


@given(arrays(np.uint16, SHAPES))
def test_bfloat16_comes_back_bit_for_bit(bits):
    got = decode(bytes(encode(bits.view(BFLOAT16))), spec(BFLOAT16), bits.shape)
    assert got.dtype == BFLOAT16
    assert got.tobytes() == bits.tobytes()


@given(arrays(object, SHAPES, elements=st.binary(max_size=20)))
def test_strings_come_back(array):
    got = decode(encode(array), spec(object), array.shape)
    assert got.shape == array.shape
    assert got.tolist() == array.tolist()


@given(st.sampled_from([*NUMBERS, BFLOAT16, np.dtype(object)]), st.binary(max_size=64), DIMENSIONS)
def test_any_bytes_are_a_tensor_or_rejected(dtype, raw, shape):
    with suppress(InvalidRequest):
        array = decode(memoryview(raw), spec(dtype), checked_shape(spec(dtype), shape))
        assert bytes(encode(array)) == raw


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=4), st.data())
def test_strings_cut_short_are_rejected(values, data):
    raw = encode(np.array(values, object))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(InvalidRequest):
        decode(raw[:cut], spec(object), (len(values),))


def test_numbers_are_not_copied():
    raw = bytearray(np.arange(4, dtype=np.float32).tobytes())
    array = decode(memoryview(raw), spec("float32"), (2, 2))
    raw[0:4] = struct.pack("<f", 9.0)
    assert array[0, 0] == 9.0
    whole = np.arange(6, dtype=np.int32)
    assert np.shares_memory(np.frombuffer(encode(whole), np.int32), whole)


def test_bytes_are_little_endian_and_strings_have_their_length_before_them():
    assert bytes(encode(np.array([1, 2], np.int16))) == b"\x01\x00\x02\x00"
    assert encode(np.array([b"ab", b""], object)) == b"\x02\x00\x00\x00ab\x00\x00\x00\x00"
    assert bytes(encode(np.arange(6, dtype=np.int8).reshape(2, 3).T)) == bytes([0, 3, 1, 4, 2, 5])


@pytest.mark.parametrize(
    ("dtype", "raw", "shape", "text"),
    [
        ("float32", b"1234567", (2,), "Input 'x' has 7 bytes of data; FP32 of shape [2] takes 8"),
        ("int8", b"", (2**40, 2**20), "takes 1152921504606846976"),
        ("bool", b"\x00\x02", (2,), "Input 'x' is BOOL, but has a byte 2; expected 0 or 1"),
        ("object", b"\x01\x00\x00\x00a", (2,), "has shape [2], 2 elements of BYTES, but too few bytes"),
        ("object", b"\x00\x00\x00\x00" * 2, (1,), "1 elements of BYTES, but 2 elements"),
        ("object", b"\x00\x00\x00\x00\x02\x00\x00\x00a", (2,), "ends inside element 1"),
        ("object", b"\x00\x00\x00\x00\x02", (1,), "ends inside element 1"),
        ("object", b"\xff\xff\xff\xff", (1,), "ends inside element 0"),
        ("object", b"", (2**60,), "too few bytes"),
        ("object", b"abc", (0,), "ends inside element 0"),
    ],
)
def test_what_does_not_fit_is_named(dtype, raw, shape, text):
    with pytest.raises(InvalidRequest) as error:
        decode(raw, spec(dtype), shape)
    assert text in str(error.value)
