"""The tensor types that a TensorProto can carry, and where it carries their values.

TensorFlow's TensorProto to arrays and back. Pure.

`tensor_content` becomes an array without a copy, read-only over the message's own bytes.
Typed fields are read and written as whole arrays where their form on the wire is that of memory.
A dimension is only believed where its elements are really there, or would fit into a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from app.codecs.protobuf.messages import enum_numbers, message_class
from app.codecs.protobuf.wire import Parts, field_start
from app.codecs.tensorflow_types import enum_name
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array


class Kind(NamedTuple):
    """A tensor type: what an array of it holds, its typed field, and what one value of that field holds.

    `cell` differs from `dtype` where the field's values are the bits (half) or the halves (complex) of an element.
    `packed`: a list of this field looks on the wire as it does in memory.
    """

    number: int
    dtype: np.dtype[Any]
    field: str
    cell: np.dtype[Any]
    packed: bool


def _kinds() -> Iterator[Kind]:
    def kind(dtype: Any, field: str, cell: Any = None, packed: bool = False) -> Kind:
        dtype = np.dtype(dtype)
        return Kind(_number(dtype), dtype, field, dtype if cell is None else np.dtype(cell), packed)

    yield kind(np.float32, "float_val", packed=True)
    yield kind(np.float64, "double_val", packed=True)
    yield kind(np.complex64, "scomplex_val", np.float32, packed=True)
    yield kind(np.complex128, "dcomplex_val", np.float64, packed=True)
    yield kind(np.bool_, "bool_val", packed=True)
    yield kind(np.float16, "half_val", np.uint16)
    yield kind(ml_dtypes.bfloat16, "half_val", np.uint16)
    for small in (np.int8, np.int16, np.int32, np.uint8, np.uint16):
        yield kind(small, "int_val")
    yield kind(np.int64, "int64_val")
    yield kind(np.uint32, "uint32_val")
    yield kind(np.uint64, "uint64_val")
    yield kind(STRING, "string_val")


def _number(dtype: np.dtype[Any]) -> int:
    return enum_numbers("tensorflow.DataType")[enum_name(dtype)]


BY_NUMBER = {kind.number: kind for kind in _kinds()}
BY_DTYPE = {kind.dtype: kind for kind in BY_NUMBER.values()}


TensorProto = message_class("tensorflow.TensorProto")

#: As many dimensions as every numpy can have.
_MAX_RANK = 32

_FIELDS = {field.name: field.number for field in TensorProto.DESCRIPTOR.fields}
_CONTENT = _FIELDS["tensor_content"]

_NAMES = {number: name for name, number in enum_numbers("tensorflow.DataType").items()}


def decode_tensor(name: str, proto: Any, max_bytes: int) -> Array:
    """The array in `proto`; it may be read-only.

    Args:
        name: the input's, for error texts.
        max_bytes: the most memory that values may take which the message implies but does not spell out.

    Raises:
        InvalidRequest: type, shape and values do not make a tensor.
    """
    kind = BY_NUMBER.get(proto.dtype)
    if kind is None:
        raise _rejection(name, f"has dtype {_NAMES.get(proto.dtype, proto.dtype)}, which no request can carry")
    shape = _shape(name, proto.tensor_shape, kind.dtype.itemsize, max_bytes)
    content = proto.tensor_content
    if not content:
        return _from_field(name, kind, getattr(proto, kind.field), shape)
    if kind.dtype == STRING:
        return _from_string_content(name, content, shape)
    expected = prod(shape) * kind.dtype.itemsize
    if len(content) != expected:
        raise _rejection(
            name,
            f"has {len(content)} bytes of tensor_content; expected {expected} for shape {list(shape)} of {kind.dtype}",
        )
    if kind.dtype == np.bool_:
        # Bytes beyond 1 are no booleans in memory.
        return np.not_equal(np.frombuffer(content, np.uint8), 0).reshape(shape)
    return np.frombuffer(content, kind.dtype).reshape(shape)


def encode_tensor(array: Array, proto: Any, as_content: bool) -> None:
    """Fills the empty `proto`. Raises as `tensor_parts` does."""
    proto.MergeFromString(b"".join(tensor_parts(array, as_content)))


def tensor_parts(array: Array, as_content: bool) -> Parts:
    """The serialized TensorProto. Strings are always typed: TensorFlow's Python cannot read them as content.

    Raises InvalidRequest where the array's type has no form in a TensorProto.
    """
    kind = BY_DTYPE.get(array.dtype)
    if kind is None:
        raise InvalidRequest(f"Type {array.dtype} has no form in a TensorProto; leave that output out")
    header = _header(kind.number, array.shape)
    if kind.dtype == STRING:
        return [header, TensorProto(string_val=array.ravel().tolist()).SerializeToString()]
    flat = np.ascontiguousarray(array).reshape(-1)
    if as_content or kind.packed:
        number = _CONTENT if as_content else _FIELDS[kind.field]
        return [header, field_start(number, flat.nbytes), flat.view(np.uint8).data] if flat.size else [header]
    return [header, TensorProto(**{kind.field: flat.view(kind.cell).tolist()}).SerializeToString()]


def _shape(name: str, proto: Any, itemsize: int, max_bytes: int) -> tuple[int, ...]:
    if proto.unknown_rank:
        raise _rejection(name, "has unknown rank; a value needs a shape")
    shape = tuple([dim.size for dim in proto.dim])
    if len(shape) > _MAX_RANK:
        raise _rejection(name, f"has {len(shape)} dimensions; at most {_MAX_RANK} are allowed")
    if shape and min(shape) < 0:
        raise _rejection(name, f"has shape {list(shape)}; a value has no dimension below 0")
    # Dimensions of 0 count as 1: batches are padded, and the other dimensions then become real.
    if prod([size or 1 for size in shape]) * itemsize > max_bytes:
        raise _rejection(name, f"has shape {list(shape)}, more than the {max_bytes} bytes that a message may have")
    return shape


def _from_field(name: str, kind: Kind, values: Any, shape: tuple[int, ...]) -> Array:
    """Fewer values than elements: the last one is repeated, and none at all mean zeros, as in TensorFlow."""
    cells = _cells(name, kind, values)
    if len(cells) * kind.cell.itemsize % kind.dtype.itemsize:
        raise _rejection(name, f"has {len(cells)} numbers in {kind.field}; complex values come in pairs")
    array: Array = cells if kind.cell == kind.dtype else cells.view(kind.dtype)
    count = prod(shape)
    if len(array) > count:
        raise _rejection(name, f"has {len(array)} values in {kind.field}; expected {count} for shape {list(shape)}")
    if len(array) < count:
        last: Any = array[-1:] if len(array) else np.full(1, b"" if kind.dtype == STRING else 0, kind.dtype)
        array = np.concatenate([array, np.repeat(last, count - len(array))])
    return array.reshape(shape)


def _cells(name: str, kind: Kind, values: Any) -> Array:
    if kind.cell == STRING:
        strings = np.empty(len(values), STRING)
        strings[:] = list(values)
        return strings
    if kind.packed or kind.cell.itemsize >= np.int32().itemsize:
        return np.array(values, kind.cell)
    wide = np.array(values, np.int32)  # the field's own type: wider than an element
    limits = np.iinfo(kind.cell)
    if len(wide) and not (limits.min <= wide.min() and wide.max() <= limits.max):
        raise _rejection(name, f"has values in {kind.field} beyond {kind.dtype}, {limits.min} to {limits.max}")
    return wide.astype(kind.cell)


def _from_string_content(name: str, content: bytes, shape: tuple[int, ...]) -> Array:
    """TensorFlow's own form: the lengths of all strings as varints, then their bytes."""
    lengths: list[int] = []
    position = 0
    count = prod(shape)
    while len(lengths) < count and position < len(content):
        length, position = _varint(content, position)
        lengths.append(length)
    if len(lengths) < count or position + sum(lengths) != len(content):
        raise _rejection(name, f"has tensor_content that is not {count} strings, for shape {list(shape)}")
    strings = np.empty(count, STRING)
    for index, length in enumerate(lengths):
        strings[index] = content[position : position + length]
        position += length
    return strings.reshape(shape)


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends; one that is cut off has no end."""
    number = shift = 0
    while position < len(content):
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    return number, position + 1


@lru_cache(maxsize=4096)
def _header(number: int, shape: tuple[int, ...]) -> bytes:
    """A serialized TensorProto without values: replies of few shapes are most of a server's work."""
    proto = TensorProto(dtype=number)
    proto.tensor_shape.SetInParent()
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    header: bytes = proto.SerializeToString()
    return header


def _rejection(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"Input {name!r} {problem}")
