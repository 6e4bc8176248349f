from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from app.codecs.arrays import cast, from_bytes, only_input
from app.core.errors import InvalidRequest
from app.core.inference import STRING, TensorSpec
from tests.support.protocol_fakes import signature_of, specs


def spec(dtype: Any) -> TensorSpec:
    return TensorSpec("x", STRING if dtype == "string" else np.dtype(dtype), (None,))


@pytest.mark.parametrize(
    ("array", "dtype", "values"),
    [
        (np.array([1.5], np.float32), "float32", [1.5]),
        (np.array([1.5], ">f4"), "float32", [1.5]),
        (np.array([1.5], np.float32), "float64", [1.5]),
        (np.array([1.5], np.float16), "float32", [1.5]),
        (np.array([1.5], ml_dtypes.bfloat16), "float32", [1.5]),
        (np.array([255], np.uint8), ml_dtypes.bfloat16, [255]),
        (np.array([255], np.uint8), "float16", [255]),
        (np.array([-7], np.int16), "float32", [-7]),
        (np.array([-7], np.int32), "int64", [-7]),
        (np.array([7], np.uint32), "int64", [7]),
        (np.array([True]), "uint8", [1]),
        (np.array([1], np.float32), "complex64", [1]),
        (np.array([1, 2], ml_dtypes.bfloat16).view("V2"), ml_dtypes.bfloat16, [1, 2]),
        (np.array([b"ab", b"c\0d"]), "string", [b"ab", b"c\0d"]),
        (np.array(["é", ""]), "string", ["é".encode(), b""]),
        (np.array([["a"], ["b"]]), "string", [[b"a"], [b"b"]]),
        (np.array("a"), "string", b"a"),
    ],
)
def test_casts_that_change_no_value(array: Any, dtype: Any, values: Any) -> None:
    result = cast(array, spec(dtype))
    assert result.dtype == spec(dtype).dtype
    assert result.dtype.isnative
    assert result.tolist() == values


@pytest.mark.parametrize(
    ("array", "dtype", "text"),
    [
        (np.array([1.0]), "float32", "Input 'x' has dtype float64, which float32 cannot hold without loss"),
        (np.array([1]), "float32", "Input 'x' has dtype int64, which float32 cannot hold without loss"),
        (np.array([1], np.int32), "uint32", "has dtype int32, which uint32"),
        (np.array([1], np.uint8), "bool", "has dtype uint8, which bool"),
        (np.array([1], np.float32), ml_dtypes.bfloat16, "has dtype float32, which bfloat16"),
        (np.array([1], np.float16), ml_dtypes.bfloat16, "has dtype float16, which bfloat16"),
        (np.zeros(1, "V2"), "float16", "has dtype void16, which float16"),
        (np.zeros(1, "V4"), ml_dtypes.bfloat16, "has dtype void32, which bfloat16"),
        (np.array(["1"]), "float32", "which float32 cannot hold"),
        (np.array([1], np.float32), "string", "has dtype float32, which string cannot hold"),
        (np.array([b"1"], STRING), "float32", "has dtype string, which float32 cannot hold"),
        (np.array(["\ud800"]), "string", "text that is not valid Unicode"),
        (np.array([0x7FFFFFFF], np.uint32).view("U1"), "string", "text that is not valid Unicode"),
    ],
)
def test_casts_that_could_change_a_value_are_rejected(array: Any, dtype: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cast(array, spec(dtype))
    assert text in str(caught.value)
    assert "expected" in str(caught.value) or "Unicode" in str(caught.value)


def test_an_array_without_a_name_is_for_the_only_input() -> None:
    assert only_input(signature_of(specs(x=("int8", None)), {}), "It").name == "x"
    for inputs, names in ((specs(b=("int8", None), a=("int8", None)), "'a', 'b'"), ({}, "none")):
        with pytest.raises(InvalidRequest, match=f"It is a single array, but the inputs of signature 'x' are {names}"):
            only_input(signature_of(inputs, {}), "It")


def test_an_empty_array_hides_no_huge_dimension() -> None:
    assert from_bytes(b"", np.dtype(np.float32), [0, 1000, 1000], "x").shape == (0, 1000, 1000)
    with pytest.raises(InvalidRequest, match="x has 0 bytes of data"):
        from_bytes(b"", np.dtype(np.float32), [0, 10_000, 10_000], "x")
