"""Requests made from metadata, as TensorFlow Serving and the Open Inference Protocol write it."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from app.bench.body import Address, Endpoint, NoBody


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
    return json.loads(Endpoint("/v1/models/m:predict").request(metadata, rows).body)["inputs"]["x"]


def test_an_address_has_its_parts() -> None:
    assert Address.of("http://h:81/v1/models/m:predict?a=b") == Address("h", 81, "/v1/models/m:predict?a=b")
    assert Address.of("http://h") == Address("h", 80, "/")


@pytest.mark.parametrize("url", ["h:80/x", "https://h/x", "http://", "http://h:port/", "http://h:99999/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NoBody, match="URL"):
        Address.of(url)


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ("/v1/models/m:predict", "/v1/models/m/metadata"),
        ("/v1/models/m/versions/3:predict", "/v1/models/m/versions/3/metadata"),
        ("/behind/v2/models/a%20b/infer", "/behind/v2/models/a%20b"),
        ("/v2/models/m/versions/3/infer", "/v2/models/m/versions/3"),
    ],
)
def test_metadata_lies_beside_the_endpoint(path: str, metadata: str) -> None:
    assert Endpoint(path).metadata_path == metadata


def test_another_path_needs_a_body() -> None:
    with pytest.raises(NoBody, match="--body"):
        Endpoint("/predict")


def test_rows_fill_the_free_first_axis() -> None:
    inputs = v1_inputs(v1(), rows=3)
    assert [len(row) for row in inputs] == [4, 4, 4]
    assert all(0 <= value < 1 for row in inputs for value in row)


@pytest.mark.parametrize(("sizes", "shape"), [((2, -1), (2, 8)), ((-1,), (3,)), ((), ()), ((-1, -1, 2), (3, 8, 2))])
def test_free_sizes_are_short_and_fixed_ones_stay(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert np.shape(v1_inputs(v1(sizes=sizes), rows=3)) == shape


def test_whole_numbers_are_small() -> None:
    assert {value for row in v1_inputs(v1("DT_INT64"), rows=20) for value in row} == {0, 1}


def test_binary_rows_go_over_the_second_protocol() -> None:
    request = Endpoint("/v2/models/m/infer").request(v2(), 2)
    head = int(request.headers["inference-header-content-length"])
    assert json.loads(request.body[:head])["inputs"][0]["shape"] == [2, 4]
    assert len(request.body) == head + 2 * 4 * 4


@pytest.mark.parametrize("metadata", [v1("DT_STRING"), v1("DT_RESOURCE"), v1("DT_COMPLEX64"), v1(unknown_rank=True)])
def test_what_numbers_cannot_fill_needs_a_body(metadata: bytes) -> None:
    with pytest.raises(NoBody, match=r"'x'.*--body"):
        v1_inputs(metadata)


@pytest.mark.parametrize("metadata", [b"not JSON", b"{}"])
def test_metadata_that_makes_no_sense_is_refused(metadata: bytes) -> None:
    with pytest.raises(NoBody):
        v1_inputs(metadata)


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ferry_client.exchange", None)
    with pytest.raises(NoBody, match="--body"):
        Endpoint("/v1/models/m:predict")
