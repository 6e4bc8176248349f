from __future__ import annotations

from typing import Any

import pytest

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.protocols.tensorflow_serving.rest_examples import serialize_example


def parsed(features: dict[str, Any]) -> dict[str, tuple[str, list[Any]]]:
    example = message_class("tensorflow.Example").FromString(serialize_example(features))
    lists = {name: (each.WhichOneof("kind"), each) for name, each in example.features.feature.items()}
    return {name: (kind, list(getattr(each, kind).value) if kind else []) for name, (kind, each) in lists.items()}


@pytest.mark.parametrize(
    ("value", "kind", "values"),
    [
        (1, "int64_list", [1]),
        ([1, -(2**63), 2**63 - 1], "int64_list", [1, -(2**63), 2**63 - 1]),
        ([True, False, 7], "int64_list", [1, 0, 7]),
        (1.5, "float_list", [1.5]),
        ([0.5, float("inf")], "float_list", [0.5, float("inf")]),
        ("é", "bytes_list", ["é".encode()]),
        (["a", {"b64": "/w=="}], "bytes_list", [b"a", b"\xff"]),
        ([], None, []),
    ],
)
def test_kinds(value: Any, kind: str, values: list[Any]) -> None:
    assert parsed({"f": value}) == {"f": (kind, values)}


def test_the_bytes_are_tensorflows() -> None:
    # features { feature { key: "f" value { int64_list { value: 1 value: 2 } } } }, packed
    assert serialize_example({"f": [1, 2]}) == bytes.fromhex("0a0d0a0b0a0166120" + "61a040a020102")
    assert serialize_example({}) == b""


def test_equal_features_give_equal_bytes() -> None:
    assert serialize_example({"a": 1, "b": "x"}) == serialize_example({"b": "x", "a": 1})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "has element with unexpected JSON value: null"),
        ([[1]], "has element with unexpected JSON value: [1]"),
        ({"x": 1}, 'has element with unexpected JSON value: {"x": 1}'),
        ([1, "a"], "has elements of different types: bytes, int64; expecting one"),
        ([1, 2.5], "has elements of different types: float, int64; expecting one"),
        (2**63, "has element 9223372036854775808 out of the range of int64"),
        (1e39, "has element 1e+39 out of the range of float"),
        ({"b64": "*"}, "Unable to base64 decode"),
        ("\ud800", 'JSON Value: "\\ud800" has half of a surrogate pair; send bytes that are not text as base64'),
    ],
)
def test_the_feature_at_fault_is_named(value: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        serialize_example({"good": 1, "f": value})
    assert str(caught.value) == f'Feature: "f" {text}'


def test_a_name_that_is_not_valid_unicode_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="has a name that is not valid Unicode"):
        serialize_example({"\ud800": 1})


def test_an_unknown_message() -> None:
    with pytest.raises(KeyError):
        message_class("tensorflow.Nothing")
