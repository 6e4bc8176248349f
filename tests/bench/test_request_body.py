"""Requests made from metadata, as TensorFlow Serving and the Open Inference Protocol write it."""

import json
from typing import Any

import numpy as np
import pytest

from app.bench.request_body import CannotMakeRequest, InferencePath, TargetUrl


def v1(dtype: str = "DT_FLOAT", sizes: tuple[int, ...] = (-1, 4), unknown_rank: bool = False) -> bytes:
    shape = {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": unknown_rank}
    tensor = {"dtype": dtype, "tensor_shape": shape, "name": "x:0"}
    signature = {"inputs": {"x": tensor}, "outputs": {"y": tensor}, "method_name": "tensorflow/serving/predict"}
    definition = {"signature_def": {"signature_def": {"serving_default": signature}}}
    return json.dumps(
        {"model_spec": {"name": "m", "signature_name": "", "version": "1"}, "metadata": definition}
    ).encode()


def v2(datatype: str = "FP32", shape: tuple[int, ...] = (-1, 4)) -> bytes:
    tensor = {"name": "x", "datatype": datatype, "shape": shape}
    return json.dumps({"name": "m", "versions": ["1"], "platform": "", "inputs": [tensor], "outputs": []}).encode()


def v1_inputs(metadata: bytes, rows: int = 1) -> Any:
    return json.loads(InferencePath("/v1/models/m:predict").make_body(metadata, rows).content)["inputs"]["x"]


def test_a_url_has_its_parts() -> None:
    assert TargetUrl.parse("http://h:81/v1/models/m:predict?a=b") == TargetUrl("h", 81, "/v1/models/m:predict?a=b")
    assert TargetUrl.parse("http://h") == TargetUrl("h", 80, "/")
    assert TargetUrl.parse("https://h/x") == TargetUrl("h", 443, "/x", https=True)


@pytest.mark.parametrize("url", ["h:80/x", "ftp://h/x", "http://", "http://h:port/", "http://h:99999/"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(CannotMakeRequest, match="URL"):
        TargetUrl.parse(url)


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ("/v1/models/m:predict", "/v1/models/m/metadata"),
        ("/v1/models/m/versions/3:predict", "/v1/models/m/versions/3/metadata"),
        ("/behind/v2/models/a%20b/infer", "/behind/v2/models/a%20b"),
        ("/v2/models/m/versions/3/infer", "/v2/models/m/versions/3"),
    ],
)
def test_each_path_has_its_metadata_path(path: str, metadata: str) -> None:
    assert InferencePath(path).metadata_path == metadata


def test_another_path_needs_a_body() -> None:
    with pytest.raises(CannotMakeRequest, match="--body"):
        InferencePath("/predict")


def test_rows_fill_the_free_first_axis() -> None:
    inputs = v1_inputs(v1(), rows=3)
    assert [len(row) for row in inputs] == [4, 4, 4]
    assert all(0 <= value < 1 for row in inputs for value in row)


@pytest.mark.parametrize(("sizes", "shape"), [((2, -1), (2, 8)), ((-1,), (3,)), ((), ()), ((-1, -1, 2), (3, 8, 2))])
def test_free_sizes_are_short_and_fixed_ones_stay(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert np.shape(v1_inputs(v1(sizes=sizes), rows=3)) == shape


def test_whole_numbers_are_small() -> None:
    assert {value for row in v1_inputs(v1("DT_INT64"), rows=20) for value in row} == {0, 1}


def test_rows_for_v2_are_binary() -> None:
    request = InferencePath("/v2/models/m/infer").make_body(v2(), 2)
    head = int(request.headers["inference-header-content-length"])
    assert json.loads(request.content[:head])["inputs"][0]["shape"] == [2, 4]
    assert len(request.content) == head + 2 * 4 * 4


@pytest.mark.parametrize("metadata", [v1("DT_STRING"), v1("DT_RESOURCE"), v1("DT_COMPLEX64"), v1(unknown_rank=True)])
def test_an_input_that_numbers_cannot_fill_needs_a_body(metadata: bytes) -> None:
    with pytest.raises(CannotMakeRequest, match=r"'x'.*--body"):
        v1_inputs(metadata)


@pytest.mark.parametrize("metadata", [b"not JSON", b"{}"])
def test_unreadable_metadata_is_rejected(metadata: bytes) -> None:
    with pytest.raises(CannotMakeRequest):
        v1_inputs(metadata)


@pytest.mark.parametrize(
    ("datatype", "size"), [("BOOL", 1), ("UINT8", 1), ("FP16", 2), ("BF16", 2), ("INT64", 8), ("FP64", 8)]
)
def test_every_datatype_of_v2_has_its_size(datatype: str, size: int) -> None:
    request = InferencePath("/v2/models/m/infer").make_body(v2(datatype), 1)
    head = int(request.headers["inference-header-content-length"])
    assert len(request.content) == head + 4 * size


@pytest.mark.parametrize("dtype", ["DT_BFLOAT16", "DT_HALF", "DT_DOUBLE", "DT_UINT16", "DT_BOOL"])
def test_every_number_type_of_v1_is_filled(dtype: str) -> None:
    assert np.shape(v1_inputs(v1(dtype), rows=2)) == (2, 4)
