"""tensorflow.TensorProto to arrays and back.

A TensorProto has its values either in `tensor_content`, as in memory, or in a field for its type. `tensor_content`
becomes a read-only array over the message's bytes, without a copy. Typed fields are read and written as whole arrays if
a packed list looks on the wire as it does in memory.

A shape takes memory only as far as its values are present: one value that stands for all elements is not repeated in
memory, and several may be followed by a limited number of repetitions. The memory for the shapes of a request is added
up before any array is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from app.codecs.at_once import TakesLong
from app.codecs.protobuf.messages import enum_numbers, message_class
from app.codecs.protobuf.wire import Parts, field_start
from app.codecs.tensorflow_types import enum_name
from app.core.errors import InvalidRequest
from app.core.inference import QUANTIZED, STRING, Array, string_array

TensorProto = message_class("tensorflow.TensorProto")

#: The most dimensions that numpy 1 allows.
_MAX_RANK = 32

#: The last of several values is repeated up to this many bytes, and up to this many times the bytes of all. Chosen.
_FREE_BYTES, _REPETITIONS = 64 * 1024, 32

#: A length of this many bytes is beyond any message.
_VARINT_BYTES = 5

_FIELDS = {field.name: field.number for field in TensorProto.DESCRIPTOR.fields}
_CONTENT = _FIELDS["tensor_content"]

_NUMBERS = enum_numbers("tensorflow.DataType")
_NAMES = {number: name for name, number in _NUMBERS.items()}


class TensorEncoding(NamedTuple):
    """The encoding of one tensor type in a TensorProto.

    Attributes:
        number: in the DataType enum.
        field: the typed field that has the values.
        cell: the type of a value in that field; not `dtype` if values are bits (half) or parts (complex) of elements.
        packed: whether a list in this field looks on the wire as it does in memory.
    """

    number: int
    dtype: np.dtype[Any]
    field: str
    cell: np.dtype[Any]
    packed: bool


def _encodings() -> Iterator[TensorEncoding]:
    def encoding(type_: Any, field: str, cell: Any = None, packed: bool = False) -> TensorEncoding:
        dtype = np.dtype(type_)
        number = _NUMBERS[enum_name(dtype)]
        return TensorEncoding(number, dtype, field, dtype if cell is None else np.dtype(cell), packed)

    yield encoding(np.float32, "float_val", packed=True)
    yield encoding(np.float64, "double_val", packed=True)
    yield encoding(np.complex64, "scomplex_val", np.float32, packed=True)
    yield encoding(np.complex128, "dcomplex_val", np.float64, packed=True)
    yield encoding(np.bool_, "bool_val", packed=True)
    yield encoding(np.float16, "half_val", np.uint16)
    yield encoding(ml_dtypes.bfloat16, "half_val", np.uint16)
    for small in (np.int8, np.int16, np.int32, np.uint8, np.uint16):
        yield encoding(small, "int_val")
    yield encoding(np.int64, "int64_val")
    yield encoding(np.uint32, "uint32_val")
    yield encoding(np.uint64, "uint64_val")
    yield encoding(STRING, "string_val")
    for quantized, stored in QUANTIZED.items():
        yield encoding(quantized, "int_val", stored)


ENCODING_BY_NUMBER = {encoding.number: encoding for encoding in _encodings()}
ENCODING_BY_DTYPE = {encoding.dtype: encoding for encoding in ENCODING_BY_NUMBER.values()}


# --- TensorProto to array ---


def decode_tensors(protos: Mapping[str, Any], max_bytes: int, most: float = inf) -> dict[str, Array]:
    """The arrays of a request's inputs, by name; they may be read-only.

    Args:
        protos: the TensorProtos, by names of the signature: many other names would take long.
        max_bytes: the most memory for all arrays.
        most: the most strings in the `tensor_content` of one.

    Raises:
        TakesLong: there are more strings.
        InvalidRequest: type, shape and values do not make a tensor, or the shapes take too much memory.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    left = max_bytes
    for name, proto in protos.items():
        encoding = _encoding(name, proto)
        shapes[name] = _shape(name, proto.tensor_shape)
        # Sizes of 0 count as 1: padding a batch gives it rows, and then the other sizes take memory.
        left -= prod([size or 1 for size in shapes[name]]) * encoding.dtype.itemsize
        if left < 0:
            shape = str(list(shapes[name]))[:256]
            raise _rejection(name, f"has shape {shape}: the inputs take more than the {max_bytes} bytes of a message")
    return {name: _decode(name, proto, shapes[name], most) for name, proto in protos.items()}


def decode_tensor(name: str, proto: Any, max_bytes: int) -> Array:
    """`decode_tensors` for one input."""
    return decode_tensors({name: proto}, max_bytes)[name]


def _encoding(name: str, proto: Any) -> TensorEncoding:
    encoding = ENCODING_BY_NUMBER.get(proto.dtype)
    if encoding is None:
        raise _rejection(name, f"has dtype {_NAMES.get(proto.dtype, proto.dtype)}, which no request can carry")
    return encoding


def _decode(name: str, proto: Any, shape: tuple[int, ...], most: float) -> Array:
    encoding = _encoding(name, proto)

    # 1. Values in the typed field.
    content = proto.tensor_content
    if not content:
        return _from_field(name, encoding, getattr(proto, encoding.field), shape)

    # 2. Strings in tensor_content.
    if encoding.dtype == STRING:
        if prod(shape) > most:
            raise TakesLong
        return _from_string_content(name, content, shape)

    # 3. Numbers in tensor_content, as in memory. A byte above 1 is a valid bool there, but not in numpy.
    expected = prod(shape) * encoding.dtype.itemsize
    if len(content) != expected:
        raise _rejection(
            name,
            f"has {len(content)} bytes of tensor_content;"
            f" expected {expected} for shape {list(shape)} of {encoding.dtype}",
        )
    if encoding.dtype == np.bool_:
        return np.not_equal(np.frombuffer(content, np.uint8), 0).reshape(shape)
    return np.frombuffer(content, encoding.dtype).reshape(shape)


def _shape(name: str, proto: Any) -> tuple[int, ...]:
    if proto.unknown_rank:
        raise _rejection(name, "has unknown rank; expected a shape")
    if len(proto.dim) > _MAX_RANK:
        raise _rejection(name, f"has {len(proto.dim)} dimensions; expected {_MAX_RANK} at most")
    shape = tuple([dim.size for dim in proto.dim])
    if shape and min(shape) < 0:
        raise _rejection(name, f"has shape {list(shape)}; expected no size below 0")
    return shape


def _from_field(name: str, encoding: TensorEncoding, values: Any, shape: tuple[int, ...]) -> Array:
    """The array in a typed field. As in TensorFlow the last value is repeated; no value means zeros."""
    cells = _cells(name, encoding, values)
    if len(cells) * encoding.cell.itemsize % encoding.dtype.itemsize:
        raise _rejection(name, f"has {len(cells)} numbers in {encoding.field}; expected pairs for complex values")
    array: Array = cells if encoding.cell == encoding.dtype else cells.view(encoding.dtype)
    count = prod(shape)
    if len(array) > count:
        raise _rejection(name, f"has {len(array)} values in {encoding.field}; expected {count} for shape {list(shape)}")
    if len(array) < min(count, 2):
        nothing: Any = b"" if encoding.dtype == STRING else 0
        return np.broadcast_to(array if len(array) else np.array(nothing, encoding.dtype), shape)
    if len(array) < count:
        if count * array.itemsize > _FREE_BYTES + _REPETITIONS * array.nbytes:
            raise _rejection(
                name, f"has {len(array)} values in {encoding.field}; expected all {count} of {list(shape)}"
            )
        array = np.concatenate([array, np.repeat(array[-1:], count - len(array))])
    return array.reshape(shape)


def _cells(name: str, encoding: TensorEncoding, values: Any) -> Array:
    if encoding.cell == STRING:
        return string_array(list(values))
    if encoding.packed or encoding.cell.itemsize >= np.int32().itemsize:
        return np.array(values, encoding.cell)
    wide = np.array(values, np.int32)  # the field's own type is wider than an element
    limits = np.iinfo(encoding.cell)
    if len(wide) and not (limits.min <= wide.min() and wide.max() <= limits.max):
        raise _rejection(
            name, f"has values in {encoding.field} beyond {encoding.dtype}; expected {limits.min} to {limits.max}"
        )
    return wide.astype(encoding.cell)


def _from_string_content(name: str, content: bytes, shape: tuple[int, ...]) -> Array:
    """The strings in `tensor_content`, in TensorFlow's encoding: all lengths as varints, then all bytes."""
    count = prod(shape)
    if count > len(content):
        raise _not_strings(name, shape)

    # 1. The last byte of each length: those of a varint before it have the highest bit.
    every = np.frombuffer(content, np.uint8, count=min(len(content), count * _VARINT_BYTES))
    ends = np.flatnonzero(every < 0x80)[:count] + 1
    sizes = np.diff(ends, prepend=0)
    if len(ends) < count or sizes.max(initial=0) > _VARINT_BYTES:
        raise _not_strings(name, shape)

    # 2. The lengths, from all first bytes, all second bytes, ...
    lengths = np.zeros(count, np.int64)
    for place in range(sizes.max(initial=0)):
        longer = sizes > place
        lengths[longer] |= (every[ends[longer] - sizes[longer] + place] & np.int64(0x7F)) << (7 * place)

    # 3. The strings.
    start = int(ends[-1]) if count else 0
    stops = start + np.cumsum(lengths)
    if (int(stops[-1]) if count else 0) != len(content):
        raise _not_strings(name, shape)
    borders = [start, *stops.tolist()]
    return string_array([content[begin:end] for begin, end in pairwise(borders)], shape)


def _not_strings(name: str, shape: tuple[int, ...]) -> InvalidRequest:
    return _rejection(name, f"has tensor_content that is not {prod(shape)} strings, for shape {list(shape)}")


def _rejection(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"Input {name!r} {problem}")


# --- array to TensorProto ---


def tensor_parts(array: Array, as_content: bool) -> Parts:
    """The serialized TensorProto, in parts that share memory with the array.

    Args:
        as_content: whether numbers go into `tensor_content`. Strings never do: TensorFlow's Python cannot read them.

    Raises:
        InvalidRequest: a TensorProto cannot carry the array's type.
    """
    encoding = ENCODING_BY_DTYPE.get(array.dtype)
    if encoding is None:
        raise InvalidRequest(f"Type {array.dtype} cannot be a TensorProto; leave that output out")
    header = _header(encoding.number, array.shape)
    if encoding.dtype == STRING:
        return [header, TensorProto(string_val=array.ravel().tolist()).SerializeToString()]
    flat = np.ascontiguousarray(array).reshape(-1)
    if as_content or encoding.packed:
        number = _CONTENT if as_content else _FIELDS[encoding.field]
        return [header, field_start(number, flat.nbytes), flat.view(np.uint8).data] if flat.size else [header]
    return [header, TensorProto(**{encoding.field: flat.view(encoding.cell).tolist()}).SerializeToString()]


@lru_cache(maxsize=4096)
def _header(number: int, shape: tuple[int, ...]) -> bytes:
    """A serialized TensorProto without values. Cached: most replies of a server have few shapes."""
    proto = TensorProto(dtype=number)
    proto.tensor_shape.SetInParent()
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    header: bytes = proto.SerializeToString()
    return header
