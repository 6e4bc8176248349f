"""The protocol's datatypes, and the declaration of an input before its data: name, datatype and shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from app.codecs.arrays import MAX_RANK
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, ModelSignature, TensorSpec, dtype_name

BYTES = "BYTES"
BOOL = "BOOL"

_DTYPES = {
    BOOL: np.dtype(np.bool_),
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
    "BF16": np.dtype(ml_dtypes.bfloat16),
    BYTES: STRING,
}
_DATATYPES = {dtype: name for name, dtype in _DTYPES.items()}

#: All datatypes of the protocol.
DATATYPES = tuple(_DTYPES)

#: Larger arrays cannot be addressed.
_MAX_BYTES = 2**63 - 1


def datatype_of(dtype: np.dtype[Any]) -> str:
    """'FP32' for float32. Raises Unsupported if the protocol has no datatype for it."""
    name = _DATATYPES.get(dtype)
    if name is None:
        raise Unsupported(f"The Open Inference Protocol has no datatype for {dtype_name(dtype)}")
    return name


def described_datatype(dtype: np.dtype[Any]) -> str:
    """The protocol's datatype; for a type that the protocol lacks, numpy's name in capitals ('COMPLEX64')."""
    return _DATATYPES.get(dtype) or dtype_name(dtype).upper()


def declared_input(name: str, datatype: str, signature: ModelSignature) -> TensorSpec:
    """The signature's spec of this input.

    Raises:
        InvalidRequest: the signature has no such input, or it has another datatype.
        Unsupported: the protocol has no datatype for the signature's type.
    """
    spec = signature.inputs.get(name)
    if spec is None:
        known = ", ".join(map(repr, sorted(signature.inputs))) or "none"
        raise InvalidRequest(f"Unknown input {name[:256]!r}; signature {signature.name!r} has {known}")
    expected = datatype_of(spec.dtype)
    if datatype != expected:
        raise InvalidRequest(f"Input {name!r} has datatype {datatype[:64]!r}; expected {expected!r}")
    return spec


def checked_shape(spec: TensorSpec, shape: Sequence[object]) -> tuple[int, ...]:
    """The shape as a tuple. Raises InvalidRequest unless an array of this type can have it."""
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"Input {spec.name!r} has {len(shape)} dimensions; expected {MAX_RANK} at most")
    sizes: list[int] = []
    for size in shape:
        if type(size) is not int or size < 0:
            raise InvalidRequest(
                f"Input {spec.name!r} has a dimension {str(size)[:64]!r} in 'shape'; expected whole numbers from 0"
            )
        sizes.append(size)
    if prod(size or 1 for size in sizes) * spec.dtype.itemsize > _MAX_BYTES:
        raise InvalidRequest(f"Input {spec.name!r} has shape {str(sizes)[:256]}: no tensor is that large")
    return tuple(sizes)
