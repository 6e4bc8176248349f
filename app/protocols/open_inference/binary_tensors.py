"""Tensors as the bytes of the binary tensor data extension: little-endian, row-major.

An element of BYTES is its length in four bytes, then its bytes; an element of BOOL is a byte, 0 or 1. Numbers are
copied neither when they are decoded nor when they are encoded: arrays and views share memory.
"""

from __future__ import annotations

import struct
from math import inf, prod

import numpy as np

from app.codecs.at_once import TakesLong
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, Buffer, TensorSpec, string_array
from app.protocols.open_inference.datatypes import datatype_of

_LENGTH = struct.Struct("<I")


def decode(raw: Buffer, spec: TensorSpec, shape: tuple[int, ...], most: float = inf) -> Array:
    """The tensor of a checked `shape` that fills `raw`. Raises InvalidRequest; TakesLong: more than `most` strings."""
    if spec.dtype == STRING:
        return _decode_strings(raw, spec.name, shape, most)
    expected = prod(shape) * spec.dtype.itemsize
    if len(raw) != expected:
        raise InvalidRequest(
            f"Input {spec.name!r} has {len(raw)} bytes of data; "
            f"{datatype_of(spec.dtype)} of shape {list(shape)} takes {expected}"
        )
    if spec.dtype.kind == "b" and (highest := np.frombuffer(raw, np.uint8).max(initial=0)) > 1:
        raise InvalidRequest(f"Input {spec.name!r} is BOOL, but has a byte {highest}; expected 0 or 1")
    return np.frombuffer(raw, spec.dtype).reshape(shape)


def encode(array: Array) -> Buffer:
    """The bytes of a tensor."""
    if array.dtype == STRING:
        pack = _LENGTH.pack
        return b"".join([part for value in array.reshape(-1).tolist() for part in (pack(len(value)), value)])
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _decode_strings(raw: Buffer, name: str, shape: tuple[int, ...], most: float) -> Array:
    count = prod(shape)
    # Before the loop: a shape can claim more elements than fit into memory.
    values = _split(bytes(raw), name, most) if _LENGTH.size * count <= len(raw) else None
    if values is None or len(values) != count:
        found = "too few bytes for that" if values is None else f"{len(values)} elements"
        raise InvalidRequest(f"Input {name!r} has shape {list(shape)}, {count} elements of BYTES, but {found}")
    return string_array(values, shape)


def _split(raw: bytes, name: str, most: float) -> list[bytes]:
    unpack, size, offset = _LENGTH.unpack_from, len(raw), 0
    values: list[bytes] = []
    try:
        while offset < size:
            start = offset + 4
            offset = start + unpack(raw, offset)[0]
            values.append(raw[start:offset])
            if len(values) > most:
                raise TakesLong
    except struct.error:
        offset = -1
    if offset != size:
        raise InvalidRequest(
            f"Input {name!r}: the data of BYTES ends inside element {max(0, len(values) - (offset > size))};"
            " expected four bytes of length, then as many bytes, for each element"
        )
    return values
