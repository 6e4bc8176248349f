from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ferry_client import InvalidRequest, InvalidResponse, ModelStatus, Unsupported
from ferry_client.arrays import STRING, Array, Inputs
from ferry_client.binary import DTYPES, decode
from ferry_client.calls import Calls
from ferry_client.exchange import Request, Response
from ferry_client.models import ModelSpec
from ferry_client.open_inference import OpenInference
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fakes import assert_same, reply_of, run, strings
from tests.client.tensors import TENSORS

HEADER = "inference-header-content-length"


def split(request: Request) -> tuple[dict[str, Any], bytes]:
    length = int(request.headers[HEADER])
    return json.loads(request.body[:length]), request.body[length:]


def reply(outputs: list[dict[str, Any]], tail: bytes = b"") -> Response:
    head = json.dumps({"model_name": "m", "outputs": outputs}).encode()
    return Response({HEADER: str(len(head))}, head + tail)


def echo(request: Request) -> Response:
    document, tail = split(request)
    return reply(document["inputs"], tail)


def predict(inputs: Inputs, answer: Any = echo, outputs: tuple[str, ...] = (), **spec: str) -> dict[str, Array]:
    return run(Calls(OpenInference()).predict(ModelSpec("m", **spec), inputs, outputs, 2.0), answer)


def sent(inputs: Inputs, outputs: tuple[str, ...] = (), **spec: str) -> Request:
    return next(Calls(OpenInference()).predict(ModelSpec("m", **spec), inputs, outputs, 2.0))


@given(st.dictionaries(st.text(max_size=5), TENSORS, min_size=1, max_size=3))
def test_tensors_come_back_as_they_went(inputs: dict[str, Array]) -> None:
    outputs = predict(inputs)
    assert outputs.keys() == inputs.keys()
    for name, array in inputs.items():
        assert_same(outputs[name], array)


def test_body_is_json_then_the_tensors_little_endian() -> None:
    document, tail = split(sent({"x": np.array([[1, 2]], np.int16), "s": strings([b"ab", b""], (2,))}))
    assert document["inputs"] == [
        {"name": "x", "shape": [1, 2], "datatype": "INT16", "parameters": {"binary_data_size": 4}},
        {"name": "s", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 10}},
    ]
    assert tail == b"\x01\0\x02\0" + b"\x02\0\0\0ab" + b"\0\0\0\0"


@pytest.mark.parametrize("array", [np.array([1, 258], ">u2"), np.array([1, 0, 258], np.uint16)[::2]])
def test_neither_byte_order_nor_strides_matter(array: Array) -> None:
    assert_same(predict({"x": array})["x"], array.astype("<u2"))


def test_columns_of_a_matrix_are_sent_row_by_row() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert_same(predict({"x": array})["x"], np.ascontiguousarray(array))


def test_everything_asked_for_is_in_the_request() -> None:
    request = sent({"x": np.zeros(1)}, ("a",), version="3", signature="other")
    document, _ = split(request)
    assert (request.method, request.path) == ("POST", "/v2/models/m/versions/3/infer")
    assert document["outputs"] == [{"name": "a", "parameters": {"binary_data": True}}]
    assert document["parameters"] == {
        "binary_data_output": True,
        "timeout": 2_000_000,
        "signature_name": "other",
    }


def test_names_are_quoted_in_the_path() -> None:
    path = next(Calls(OpenInference()).metadata(ModelSpec("a/b c"))).path
    assert path == "/v2/models/a%2Fb%20c"


def test_numbers_are_read_where_they_lie() -> None:
    body = reply([{"name": "x", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}], bytes(8))
    array = predict({"x": np.zeros(1)}, lambda _: body)["x"]
    assert np.shares_memory(array, np.frombuffer(body.body, np.uint8))


def test_outputs_come_in_the_order_asked_for() -> None:
    arrays = {"a": np.array([1]), "b": np.array([2])}
    assert list(predict(arrays, outputs=("b", "a"))) == ["b", "a"]


def test_one_name_is_one_output() -> None:
    document, _ = split(next(Calls(OpenInference()).predict(ModelSpec("m"), {"x": np.zeros(1)}, "out", 1.0)))
    assert [output["name"] for output in document["outputs"]] == ["out"]


METADATA = {
    "name": "m",
    "versions": ["1"],
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "COMPLEX64", "shape": [-1]}],
}


def described(inputs: list[dict[str, Any]]) -> Any:
    return lambda request: reply_of({**METADATA, "inputs": inputs}) if request.method == "GET" else echo(request)


def test_one_array_goes_to_the_only_input_as_it_is() -> None:
    array = np.array([[1, 2]], np.int8)
    assert_same(predict(array, described([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]))["x"], array)


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("FP32", [[1, 2.5]], np.array([[1, 2.5]], np.float32)),
        ("BF16", 1.5, np.array(1.5, ml_dtypes.bfloat16)),
        ("UINT64", [2**64 - 1, 1], np.array([2**64 - 1, 1], np.uint64)),
        ("BOOL", [True, 0], np.array([True, False])),
        ("BYTES", ["ä", b"\0\0"], strings(["ä".encode(), b"\0\0"], (2,))),
        ("BYTES", b"a\0", strings([b"a\0"], ())),
        ("FP32", [], np.array([], np.float32)),
        ("NEW", "text", strings([b"text"], ())),
    ],
)
def test_plain_values_take_the_type_of_the_model(datatype: str, value: Any, expected: Array) -> None:
    answer = described([{"name": "x", "datatype": datatype, "shape": [-1]}])
    assert_same(predict({"x": value}, answer)["x"], expected)


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT32", [1.5]),
        ("INT8", [300]),
        ("FP32", [[1], [1, 2]]),
        ("FP32", "a"),
        ("BOOL", [2]),
        ("BYTES", [1]),
        ("BYTES", ["\ud800"]),
    ],
)
def test_plain_values_that_do_not_fit_the_type_are_rejected(datatype: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="Input 'x'"):
        predict({"x": value}, described([{"name": "x", "datatype": datatype, "shape": [-1]}]))


def test_a_reply_that_is_nested_too_deeply_is_no_reply() -> None:
    with pytest.raises(InvalidResponse, match="not JSON"):
        predict({"x": np.ones(1)}, lambda _: Response({}, b"[" * 100_000))


def test_strings_of_numpy_become_bytes() -> None:
    assert_same(predict({"x": np.array([["a", "bc"]])})["x"], strings([b"a", b"bc"], (1, 2)))
    assert_same(predict({"x": np.array([b"a"])})["x"], strings([b"a"], (1,)))


def test_a_nameless_tensor_needs_a_model_with_one_input() -> None:
    two = [{"name": name, "datatype": "FP32", "shape": [-1]} for name in "ab"]
    with pytest.raises(InvalidRequest, match="'a', 'b'"):
        predict(np.zeros(1), described(two))
    with pytest.raises(InvalidRequest, match="none"):
        predict(np.zeros(1), described([]))


def test_only_the_default_signature_is_described() -> None:
    with pytest.raises(InvalidRequest, match="'other'"):
        predict(np.zeros(1), signature="other")


def test_types_without_a_name_are_rejected() -> None:
    with pytest.raises(Unsupported, match="'x' is complex64"):
        predict({"x": np.zeros(1, np.complex64)})


def test_metadata_is_asked_for_once() -> None:
    core, asked = Calls(OpenInference()), []

    def answer(request: Request) -> Response:
        asked.append(request.method)
        return reply_of(METADATA) if request.method == "GET" else echo(request)

    for _ in range(3):
        run(core.predict(ModelSpec("m"), [[1.0]], (), 1.0), answer)
    assert asked == ["GET", "POST", "POST", "POST"]


def test_metadata_is_asked_for_anew_after_a_rejection() -> None:
    core = Calls(OpenInference())
    refused = core.predict(ModelSpec("m"), [[1.0]], (), 1.0)
    assert next(refused).method == "GET"
    assert refused.send(reply_of(METADATA)).method == "POST"
    with pytest.raises(InvalidRequest):
        refused.throw(InvalidRequest("Unknown input 'x'", 400))
    assert next(core.predict(ModelSpec("m"), [[1.0]], (), 1.0)).method == "GET"


def test_metadata_names_types_and_sizes() -> None:
    metadata = run(Calls(OpenInference()).metadata(ModelSpec("m")), lambda _: reply_of(METADATA))
    assert metadata.versions == ("1",)
    assert metadata.inputs["x"].dtype == np.float32
    assert metadata.inputs["x"].shape == (None, 2)
    assert metadata.outputs["y"].dtype is None


def test_models_are_listed() -> None:
    index = [{"name": "m", "version": "2", "state": "READY", "reason": ""}, {"name": "n", "reason": "gone"}]
    models = run(Calls(OpenInference()).models(), lambda _: reply_of(index))
    assert models == [ModelStatus("m", "2", True), ModelStatus("n", "", False, "gone")]


@pytest.mark.parametrize(
    ("body", "ready"),
    [(b"", True), (b'{"ready":true}', True), (b'{"ready":false}', False), (b"[]", True), (b"{", False)],
)
def test_ready(body: bytes, ready: bool) -> None:
    assert run(Calls(OpenInference()).ready(ModelSpec("")), lambda _: Response({}, body)) is ready


def test_readiness_of_one_model() -> None:
    request = next(Calls(OpenInference()).ready(ModelSpec("m", "2")))
    assert (request.path, request.retried) == ("/v2/models/m/versions/2/ready", False)
    assert next(Calls(OpenInference()).ready(ModelSpec(""))).path == "/v2/health/ready"


@pytest.mark.parametrize("data", [[[1, 2], [3, 4]], [1, 2, 3, 4]])
def test_servers_without_binary_replies_are_understood(data: Any) -> None:
    outputs = [
        {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": data},
        {"name": "s", "shape": [1, 1], "datatype": "BYTES", "data": ["é"]},
    ]
    answer = reply_of({"outputs": outputs})
    found = predict({"x": np.zeros(1)}, lambda _: answer)
    assert_same(found["x"], np.array([[1, 2], [3, 4]], np.float32))
    assert_same(found["s"], strings(["é".encode()], (1, 1)))


FP32 = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
TEXT = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}


@pytest.mark.parametrize(
    "body",
    [
        Response({}, b"<html>"),
        Response({HEADER: "many"}, b"{}"),
        reply_of([]),
        reply_of({}),
        reply([FP32], b"\0\0\0"),
        reply([{**FP32, "datatype": "FP128"}], bytes(4)),
        reply([{**FP32, "shape": [-1, -1]}], bytes(4)),
        reply([{**FP32, "shape": 1}], bytes(4)),
        reply([{**FP32, "parameters": {}}], bytes(4)),
        reply([{**FP32, "parameters": None}], bytes(4)),
        reply([{**FP32, "parameters": {}, "data": ["one"]}]),
        reply([{**FP32, "parameters": {}, "datatype": "INT8", "data": [300]}]),
        reply([{**FP32, "parameters": {}, "data": [1, 2]}]),
        reply([TEXT], b"\x02\0\0\0a"),
        reply([TEXT], b"\x00\0\0\0\0"),
        reply([{**TEXT, "shape": [2]}], b"\x01\0\0\0a"),
        reply([{**TEXT, "parameters": {}, "data": [1]}]),
        reply([{**FP32, "name": "y"}], bytes(4)),
    ],
)
def test_replies_that_make_no_sense_say_so(body: Response) -> None:
    with pytest.raises(InvalidResponse):
        predict({"x": np.zeros(1)}, lambda _: body, ("x",))


@pytest.mark.parametrize(
    "document",
    [[], {}, {**METADATA, "inputs": [{}]}, {**METADATA, "inputs": [{"name": "x", "datatype": "FP32", "shape": ["a"]}]}],
)
def test_metadata_and_index_that_make_no_sense_say_so(document: Any) -> None:
    with pytest.raises(InvalidResponse):
        run(Calls(OpenInference()).metadata(ModelSpec("m")), lambda _: reply_of(document))
    with pytest.raises(InvalidResponse):
        run(Calls(OpenInference()).models(), lambda _: reply_of([{"version": document}]))


@given(st.binary(max_size=30), st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 3), max_size=2))
def test_any_bytes_are_a_tensor_or_rejected(raw: bytes, datatype: str, shape: list[int]) -> None:
    try:
        array = decode(raw, DTYPES[datatype], tuple(shape))
    except InvalidResponse:
        return
    assert (array.dtype, array.shape) == (DTYPES[datatype], tuple(shape))
    assert array.dtype != STRING or all(type(text) is bytes for text in array.reshape(-1).tolist())
