from __future__ import annotations

import json
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.nested_lists import MAX_RANK, rows, tensor
from app.codecs.json.scalars import is_base64
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import Array

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
SMALL = (ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
DTYPES = [np.dtype(name) for name in (*INTEGERS, *FLOATS, *SMALL, "bool", "object")]
NUMBERS = [dtype for dtype in DTYPES if dtype.kind not in "bO"]

DTYPE = st.sampled_from(DTYPES)
LEAF: st.SearchStrategy[Any] = st.one_of(
    st.integers(-10, 10),
    st.sampled_from([-(2**63) - 1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400, -129, -128, 127, 255, 256]),
    st.sampled_from([0.0, -0.0, 1.5, 1e39, 65504.0, 65520.0, 1e308, math.inf, -math.inf, 3.4028235e38]),
    st.booleans(),
    st.none(),
    st.sampled_from(["", "a", "é", "\ud800"]),
    st.sampled_from([{}, {"b64": "YQ=="}, {"b64": "*"}, {"b64": 1}, {"x": 1}]),
)
SAME_LEAVES = st.sampled_from([st.integers(-8, 7), st.floats(-8, 8), st.booleans(), st.text(max_size=2)])
VALUE: st.SearchStrategy[Any] = st.one_of(
    st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
    SAME_LEAVES.flatmap(lambda leaf: st.lists(st.lists(leaf, min_size=2, max_size=2), max_size=3)),
)


class DoesNotFit(Exception):
    pass


def fits(value: Any, dtype: np.dtype[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """The rules again, one element at a time: shape and elements, or DoesNotFit."""
    if type(value) is not list:
        if not leaf_fits(value, dtype):
            raise DoesNotFit
        return (), [value]
    parts = [fits(each, dtype) for each in value]
    if len({shape for shape, _ in parts}) > 1:
        raise DoesNotFit
    return (len(value), *(parts[0][0] if parts else ())), [leaf for _, leaves in parts for leaf in leaves]


def leaf_fits(leaf: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "O":
        if type(leaf) is str:
            return not any(0xD800 <= ord(char) < 0xE000 for char in leaf)
        return is_base64(leaf) and leaf["b64"] != "*"
    if dtype.kind == "b":
        return type(leaf) is bool
    if "int" in dtype.name:
        limits: Any = ml_dtypes.iinfo
        return type(leaf) is int and int(limits(dtype).min) <= leaf <= int(limits(dtype).max)
    return type(leaf) in (int, float) and float_fits(leaf, dtype)


def float_fits(leaf: float, dtype: np.dtype[Any]) -> bool:
    try:
        value = float(leaf)
    except OverflowError:
        return False
    with np.errstate(all="ignore"):
        return not math.isfinite(value) or bool(np.isfinite(np.array(value).astype(dtype)))


@given(VALUE, DTYPE)
def test_what_fits_is_accepted_and_nothing_else(value: Any, dtype: np.dtype[Any]) -> None:
    try:
        shape, leaves = fits(value, dtype)
    except DoesNotFit:
        with pytest.raises(InvalidRequest):
            tensor(value, dtype)
        return
    array = tensor(value, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    if dtype.kind != "O":
        kind = np.float64 if "float" in dtype.name else None
        expected = [np.array(leaf, kind).astype(dtype) for leaf in leaves]
        assert array.tobytes() == b"".join(one.tobytes() for one in expected)


@given(st.lists(VALUE, min_size=1, max_size=4), DTYPE)
def test_rows_fit_when_the_list_of_them_does(values: list[Any], dtype: np.dtype[Any]) -> None:
    try:
        shape, _ = fits(values, dtype)
    except DoesNotFit:
        with pytest.raises(InvalidRequest, match=r"Failed to process element: \d+ key: k of 'instances' list. Error: "):
            rows(values, dtype, "k")
        return
    assert rows(values, dtype).shape == shape


@pytest.mark.parametrize("dtype", [np.dtype(name) for name in INTEGERS], ids=str)
def test_integers_in_their_full_range_and_not_beyond(dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    assert tensor([low, high], dtype).tolist() == [low, high]
    for beyond in (low - 1, high + 1, 10**30):
        with pytest.raises(InvalidRequest, match=f"JSON Value: {beyond} is out of the range of type: {dtype}"):
            tensor([0, beyond, low - 1], dtype)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_true_is_not_a_number(dtype: np.dtype[Any]) -> None:
    with pytest.raises(InvalidRequest, match="JSON Value: true Type: True is not of expected type: "):
        tensor([0, True], dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, "int32", "JSON Value: 1.0 Type: Number is not of expected type: int32"),
        ([[1], ["x"]], "float32", 'JSON Value: "x" Type: String is not of expected type: float'),
        ([None], "float64", "JSON Value: null Type: Null is not of expected type: double"),
        ([False, 0], "bool", "JSON Value: 0 Type: Number is not of expected type: bool"),
        ([1, [2]], "float32", "JSON Value: [2] Type: Array is not of expected type: float"),
        ([{"a": 1}], "float16", 'JSON Value: {"a": 1} Type: Object is not of expected type: half'),
        (["a", 1], "object", "JSON Value: 1 Type: Number is not of expected type: string"),
        ([{"x": "y"}], "object", 'JSON Value: {"x": "y"} not formatted correctly for base64 data'),
        ([[1, 2], [3]], "float32", "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([[[1], [2]], [[3], []]], "float32", "Encountered list at unexpected size: 0 at level: 2 expected size: 1"),
        ([[1], 2], "float32", "JSON Value: 2 found at incorrect level: 1 in the JSON DOM. Expected a list"),
        ([1.0, 1e39], "float32", "JSON Value: 1e+39 is out of the range of type: float"),
        ([1, -(10**400)], "float64", f"JSON Value: {'-1' + '0' * 251}... is out of the range of type: double"),
        ([float("inf"), 70000], "float16", "JSON Value: 70000 is out of the range of type: half"),
        ([float("nan"), 1e39], ml_dtypes.bfloat16, "JSON Value: 1e+39 is out of the range of type: bfloat16"),
    ],
)
def test_what_does_not_fit_is_quoted(value: Any, dtype: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tensor(value, np.dtype(dtype))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            [[0] * 270, [0] * 270, [0] * 252],
            "2: Expecting tensor size: 270 but got: 252",
        ),
        (
            [[[1, 2]], [[1], [2]]],
            "1: Expecting shape [1,2] but got: [2,1]",
        ),
        (
            [[[1, 2], [3]], [[1, 2], [3, 4]]],
            "0: Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        ),
        (
            [[1, 2], [3, "x"]],
            '1: JSON Value: "x" Type: String is not of expected type: float',
        ),
        ([[], [1]], "1: Expecting tensor size: 0 but got: 1"),
        ([1, [1]], "1: Expecting shape [] but got: [1]"),
        ([[1], 1], "1: Expecting shape [1] but got: []"),
    ],
)
def test_the_row_at_fault_is_named(values: list[Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rows(values, np.dtype("float32"))
    row, fault = text.split(": ", 1)
    prefix = f"Failed to process element: {row} of 'instances' list. Error: INVALID_ARGUMENT: "
    assert str(caught.value) == prefix + fault


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "V3"])
def test_types_that_json_cannot_represent_are_not_supported(dtype: str) -> None:
    with pytest.raises(Unsupported, match=r"Conversion of JSON Value: 1 to type: "):
        rows([1], np.dtype(dtype))
    with pytest.raises(Unsupported, match=r"Conversion of JSON Value: \[\] to type: "):
        tensor([], np.dtype(dtype))


@pytest.mark.parametrize(("value", "shape"), [(5, ()), ([], (0,)), ([[], []], (2, 0)), ([[[1]]], (1, 1, 1))])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_every_shape_is_read(value: Any, shape: tuple[int, ...], dtype: str) -> None:
    assert tensor(value, np.dtype(dtype)).shape == shape


def nested(levels: int) -> Any:
    value: Any = 1.0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("dtype", ["float32", "object"])
@pytest.mark.parametrize("levels", [MAX_RANK + 1, 1000])
def test_lists_deeper_than_any_tensor_are_rejected(levels: int, dtype: str) -> None:
    with pytest.raises(InvalidRequest, match="Encountered list at unexpected level: 31 expected < 31"):
        tensor(nested(levels), np.dtype(dtype))
    with pytest.raises(InvalidRequest, match=r"element: 0 .*Encountered list at unexpected level: 31 expected < 31"):
        rows([nested(levels)], np.dtype(dtype))
    assert tensor(nested(MAX_RANK), np.dtype("float32")).ndim == MAX_RANK


def test_numbers_are_rounded_as_ieee_says() -> None:
    array: Array = tensor([2**24 + 1, 0.1], np.dtype("float32"))
    assert array.tolist() == [2.0**24, struct.unpack("f", struct.pack("f", 0.1))[0]]
    assert json.dumps(tensor([2**63 + 1], np.dtype("float64")).tolist()) == "[9.223372036854776e+18]"


@pytest.mark.parametrize("value", [2**70, 1e6, -1e6])
def test_float8_overflow_is_out_of_range_though_its_kind_is_f(value: float) -> None:
    with pytest.raises(InvalidRequest, match="range"):
        tensor([value], np.dtype(ml_dtypes.float8_e5m2))
