from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from app.core.errors import Unsupported
from app.protocols.open_inference.datatypes import datatype_of, described_datatype


@pytest.mark.parametrize(
    ("dtype", "datatype"),
    [
        ("bool", "BOOL"), ("uint8", "UINT8"), ("uint16", "UINT16"), ("uint32", "UINT32"), ("uint64", "UINT64"),
        ("int8", "INT8"), ("int16", "INT16"), ("int32", "INT32"), ("int64", "INT64"), ("float16", "FP16"),
        ("float32", "FP32"), ("float64", "FP64"), (ml_dtypes.bfloat16, "BF16"), ("object", "BYTES"),
    ],
)  # fmt: skip
def test_names(dtype, datatype):
    assert datatype_of(np.dtype(dtype)) == described_datatype(np.dtype(dtype)) == datatype


def test_a_type_without_a_name_is_described_but_not_served():
    assert described_datatype(np.dtype("complex64")) == "COMPLEX64"
    with pytest.raises(Unsupported, match="no datatype for complex64"):
        datatype_of(np.dtype("complex64"))
