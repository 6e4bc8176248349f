"""TensorProtos are TensorFlow's, both ways."""

from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework.tensor_pb2 import TensorProto as TensorFlowsProto

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensor, decode_tensors
from app.core.errors import InvalidRequest
from app.core.inference import STRING
from tests.support.savedmodels import DTYPES
from tests.support.tensor_protos import encode_tensor

TensorProto = message_class("tensorflow.TensorProto")
LIMIT = 1 << 20

#: By TensorFlow's name, what numpy calls it.
KINDS = {name: np.dtype(tf.as_dtype(name).as_numpy_dtype) for name in DTYPES}


def arrays(dtype):
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    if dtype == STRING:
        return shapes.flatmap(lambda shape: hnp.arrays(object, shape, elements=st.binary(max_size=200)))
    if dtype == ml_dtypes.bfloat16:
        return shapes.flatmap(lambda shape: hnp.arrays(np.uint16, shape)).map(lambda bits: bits.view(dtype))
    return shapes.flatmap(lambda shape: hnp.arrays(dtype, shape))


any_array = st.sampled_from(list(KINDS.values())).flatmap(arrays)


def bits(array):
    return array.tolist() if array.dtype == STRING else array.tobytes()


def assert_same(got, want):
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert bits(got) == bits(want)


def decode(proto, name="x", limit=LIMIT):
    return decode_tensor(name, TensorProto.FromString(proto.SerializeToString()), limit)


def encode(array, as_content):
    proto = TensorProto()
    encode_tensor(array, proto, as_content)
    return proto


@given(any_array, st.booleans())
def test_what_is_encoded_decodes_to_the_same_bits(array, as_content):
    assert_same(decode(encode(array, as_content)), array)


@given(any_array, st.booleans())
def test_tensorflow_reads_what_we_write(array, as_content):
    theirs = TensorFlowsProto.FromString(encode(array, as_content).SerializeToString())
    read = tf.make_ndarray(theirs)
    assert read.shape == array.shape
    assert bits(read.astype(array.dtype)) == bits(array)


@given(any_array)
def test_we_read_what_tensorflow_writes(array):
    assert_same(decode(tf.make_tensor_proto(array, shape=array.shape)), array)


@pytest.mark.parametrize("name", DTYPES)
def test_typed_fields_are_those_that_tensorflow_names(name):
    dtype = KINDS[name]
    array = np.array([b"a", b"b"], object) if dtype == STRING else np.array([1, 0]).astype(dtype)
    theirs = TensorFlowsProto.FromString(encode(array, as_content=False).SerializeToString())
    assert not theirs.tensor_content
    assert theirs.dtype == tf.as_dtype(name).as_datatype_enum
    assert tf.make_ndarray(theirs).tolist() == array.tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_the_last_value_is_repeated_and_none_means_zeros(name):
    dtype = KINDS[name]
    values = [b"a", b"b"] if dtype == STRING else [0, 1]
    full = np.empty(2, dtype)
    full[:] = values
    proto = encode(full, as_content=False)
    proto.tensor_shape.dim[0].size = 5
    assert decode(proto).tolist() == [full[0], *[full[1]] * 4]
    empty = TensorProto(dtype=proto.dtype, tensor_shape=proto.tensor_shape)
    assert decode(empty).tolist() == [b"" if dtype == STRING else dtype.type(0)] * 5


@pytest.mark.parametrize("name", DTYPES)
def test_one_value_stands_for_all_elements_and_keeps_its_type(name):
    dtype = KINDS[name]
    one = np.empty(1, dtype)
    one[0] = b"abc" if dtype == STRING else 1
    proto = encode(one, as_content=False)
    proto.tensor_shape.dim[0].size = 3
    proto.tensor_shape.dim.add(size=2)
    expected = np.empty((3, 2), dtype)
    expected[:] = one[0]
    assert_same(decode(proto), expected)


def test_content_is_not_copied():
    proto = encode(np.arange(6, dtype=np.float32).reshape(2, 3), as_content=True)
    assert not decode(proto).flags.owndata


def test_any_byte_but_zero_is_true():
    proto = TensorProto(dtype=tf.bool.as_datatype_enum, tensor_content=b"\x00\x01\x02\xff")
    proto.tensor_shape.dim.add(size=4)
    assert decode(proto).view(np.uint8).tolist() == [0, 1, 1, 1]


def test_arrays_that_are_not_contiguous_keep_their_order():
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T[::2]
    for as_content in (True, False):
        assert_same(decode(encode(array, as_content)), np.ascontiguousarray(array))


def string_content(strings, shape):
    def varint(number):
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)

    content = b"".join(varint(len(each)) for each in strings) + b"".join(strings)
    proto = TensorProto(dtype=tf.string.as_datatype_enum, tensor_content=content)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def test_strings_may_come_as_content():
    strings = [b"", b"a" * 300, b"\xff\x00"]
    assert decode(string_content(strings, [3, 1])).tolist() == [[each] for each in strings]


@pytest.mark.parametrize(
    "proto",
    [
        string_content([b"a", b"b"], [3]),
        string_content([b"a", b"b"], [1]),
        TensorProto(dtype=7, tensor_content=b"\xff"),
        TensorProto(dtype=7, tensor_content=b"\xff\xff\xff\xff\x7fabc"),
    ],
)
def test_content_that_is_not_the_strings_is_rejected(proto):
    with pytest.raises(InvalidRequest, match="Input 'x' has tensor_content that is not"):
        decode(proto)


def proto_of(dtype=1, shape=(), **fields):
    proto = TensorProto(dtype=dtype, **fields)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


UNKNOWN_RANK = proto_of(float_val=[1])
UNKNOWN_RANK.tensor_shape.unknown_rank = True


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (proto_of(0), "has dtype DT_INVALID, which no request can carry"),
        (proto_of(20), "has dtype DT_RESOURCE, which no request can carry"),
        (proto_of(4711), "has dtype 4711, which no request can carry"),
        (UNKNOWN_RANK, "has unknown rank"),
        (proto_of(shape=[2, -1]), r"has shape \[2, -1\]; expected no size below 0"),
        (proto_of(shape=[1] * 33), "has 33 dimensions; expected 32 at most"),
        (proto_of(shape=[2**40], float_val=[1]), "more than the 1048576 bytes"),
        (proto_of(shape=[2**62, 2**62, 2**62], float_val=[1]), "more than the 1048576 bytes"),
        (proto_of(shape=[0, 2**40]), "more than the 1048576 bytes"),
        (proto_of(7, shape=[2**30], string_val=[b"a"]), "more than the 1048576 bytes"),
        (proto_of(shape=[2], tensor_content=b"1234567"), "has 7 bytes of tensor_content; expected 8"),
        (proto_of(shape=[0], tensor_content=b"1234"), "has 4 bytes of tensor_content; expected 0"),
        (proto_of(shape=[2], float_val=[1, 2, 3]), "has 3 values in float_val; expected 2"),
        (proto_of(7, shape=[1], string_val=[b"a", b"b"]), "has 2 values in string_val; expected 1"),
        (
            proto_of(8, shape=[1], scomplex_val=[1, 2, 3]),
            "has 3 numbers in scomplex_val; expected pairs",
        ),
        (proto_of(6, shape=[1], int_val=[128]), "has values in int_val beyond int8; expected -128 to 127"),
        (proto_of(4, shape=[1], int_val=[-1]), "has values in int_val beyond uint8; expected 0 to 255"),
        (proto_of(19, shape=[1], half_val=[65536]), "has values in half_val beyond float16; expected 0 to 65535"),
    ],
)
def test_malformed_tensors_are_rejected_by_name(proto, text):
    with pytest.raises(InvalidRequest, match=f"^Input 'x' .*{text}"):
        decode(proto)


def test_a_value_that_stands_for_all_elements_takes_the_memory_of_one():
    for proto in (proto_of(shape=[512, 512]), proto_of(shape=[512, 512], float_val=[1.5])):
        array = decode(proto)
        assert (array.strides, array.sum()) == ((0, 0), 512 * 512 * sum(proto.float_val))


def test_the_last_of_several_values_is_repeated_as_far_as_the_values_are_worth():
    assert decode(proto_of(shape=[16384], float_val=[1, 2]))[[0, 1, -1]].tolist() == [1, 2, 2]
    with pytest.raises(InvalidRequest, match="has 2 values in float_val; expected all 20000"):
        decode(proto_of(shape=[20000], float_val=[1, 2]))


def test_inputs_are_added_up_before_any_is_made():
    each = proto_of(shape=[LIMIT // 4 // 2 - 1], float_val=[1])
    assert len(decode_tensors({"a": each, "b": each}, LIMIT)) == 2
    with pytest.raises(InvalidRequest, match=r"^Input 'c' has shape .*: the inputs take more than the 1048576 bytes"):
        decode_tensors({"a": each, "b": each, "c": proto_of(shape=[3], float_val=[1])}, LIMIT)


@given(st.lists(st.integers(0, 70000).map(bytes), max_size=5))
def test_strings_in_tensor_content_are_read(values):
    lengths = b"".join(_VarintBytes(len(value)) for value in values)
    assert decode(proto_of(7, [len(values)], tensor_content=lengths + b"".join(values))).tolist() == values


@pytest.mark.parametrize(
    "content", [b"\x80" * 70000, b"\x80" * 5 + b"\0", b"\xff" * 4 + b"\x7f", b"\1", b"\0a", b"\0\0"]
)
def test_lengths_that_do_not_fit_are_rejected_in_linear_time(content):
    with pytest.raises(InvalidRequest, match="has tensor_content that is not 1 strings"):
        decode(proto_of(7, [1], tensor_content=content))


@given(st.binary(max_size=60))
def test_any_message_is_decoded_or_rejected(content):
    try:
        proto = TensorProto.FromString(content)
    except DecodeError:
        return
    with suppress(InvalidRequest):
        assert decode_tensor("x", proto, LIMIT).nbytes <= LIMIT


def test_a_type_that_a_tensor_proto_cannot_carry_is_rejected():
    with pytest.raises(InvalidRequest, match="Type datetime64"):
        encode_tensor(np.zeros(1, "datetime64[s]"), TensorProto(), as_content=True)
