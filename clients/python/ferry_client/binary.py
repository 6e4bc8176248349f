"""Tensors in the Open Inference Protocol's binary form: its type names, and bytes, little-endian and row-major.

An element of BYTES is its length in four bytes, then its bytes; an element of BOOL is one byte.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from ferry_client.arrays import BFLOAT16, NO_BFLOAT16, STRING, Array
from ferry_client.errors import InvalidResponse, Unsupported

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": STRING,
}
if BFLOAT16 is not None:
    DTYPES["BF16"] = BFLOAT16
_DATATYPES = {dtype: name for name, dtype in DTYPES.items()}

_LENGTH = struct.Struct("<I")

Buffer = bytes | memoryview


def datatype_of(name: str, array: Array) -> str:
    """'FP32' for float32. Raises Unsupported, naming the input."""
    if array.dtype not in _DATATYPES:
        raise Unsupported(f"Input {name!r} is {array.dtype}; the Open Inference Protocol has no such type")
    return _DATATYPES[array.dtype]


def dtype_of(name: str, datatype: str) -> np.dtype[Any]:
    """float32 for 'FP32'. Raises Unsupported for bfloat16 without ml_dtypes, KeyError for an unknown type."""
    if datatype == "BF16" and BFLOAT16 is None:
        raise Unsupported(f"Output {name!r} {NO_BFLOAT16}")
    return DTYPES[datatype]


def encode(array: Array) -> Buffer:
    """The tensor's bytes; not copied if the array is contiguous."""
    if array.dtype != STRING:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return b"".join(part for text in array.reshape(-1).tolist() for part in (_LENGTH.pack(len(text)), text))


def decode(raw: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The tensor in these bytes; numbers as a read-only view of `raw`, not copied. Raises InvalidResponse."""
    if dtype == STRING:
        return _decode_strings(bytes(raw), shape)
    if len(raw) != prod(shape) * dtype.itemsize:
        raise InvalidResponse(f"The reply has {len(raw)} bytes for a tensor of {dtype} and shape {list(shape)}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _decode_strings(raw: bytes, shape: tuple[int, ...]) -> Array:
    texts: list[bytes] = []
    at = 0
    while at < len(raw):
        start = at + _LENGTH.size
        at = start + (_LENGTH.unpack_from(raw, at)[0] if start <= len(raw) else 0)
        texts.append(raw[start:at])
    if at != len(raw) or len(texts) != prod(shape):
        raise InvalidResponse(f"The reply has no strings of shape {list(shape)} in {len(raw)} bytes")
    array = np.empty(len(texts), STRING)
    array[:] = texts
    return array.reshape(shape)
