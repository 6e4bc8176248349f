from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from app.codecs.tensorflow_types import enum_name, short_name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float32", "DT_FLOAT"),
        ("float64", "DT_DOUBLE"),
        ("float16", "DT_HALF"),
        (ml_dtypes.bfloat16, "DT_BFLOAT16"),
        ("int8", "DT_INT8"),
        ("int64", "DT_INT64"),
        ("uint16", "DT_UINT16"),
        ("bool", "DT_BOOL"),
        ("object", "DT_STRING"),
        ("complex64", "DT_COMPLEX64"),
        ("complex128", "DT_COMPLEX128"),
        (ml_dtypes.float8_e4m3fn, "DT_FLOAT8_E4M3FN"),
        (ml_dtypes.int4, "DT_INT4"),
        ([("qint8", "i1")], "DT_QINT8"),
    ],
)
def test_names(dtype: Any, name: str) -> None:
    assert enum_name(np.dtype(dtype)) == name
    assert short_name(np.dtype(dtype)) == name.removeprefix("DT_").lower()
