"""The Open Inference Protocol's names of tensor types, and numpy's. Pure.

What an input says of itself before its elements are read: name, datatype and shape, checked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

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

#: Every datatype of the protocol.
DATATYPES = tuple(_DTYPES)


def datatype_of(dtype: np.dtype[Any]) -> str:
    """'FP32' for float32. Raises Unsupported where the protocol has no name for the type."""
    name = _DATATYPES.get(dtype)
    if name is None:
        raise Unsupported(f"The Open Inference Protocol has no datatype for {dtype_name(dtype)}")
    return name


def described_datatype(dtype: np.dtype[Any]) -> str:
    """As `datatype_of`; a type that the protocol does not know is shown by its own name ('COMPLEX64')."""
    return _DATATYPES.get(dtype) or dtype_name(dtype).upper()


#: No deeper than every numpy allows.
MAX_RANK = 31

#: Arrays of more bytes cannot even be addressed.
_MAX_BYTES = 2**63 - 1


def declared_input(name: str, datatype: str, signature: ModelSignature) -> TensorSpec:
    """What the signature says of this input.

    Raises:
        InvalidRequest: there is no such input, or it has another datatype.
        Unsupported: the protocol has no datatype for what the model wants.
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
    """Raises InvalidRequest unless `shape` is one that an array of this type can have."""
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
