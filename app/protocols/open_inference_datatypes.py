"""The Open Inference Protocol's names of tensor types, and numpy's. Pure."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from app.errors import Unsupported
from app.inference import STRING, dtype_name

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
