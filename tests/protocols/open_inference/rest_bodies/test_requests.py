from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.writing import dumps
from app.core.errors import InvalidRequest, SignatureNotFound, Unsupported
from app.protocols.open_inference.datatypes import DATATYPES
from app.protocols.open_inference.documents.json_documents import encode_data
from app.protocols.open_inference.rest_bodies import read_request, split_body
from app.protocols.open_inference.shared_memory import RegionSlice
from tests.support.open_inference_world import AB, JSON_AB, binary_request, json_input, sum_model, values_of
from tests.support.protocol_fakes import echo_model, model, specs

SUMS = sum_model().signatures


def no_memory(part):
    raise InvalidRequest(f"no region {part.region}")


def read(body, headers=None, signatures=SUMS, memory=no_memory, content_type=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    header = (headers or {}).get("Inference-Header-Content-Length")
    head, tail = split_body(content, None if header is None else header.encode(), content_type)
    return read_request(head, tail, signatures, memory, lambda timeout_s: 100 + timeout_s)


def same(inputs, expected):
    assert inputs.keys() == expected.keys()
    for name, array in expected.items():
        assert inputs[name].dtype == array.dtype
        assert inputs[name].shape == array.shape
        assert inputs[name].tolist() == array.tolist()


def test_json_and_binary_say_the_same():
    same(read(JSON_AB).request.inputs, AB)
    same(read(*binary_request(AB)).request.inputs, AB)


def test_binary_inputs_are_views_of_the_body():
    body, headers = binary_request(AB)
    inputs = read(body, headers).request.inputs
    assert np.shares_memory(inputs["b"], np.frombuffer(body, np.uint8))


def test_json_and_binary_inputs_can_be_mixed():
    body, headers = binary_request({"b": AB["b"]})
    length = int(headers["Inference-Header-Content-Length"])
    document = json.loads(body[:length])
    document["inputs"].insert(0, json_input("a", AB["a"]))
    head = json.dumps(document).encode()
    same(read(head + body[length:], {"Inference-Header-Content-Length": str(len(head))}).request.inputs, AB)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_both_ways(datatype):
    x = values_of(datatype)
    signatures = echo_model(x.dtype.name if datatype != "BYTES" else "string", (None, 2)).signatures
    same(read(*binary_request({"x": x}), signatures).request.inputs, {"x": x})
    data = json.loads(dumps(encode_data(x)))
    same(read({"inputs": [json_input("x", x, data=data)]}, None, signatures).request.inputs, {"x": x})


def test_null_beside_binary_data_counts_as_absent():
    """KServe's client writes it beside a binary tensor of no bytes, and then no header either."""
    entries = [
        {"name": name, "shape": [0, 2], "datatype": "FP32", "data": None, "parameters": {"binary_data_size": 0}}
        for name in AB
    ]
    same(read({"inputs": entries}).request.inputs, {name: array[:0] for name, array in AB.items()})


def test_what_else_a_request_says():
    document = {
        **JSON_AB, "id": "7", "parameters": {"timeout": 2_000_000, "signature_name": "serving_default"},
        "outputs": [{"name": "product", "parameters": {"binary_data": True}}], "unknown": 1,
    }  # fmt: skip
    call = read(document)
    assert call.id == "7"
    assert call.request.deadline_s == 102
    assert call.request.signature == "serving_default"
    assert call.request.outputs == ("product",)
    assert [(output.name, output.binary) for output in call.wanted] == [("product", True)]
    assert [output.binary for output in read(JSON_AB).wanted] == [False, False]
    everything = {**JSON_AB, "parameters": {"binary_data_output": True}}
    assert [output.binary for output in read(everything).wanted] == [True, True]
    named = {**everything, "outputs": [{"name": "sum"}, {"name": "product", "parameters": {"binary_data": False}}]}
    assert [output.binary for output in read(named).wanted] == [True, False]


def test_another_signature():
    call = read({"inputs": [json_input("a", np.ones(3, np.float32))], "parameters": {"signature_name": "total"}})
    assert call.request.signature == "total"
    assert not call.batched


def test_inputs_from_shared_memory():
    asked = []

    def memory(part):
        asked.append(part)
        return AB["b"].tobytes()

    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 4}
    b = {"name": "b", "shape": [2, 2], "datatype": "FP32", "parameters": parameters}
    same(read({"inputs": [json_input("a", AB["a"]), b]}, memory=memory).request.inputs, AB)
    assert asked == [RegionSlice("r", 16, 4)]


def x_of(**changes):
    entry = {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], **changes}
    return {"inputs": [{key: value for key, value in entry.items() if value is not ...}]}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"inputs": 1}, "'inputs' must be a list"),
        ({"inputs": [1]}, "Element 0 of 'inputs'"),
        ({"inputs": [*JSON_AB["inputs"], JSON_AB["inputs"][0]]}, "Input 'a' is given more than once"),
        (x_of(name="q"), "Unknown input 'q'; signature 'serving_default' has 'a', 'b'"),
        (x_of(datatype="FP64"), "Input 'a' has datatype 'FP64'; expected 'FP32'"),
        (x_of(datatype=1), "Input 'a': 'datatype' must be a string"),
        (x_of(shape=2), "Input 'a': 'shape' must be a list"),
        (x_of(shape=[-1, 2]), "has a dimension '-1'"),
        (x_of(shape=[3]), "has 2 elements in 'data'; shape [3] takes 3"),
        (x_of(data=...), "Input 'a' must have exactly one of 'data' and the parameters"),
        (x_of(parameters={"binary_data_size": 8}), "must have exactly one of"),
        (x_of(data=..., parameters={"binary_data_size": 8}), "binary_data_size 8, but only 0 bytes"),
        (x_of(data=..., parameters={"binary_data_size": "8"}), "Parameter 'binary_data_size'"),
        (x_of(parameters=[]), "Input 'a': 'parameters' must be an object"),
        (x_of(data=..., parameters={"shared_memory_region": "r"}), "is without 'shared_memory_byte_size'"),
        ({**JSON_AB, "outputs": [{"name": "q"}]}, "no output 'q'"),
        ({**JSON_AB, "outputs": [{"name": "sum"}, {"name": "sum"}]}, "'sum' is requested more than once"),
        ({**JSON_AB, "outputs": [{"name": "sum", "parameters": 1}]}, "Output 'sum': 'parameters'"),
        ({**JSON_AB, "id": 5}, "'id' must be a string"),
        ({**JSON_AB, "parameters": {"timeout": -1}}, "Parameter 'timeout'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(document, text):
    with pytest.raises(InvalidRequest) as error:
        read(document)
    assert text in str(error.value)


def test_unknown_signatures_and_types_without_a_name():
    with pytest.raises(SignatureNotFound):
        read({**JSON_AB, "parameters": {"signature_name": "q"}})
    with pytest.raises(Unsupported):
        read(x_of(name="x"), signatures=echo_model("complex64").signatures)


def binary(sizes, tail, header=None):
    entries = [
        {"name": name, "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": size}}
        for name, size in zip("ab", sizes, strict=False)
    ]
    head = json.dumps({"inputs": entries}).encode()
    return head + tail, {"Inference-Header-Content-Length": str(len(head)) if header is None else header}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (binary([8, 8], bytes(17)), "1 bytes after the last binary tensor"),
        (binary([8, 8], bytes(15)), "Input 'b' has binary_data_size 8, but only 7 bytes"),
        (binary([8, 7], bytes(15)), "Input 'b' has 7 bytes of data; FP32 of shape [1, 2] takes 8"),
        (binary([8, 2**63], bytes(16)), "binary_data_size 9223372036854775808"),
        (binary([8], bytes(8), "100000"), "Header Inference-Header-Content-Length is '100000'"),
        (binary([8], bytes(8), "-1"), "is '-1'"),
        (binary([8], bytes(8), "x"), "is 'x'"),
        (binary([8], bytes(8), ""), "is ''"),
        (binary([8], bytes(8), "9" * 30), "Inference-Header-Content-Length"),
        (binary([8], bytes(8), "3"), "JSON Parse error"),
    ],
)
def test_bodies_whose_sizes_do_not_add_up(body, text):
    with pytest.raises(InvalidRequest) as error:
        read(*body)
    assert text in str(error.value)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_a_request_or_rejected(body, length):
    with suppress(InvalidRequest):
        read(body, {"Inference-Header-Content-Length": str(length)}, echo_model("int8", (None,)).signatures)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=2), st.binary(max_size=40), st.data())
def test_any_sizes_and_any_tail_fit_or_are_rejected(sizes, tail, data):
    body, headers = binary(sizes, tail)
    cut = data.draw(st.integers(0, len(body)))
    try:
        call = read(body[:cut], headers)
    except InvalidRequest:
        assert cut < len(body) or sizes != [8, 8] or len(tail) != 16
    else:
        assert sizes == [8, 8]
        assert len(tail) == 16
        assert call.request.inputs["a"].tobytes() + call.request.inputs["b"].tobytes() == tail


BARE = {"headers": {"Inference-Header-Content-Length": "0"}}


@pytest.mark.parametrize(
    ("dtype", "shape", "body", "expected"),
    [
        ("int8", (None,), b"\1\2\3", [1, 2, 3]),
        ("int8", (None, 2), b"\1\2\3\4", [[1, 2], [3, 4]]),
        ("int8", (None, None, 2), b"\1\2\3\4", [[[1, 2], [3, 4]]]),
        ("int8", (2,), b"\1\2", [1, 2]),
        ("int8", (), b"\1", 1),
        ("int8", None, b"\1\2", [1, 2]),
        ("int8", (None, 0), b"", np.empty((0, 0)).tolist()),
        ("string", (None,), b"\0text", [b"\0text"]),
        ("string", (None, 1), b"", [[b""]]),
        ("string", (), b"a", b"a"),
    ],
)
def test_a_body_that_is_one_bare_tensor(dtype, shape, body, expected):
    call = read(body, **BARE, signatures=echo_model(dtype, shape).signatures)
    assert call.request.inputs["x"].tolist() == expected
    assert [output.binary for output in call.wanted] == [True]


def test_a_content_type_marks_a_bare_tensor_too():
    signatures = echo_model("int8", (None,)).signatures
    call = read(b"\1", signatures=signatures, content_type=b"application/octet-stream")
    assert call.request.inputs["x"].tolist() == [1]


@pytest.mark.parametrize(
    ("signatures", "body", "text"),
    [
        (SUMS, b"1234", "is for models with one input; signature 'serving_default' has 2: 'a', 'b'"),
        (echo_model("int16", (None,)).signatures, b"123", "has 3 bytes of data; INT16 of shape [1] takes 2"),
        (echo_model("int8", (2, None, None)).signatures, b"12", "does not follow from the body"),
        (echo_model("string", (None, 2)).signatures, b"12", "does not follow from the body"),
        (echo_model("complex64", (None,)).signatures, b"12", "no datatype for complex64"),
        (model(specs(), specs(y=("int8", ())), dict).signatures, b"1", "has 0: "),
    ],
)
def test_malformed_bare_tensors_are_rejected(signatures, body, text):
    with pytest.raises(InvalidRequest) as error:
        read(body, **BARE, signatures=signatures)
    assert text in str(error.value)
