from __future__ import annotations

import json
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.writing import dumps
from app.core.errors import InvalidRequest
from app.core.inference import TensorSpec
from app.protocols.open_inference.datatypes import DATATYPES
from app.protocols.open_inference.documents.json_documents import (
    decode_data,
    encode_data,
    list_field,
    named_objects,
    parameters_field,
    parse,
    parse_optional,
    text_field,
)
from tests.support.open_inference_world import BF16, values_of


def spec(dtype):
    return TensorSpec("x", np.dtype(dtype), None)


def test_documents():
    assert parse(b'{"a": 1}') == {"a": 1}
    assert parse(memoryview(b'{"b": [-Infinity]}')) == {"b": [-math.inf]}
    assert parse_optional(b" ") == {}
    assert parse_optional(b'{"a": {}}') == {"a": {}}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"1", b"{", b'{"a": 1} x', b'{"a": NaN} x', b'{"a": 1e999}', b'{"a": -1e999, "b": NaN}',
        b"\xff", b'{"a": "\xff"}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 5000 + b', "b": NaN}',
    ],
)  # fmt: skip
def test_what_is_not_a_json_object_is_rejected(body):
    with pytest.raises(InvalidRequest) as error:
        parse(body)
    assert len(str(error.value)) < 400


@given(st.binary(max_size=40))
def test_any_bytes_are_a_document_or_rejected(body):
    with suppress(InvalidRequest):
        assert type(parse(body)) is dict


def test_fields():
    assert text_field({}, "id") == ""
    assert text_field({"id": "a"}, "id") == "a"
    assert list_field({}, "l") == []
    assert parameters_field({"parameters": {"a": 1}}) == {"a": 1}
    assert named_objects({"inputs": [{"name": "a"}]}, "inputs") == [("a", {"name": "a"})]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: text_field({"id": 1}, "id"), "The request: 'id' must be a string"),
        (lambda: list_field({"shape": {}}, "shape", "Input 'x'"), "Input 'x': 'shape' must be a list"),
        (lambda: parameters_field({"parameters": []}), "'parameters' must be an object"),
        (lambda: named_objects({"inputs": {}}, "inputs"), "'inputs' must be a list"),
        (lambda: named_objects({"inputs": [1]}, "inputs"), "Element 0 of 'inputs' must be an object"),
        (lambda: named_objects({"outputs": [{"name": "a"}, {"name": 1}]}, "outputs"), "Element 1 of 'outputs'"),
    ],
)
def test_fields_of_the_wrong_kind_are_named(read, text):
    with pytest.raises(InvalidRequest) as error:
        read()
    assert text in str(error.value)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back(datatype):
    array = values_of(datatype)
    data = json.loads(dumps(encode_data(array)))
    assert not any(isinstance(each, list) for each in data)
    got = decode_data(data, spec(array.dtype), array.shape)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tolist() == array.tolist()


def test_values_beyond_plain_json():
    floats = np.array([[math.inf, -math.inf], [0.0, 1.0]], np.float32)
    assert dumps(encode_data(floats)) == b"[Infinity,-Infinity,0.0,1.0]"
    assert encode_data(np.array([b"\xff", "é".encode()], object)) == [{"b64": "/w=="}, "é"]
    assert decode_data([{"b64": "/w=="}, "é"], spec(object), (2,)).tolist() == [b"\xff", "é".encode()]
    assert decode_data([1.5], spec(BF16), (1,)).dtype == BF16


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([1, 2, 3, 4], (2, 2)),
        ([[1, 2], [3, 4]], (2, 2)),
        (5, ()),
        ([5], ()),
        ([], (0, 4)),
        ([[], []], (2, 0)),
        ([], (2, 0)),
        ([[[1], [2]]], (1, 2, 1)),
    ],
)
def test_flat_and_nested(data, shape):
    array = decode_data(data, spec("int32"), shape)
    assert array.shape == shape
    assert array.reshape(-1).tolist() == np.array(data, np.int32).reshape(-1).tolist()


@pytest.mark.parametrize(
    ("data", "shape", "text"),
    [
        ([1, 2, 3], (2, 2), "has 3 elements in 'data'; shape [2, 2] takes 4"),
        ([], (2**40,), "has 0 elements"),
        ([[1, 2], [3, 4]], (4,), "has 'data' of shape [2, 2]; 'shape' is [4]"),
        ([[1, 2], [3]], (2, 2), "unexpected size"),
        ([1, "2"], (2,), "not of expected type: int32"),
        ([1, 2.5], (2,), "not of expected type: int32"),
        ([2**31], (1,), "out of the range"),
        (None, (1,), "not of expected type"),
        ({}, (1,), "not of expected type"),
    ],
)
def test_data_that_does_not_fit_is_named(data, shape, text):
    with pytest.raises(InvalidRequest) as error:
        decode_data(data, spec("int32"), shape)
    assert "Input 'x'" in str(error.value)
    assert text in str(error.value)
