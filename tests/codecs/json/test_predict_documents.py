from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.predict_documents import (
    check_outputs_writable,
    decode_predict,
    decode_row_groups,
    encode_each_request,
    encode_predict,
    signature_name,
)
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array
from tests.support.protocol_fakes import signature_of, specs

ONE = signature_of(specs(x=("float32", (None, 2))), specs(y=("float32", (None,))))
TEXT = signature_of(specs(x=("string", (None,))), specs(y=("string", (None,))))
TWO = signature_of(specs(b=("int32", (None,)), a=("float32", (None, 2))), specs(y=("float32", (None,))))
SCALARS = signature_of(specs(a=("float32", ()), b=("string", ())), specs(y=("float32", ())))
NONE = signature_of({}, specs(y=("float32", ())))


def decoded(document: dict[str, Any], signature: Any) -> tuple[dict[str, Any], bool]:
    inputs, by_row = decode_predict(document, signature)
    for name, array in inputs.items():
        assert array.dtype == signature.inputs[name].dtype
    return {name: array.tolist() for name, array in inputs.items()}, by_row


@pytest.mark.parametrize(
    ("signature", "document", "inputs"),
    [
        (ONE, {"instances": [[1, 2], [3, 4]]}, {"x": [[1.0, 2.0], [3.0, 4.0]]}),
        (ONE, {"instances": [{"x": [1, 2]}]}, {"x": [[1.0, 2.0]]}),
        (ONE, {"instances": [1, 2]}, {"x": [1.0, 2.0]}),
        (TWO, {"instances": [{"a": [1, 2], "b": 3}, {"b": 6, "a": [4, 5]}]}, {"a": [[1, 2], [4, 5]], "b": [3, 6]}),
        (TEXT, {"instances": ["a", {"b64": "/w=="}]}, {"x": [b"a", b"\xff"]}),
        (TEXT, {"instances": [{"b64": "/w=="}, "a"]}, {"x": [b"\xff", b"a"]}),
        (TEXT, {"instances": [{"x": {"b64": "/w=="}}]}, {"x": [b"\xff"]}),
        (NONE, {"instances": [{}]}, {}),
    ],
)
def test_rows(signature: Any, document: dict[str, Any], inputs: dict[str, Any]) -> None:
    assert decoded(document, signature) == (inputs, True)


@pytest.mark.parametrize(
    ("signature", "document", "inputs"),
    [
        (ONE, {"inputs": [[1, 2]]}, {"x": [[1.0, 2.0]]}),
        (ONE, {"inputs": {"x": [[1, 2]]}}, {"x": [[1.0, 2.0]]}),
        (ONE, {"inputs": {"x": [[1, 2]], "extra": "ignored"}}, {"x": [[1.0, 2.0]]}),
        (ONE, {"inputs": []}, {"x": []}),
        (ONE, {"inputs": 5}, {"x": 5.0}),
        (TEXT, {"inputs": {"b64": "/w=="}}, {"x": b"\xff"}),
        (TEXT, {"inputs": ["a"]}, {"x": [b"a"]}),
        (TWO, {"inputs": {"a": [[1, 2]], "b": [3]}}, {"a": [[1.0, 2.0]], "b": [3]}),
        (SCALARS, {"inputs": {"a": 1, "b": "x"}}, {"a": 1.0, "b": b"x"}),
        (NONE, {"inputs": {}}, {}),
    ],
)
def test_columns(signature: Any, document: dict[str, Any], inputs: dict[str, Any]) -> None:
    assert decoded(document, signature) == (inputs, False)


@pytest.mark.parametrize(
    ("dims", "shape"), [((None, 2), (0, 2)), ((None,), (0,)), ((None, None), (0,)), ((3, 2), (0,)), (None, (0,))]
)
def test_no_rows_have_the_length_that_the_signature_says(dims: Any, shape: tuple[int, ...]) -> None:
    signature = signature_of(specs(x=("float32", dims)), specs(y=("float32", (None,))))
    inputs, _ = decode_predict({"inputs": {"x": []}}, signature)
    assert inputs["x"].shape == shape


@pytest.mark.parametrize(
    ("signature", "document", "text"),
    [
        (ONE, {}, "Missing 'inputs' or 'instances' key"),
        (ONE, {"instances": [], "inputs": []}, "expecting only one of 'inputs' or 'instances' keys to exist"),
        (ONE, {"instances": {}}, "Expecting 'instances' to be a list/array"),
        (ONE, {"instances": None}, "Expecting 'instances' to be a list/array"),
        (ONE, {"instances": []}, "JSON Value: {\"instances\": []} No values in 'instances' array"),
        (ONE, {"instances": [[1, "x"]]}, "Failed to process element: 0 of 'instances' list."),
        (TWO, {"instances": [{"a": [1, 2], "b": 1.5}]}, "Failed to process element: 0 key: b of 'instances' list."),
        (TWO, {"instances": [{"a": [1, 2]}]}, "keys must be equal to: a,b"),
        (
            TWO,
            {"instances": [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]},
            "element: 1 of 'instances' list. JSON object",
        ),
        (TWO, {"instances": [[1, 2]]}, "expecting list of objects as multiple input tensors required: a,b"),
        (TWO, {"instances": [{"a": 1, "b": 2}, 3]}, "Expecting object but got list at item 1 of input list"),
        (TEXT, {"instances": [{"x": "a"}, {"b64": "YQ=="}]}, "Expecting object but got list at item 1 of input list"),
        (TEXT, {"instances": ["a", {"x": "a"}]}, "Expecting value/list but got object at item 1 of input list"),
        (TWO, {"inputs": [1]}, "expecting an object as multiple input tensors required: a,b"),
        (TWO, {"inputs": {"a": [[1, 2]]}}, "Missing named input: b in 'inputs' object."),
        (
            TWO,
            {"inputs": {"a": [], "b": [True]}},
            "Input 'b': JSON Value: true Type: True is not of expected type: int32",
        ),
        (ONE, {"inputs": {"b64": "YQ=="}}, 'Input \'x\': JSON Value: {"b64": "YQ=="} Type: Object is not of'),
        (ONE, {"inputs": [[1, 2], [3]]}, "Input 'x': Encountered list at unexpected size: 1"),
        (NONE, {"instances": [1]}, "expecting list of objects"),
        (NONE, {"inputs": []}, "expecting an object"),
    ],
)
def test_malformed_requests_are_rejected(signature: Any, document: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_predict(document, signature)
    assert text in str(caught.value)


def test_types_that_json_cannot_represent_are_rejected_before_the_model_runs() -> None:
    complex_in = signature_of(specs(x=("complex64", (None,))), specs(y=("float32", (None,))))
    complex_out = signature_of(specs(x=("float32", (None,))), specs(y=("complex64", (None,))))
    with pytest.raises(Unsupported, match=r"^Conversion of JSON Value: 1 to type: complex64"):
        decode_predict({"instances": [1]}, complex_in)
    with pytest.raises(Unsupported, match="Input 'x': Conversion of JSON Value: 1 to type: complex64"):
        decode_predict({"inputs": 1}, complex_in)
    with pytest.raises(Unsupported, match="Failed to write JSON value for tensor type: DT_COMPLEX64"):
        check_outputs_writable(complex_out.outputs)


def test_signature_names() -> None:
    assert signature_name({}) == signature_name({"signature_name": ""}) == "serving_default"
    assert signature_name({"signature_name": "other"}) == "other"
    for wrong in (None, 1, ["a"]):
        with pytest.raises(InvalidRequest, match="'signature_name' key must be a string value"):
            signature_name({"signature_name": wrong})


A = np.array([1.0, np.nan], np.float32)
B = np.array([[1, 2], [3, 4]], np.int64)
S = np.array([b"x", b"y"], STRING)


@pytest.mark.parametrize(
    ("outputs", "by_row", "text"),
    [
        ({"b": B}, True, '{"predictions":[[1,2],[3,4]]}'),
        ({"a": A}, True, '{"predictions":[1.0,NaN]}'),
        ({"s_bytes": S}, True, '{"predictions":[{"b64":"eA=="},{"b64":"eQ=="}]}'),
        ({"a": A, "b": B}, True, '{"predictions":[{"a":1.0,"b":[1,2]},{"a":NaN,"b":[3,4]}]}'),
        ({"b": B, "s": S}, True, '{"predictions":[{"b":[1,2],"s":"x"},{"b":[3,4],"s":"y"}]}'),
        ({"b": B}, False, '{"outputs":[[1,2],[3,4]]}'),
        ({"a": A, "b": B}, False, '{"outputs":{"a":[1.0,NaN],"b":[[1,2],[3,4]]}}'),
        ({"a": np.array(0.5, np.float32)}, False, '{"outputs":0.5}'),
        ({}, False, '{"outputs":{}}'),
        ({}, True, '{"predictions":[]}'),
        ({"b": B[:0]}, True, '{"predictions":[]}'),
    ],
)
def test_replies(outputs: dict[str, Array], by_row: bool, text: str) -> None:
    assert encode_predict(outputs, by_row).decode() == text


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"a": A, "b": B[:1]}, "Tensor name: b has inconsistent batch size: 1 expecting: 2"),
        ({"a": A, "c": np.array(1.0)}, "Tensor name: c has inconsistent batch size: it is a scalar"),
        ({"c": np.array(1.0)}, "Tensor name: c has inconsistent batch size: it is a scalar"),
    ],
)
def test_outputs_without_equal_rows_are_rejected(outputs: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        encode_predict(outputs, by_row=True)
    assert json.loads(encode_predict(outputs, by_row=False))


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=2)), min_size=1)
)
def test_rows_and_columns_are_the_same_request(instances: list[tuple[int, list[float]]]) -> None:
    by_row, _ = decode_predict({"instances": [{"a": a, "b": b} for b, a in instances]}, TWO)
    columns = {"a": [a for _, a in instances], "b": [b for b, _ in instances]}
    by_column, _ = decode_predict({"inputs": columns}, TWO)
    for name in TWO.inputs:
        np.testing.assert_array_equal(by_row[name], by_column[name])
    answers = json.loads(encode_predict(by_row, by_row=True))["predictions"]
    read_back = json.loads(encode_predict(by_column, by_row=False))["outputs"]
    assert {name: [answer[name] for answer in answers] for name in read_back} == read_back


@given(st.data())
def test_replies_that_are_written_at_once_are_those_written_one_by_one(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    inner = data.draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "int8", "int64", "uint64", "bool", "object"]))
    numbers = st.sampled_from([0.0, 1.0, -1.5, 1e30, 3.1, float("nan"), float("inf"), -float("inf")])
    values = data.draw(st.lists(numbers, min_size=8, max_size=8))
    array = np.resize(np.array(values), (sum(rows), *inner))
    if dtype == "object":
        array = np.resize(np.array([b"a],[b", b'"', b"null", b"]"], object), array.shape)
    elif not dtype.startswith("float"):
        array = np.nan_to_num(array, posinf=1, neginf=0).clip(0, 99).astype(dtype)
    else:
        with np.errstate(over="ignore"):
            array = array.astype(dtype)
    written = encode_each_request({"y": array}, rows)
    ends = np.cumsum(rows)
    one_by_one = [
        encode_predict({"y": array[end - count : end]}, by_row=True) for end, count in zip(ends, rows, strict=True)
    ]
    assert written is None or written == one_by_one
    if array.size and dtype != "object":
        assert (written is None) == (0 in rows)


@pytest.mark.parametrize(
    ("outputs", "rows"),
    [
        ({"y": np.float32(1.0).reshape(())}, [1]),
        ({"y": np.zeros((3, 2), np.float32)}, [1, 1]),
        ({"y": np.zeros((2, 2), np.float32), "z": np.zeros((2, 2), np.float32)}, [1, 1]),
        ({}, [1]),
    ],
)
def test_replies_are_not_cut_where_rows_do_not_say_where(outputs: dict[str, Array], rows: list[int]) -> None:
    assert encode_each_request(outputs, rows) is None


@pytest.mark.parametrize("document", [{"instances": [[1, 2], [3]]}, {"inputs": [[1, 2], [3]]}])
def test_bare_rows_of_unequal_length_are_not_those_of_two_inputs(document: dict[str, Any]) -> None:
    two = signature_of(specs(a=("int32", (None, None)), b=("int32", (None, None))), specs(y=("int32", (None,))))
    with pytest.raises(InvalidRequest, match="as multiple input tensors required: a,b"):
        decode_row_groups(document, two)


def test_unequal_rows_of_a_strict_signature_have_known_names_alone() -> None:
    strict = replace(signature_of(specs(a=("int32", (None, None))), specs(y=("int32", (None,)))), strict_names=True)
    with pytest.raises(InvalidRequest, match="Unknown named input: c"):
        decode_row_groups({"inputs": {"a": [[1, 2], [3]], "c": [1, 2]}}, strict)
