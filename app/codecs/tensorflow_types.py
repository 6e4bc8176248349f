"""TensorFlow's names of tensor types."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.core.inference import dtype_name

#: numpy name -> TensorFlow's name, if that is not numpy's in capitals.
_RENAMED = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}


def enum_name(dtype: np.dtype[Any]) -> str:
    """The name in the DataType enum: 'DT_FLOAT', 'DT_STRING', ..."""
    name = dtype_name(dtype)
    return "DT_" + _RENAMED.get(name, name.upper())


def short_name(dtype: np.dtype[Any]) -> str:
    """The name in TensorFlow's error texts: 'float', 'half', 'int32', ..."""
    return enum_name(dtype).removeprefix("DT_").lower()
