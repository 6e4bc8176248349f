"""Tensors as the protocols' documents and bytes carry them, written and read without the server's codecs."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.core.inference import STRING, Array
from app.protocols.open_inference.datatypes import BYTES
from tests.support.bodies import dtype_called

#: The type of each datatype of the Open Inference Protocol.
DTYPES = {
    "BOOL": np.dtype(bool),
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits}") for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "BF16": dtype_called("bfloat16"),
    BYTES: STRING,
}


def as_lists(array: Array) -> Any:
    """Nested lists for JSON; a string that is not UTF-8 as base64."""
    if array.dtype == STRING:
        return _each(array.tolist(), _text)
    return (array.astype(np.float32) if array.dtype == DTYPES["BF16"] else array).tolist()


def from_lists(value: Any, dtype: np.dtype[Any]) -> Array:
    """The array of nested lists from JSON."""
    if dtype != STRING:
        return np.array(value, dtype)
    return np.array(_each(value, _content), STRING)


def as_bytes(array: Array) -> bytes:
    """Open Inference's binary tensor data."""
    if array.dtype != STRING:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(each)) + each for each in array.ravel().tolist())


def from_bytes(content: bytes, datatype: str, shape: Sequence[int]) -> Array:
    """The tensor of Open Inference's binary tensor data."""
    if datatype != BYTES:
        return np.frombuffer(content, DTYPES[datatype]).reshape(shape)
    values, at = [], 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        values.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    array = np.empty(len(values), STRING)
    array[:] = values
    return array.reshape(shape)


def _each(value: Any, change: Any) -> Any:
    return [_each(each, change) for each in value] if isinstance(value, list) else change(value)


def _text(value: bytes | str) -> Any:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": b64encode(value).decode()}


def _content(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else b64decode(value["b64"])
