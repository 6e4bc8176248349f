import os
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.core.inference import STRING, Array, dtype_name
from app.frontends.channel.messages import new_unpacker
from app.frontends.channel.shared_memory import SharedMemoryReader, SharedMemoryWriter, create_memory
from app.frontends.channel.tensor_messages import SHARED_FROM_BYTES, decode, dtype_of, encode

FLOAT8 = [np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e5m2")]
DTYPES = [dtype for dtype in ENCODING_BY_DTYPE if dtype != STRING] + FLOAT8


def both_ends(size: int) -> tuple[SharedMemoryWriter, SharedMemoryReader]:
    file = create_memory(size)
    made = SharedMemoryWriter(file), SharedMemoryReader(file)
    os.close(file)
    return made


def cross(array: Array, agreed: np.dtype[Any], size: int = 4 * SHARED_FROM_BYTES) -> tuple[Array, Any]:
    """What arrives, and what the content was on the way."""
    writing, reading = both_ends(size)
    unpacker = new_unpacker()
    unpacker.feed(msgpack.packb(encode(array, agreed, writing)))
    tensor = unpacker.unpack()
    return decode(tensor, agreed, reading), tensor[1]


@pytest.mark.parametrize("dtype", [*DTYPES, STRING], ids=dtype_name)
def test_every_dtype_has_a_name_that_finds_it(dtype: np.dtype[Any]) -> None:
    assert dtype_of(dtype_name(dtype)) == dtype


@given(st.data(), st.sampled_from(DTYPES))
def test_every_dtype_crosses_to_the_bit(data: st.DataObject, dtype: np.dtype[Any]) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    count = int(np.prod(shape)) * dtype.itemsize
    bits = data.draw(st.binary(min_size=count, max_size=count))
    array = np.frombuffer(bits, dtype).reshape(shape) if count else np.zeros(shape, dtype)
    seen, _ = cross(array, dtype)
    assert (seen.dtype, seen.shape, seen.tobytes()) == (dtype, shape, array.tobytes())


@given(arrays.arrays(object, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=st.binary()))
def test_strings_cross(array: Array) -> None:
    seen, _ = cross(array, STRING)
    assert (seen.dtype, seen.shape, seen.tolist()) == (STRING, array.shape, array.tolist())


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_large_tensors_cross_by_shared_memory(dtype: np.dtype[Any]) -> None:
    array = np.arange(2 * SHARED_FROM_BYTES, dtype=np.uint8).view(dtype).reshape(2, -1).T
    seen, content = cross(array, dtype)
    assert content == 0
    assert (seen.shape, seen.tobytes()) == (array.shape, array.tobytes())


def test_large_tensors_cross_by_the_socket_if_the_shared_memory_is_full() -> None:
    array = np.ones(SHARED_FROM_BYTES, np.int8)
    seen, content = cross(array, array.dtype, size=4096)
    assert type(content) is bytes
    np.testing.assert_array_equal(seen, array)


def test_a_dtype_that_was_not_agreed_on_is_told() -> None:
    seen, _ = cross(np.array([1.5]), np.dtype(np.float32))
    assert (seen.dtype, seen.tolist()) == (np.float64, [1.5])
