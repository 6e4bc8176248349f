from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature
from app.protocols.tensorflow_serving import examples
from app.protocols.tensorflow_serving.rest_examples import ExamplesCall, read_examples, serialize_example
from tests.support.protocol_fakes import signature_of, specs

INPUT = specs(inputs=("string", (None,)))
CLASSIFY = signature_of(
    INPUT, specs(classes=("string", (None, 2)), scores=("float32", (None, 2)), z=("int32", (None,)))
)
REGRESS = signature_of(INPUT, specs(outputs=("float32", (None, 1))))
EXAMPLES = {"examples": [{"f": 1}, {"f": 2}]}


def classify(document: Any, signature: ModelSignature) -> ExamplesCall:
    return read_examples(document, examples.CLASSIFY, signature)


def regress(document: Any, signature: ModelSignature) -> ExamplesCall:
    return read_examples(document, examples.REGRESS, signature)


def strings(*rows: Any) -> Array:
    return np.array(rows, STRING)


def floats(*rows: Any) -> Array:
    return np.array(rows, np.float32)


def as_read(example: bytes) -> Any:
    return message_class("tensorflow.Example").FromString(example)


def test_a_context_is_not_repeated_into_far_more_than_the_request() -> None:
    """10,000 empty examples and a context of 100,000 bytes would take 1 GB."""
    with pytest.raises(InvalidRequest, match="100023 bytes goes to each of 10000 examples"):
        classify({"context": {"c": "x" * 100_000}, "examples": [{}] * 10_000}, CLASSIFY)
    classify({"context": {"c": "x" * 100}, "examples": [{}] * 5000}, CLASSIFY)


def test_examples_get_the_context_that_they_lack() -> None:
    document = {"context": {"c": "all", "f": 0}, "examples": [{"f": 1.5}, {}]}
    call = classify(document, CLASSIFY)
    expected = [{"c": "all", "f": 1.5}, {"c": "all", "f": 0}]
    assert [as_read(each) for each in call.inputs["inputs"]] == [as_read(serialize_example(each)) for each in expected]
    assert call.inputs["inputs"].dtype == STRING


def test_only_what_the_reply_needs_is_computed() -> None:
    assert classify(EXAMPLES, CLASSIFY).outputs == ("classes", "scores")
    assert classify(EXAMPLES, signature_of(INPUT, specs(scores=("float32", (None, 2))))).outputs == ("scores",)
    assert regress(EXAMPLES, REGRESS).outputs == ("outputs",)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (
            {"classes": strings([b"a", b"b"], [b"c", b"d"]), "scores": floats([0.1, 0.9], [1, np.nan])},
            '{"results":[[["a",0.1],["b",0.9]],[["c",1.0],["d",NaN]]]}',
        ),
        ({"scores": floats([0.1], [0.2])}, '{"results":[[["",0.1]],[["",0.2]]]}'),
        ({"classes": strings([b"a"], [b"b"])}, '{"results":[[["a",0.0]],[["b",0.0]]]}'),
        ({"scores": floats([0.5], [0.25]).astype(ml_dtypes.bfloat16)}, '{"results":[[["",0.5]],[["",0.25]]]}'),
    ],
)
def test_classify_replies(outputs: dict[str, Array], text: str) -> None:
    assert classify(EXAMPLES, CLASSIFY).encode(outputs).decode() == text


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (floats(0.1, 0.2), '{"results":[0.1,0.2]}'),
        (floats([0.1], [np.inf]), '{"results":[0.1,Infinity]}'),
        (floats([1], [2]).astype(ml_dtypes.bfloat16), '{"results":[1.0,2.0]}'),
    ],
)
def test_regress_replies(array: Array, text: str) -> None:
    assert regress(EXAMPLES, REGRESS).encode({"outputs": array}).decode() == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "JSON Value: {} Expecting 'examples' value to be a list/array"),
        ({"examples": {}}, "Expecting 'examples' value to be a list/array"),
        ({"examples": []}, "'examples' value is an empty array"),
        ({"examples": [{}, 1]}, "Example must be JSON object but element 1 of 'examples' is 1"),
        ({"examples": [{}], "context": []}, "Example must be JSON object but context is []"),
        ({"examples": [{"f": None}]}, 'Feature: "f" has element with unexpected JSON value: null'),
    ],
)
def test_bodies_that_do_not_fit(document: dict[str, Any], text: str) -> None:
    for read, signature in ((classify, CLASSIFY), (regress, REGRESS)):
        with pytest.raises(InvalidRequest) as caught:
            read(document, signature)
        assert text in str(caught.value)


def test_signatures_that_do_not_fit() -> None:
    two = signature_of(specs(inputs=("string", (None,)), more=("string", (None,))), REGRESS.outputs)
    number = signature_of(specs(inputs=("float32", (None,))), REGRESS.outputs)
    for signature in (two, number, signature_of({}, REGRESS.outputs)):
        with pytest.raises(InvalidRequest, match="cannot regress: expecting the one input 'inputs' of type string"):
            regress(EXAMPLES, signature)
    with pytest.raises(
        InvalidRequest, match=r"cannot regress: expecting output 'outputs', but it has 'classes' string"
    ):
        regress(EXAMPLES, CLASSIFY)
    with pytest.raises(InvalidRequest, match=r"expecting output 'classes' or 'scores', but it has 'outputs' float32"):
        classify(EXAMPLES, REGRESS)


@pytest.mark.parametrize(
    "outputs",
    [
        {"scores": floats(0.1, 0.2)},
        {"scores": floats([0.1])},
        {"scores": strings([b"a"], [b"b"])},
        {"classes": floats([0.1], [0.2])},
        {"classes": strings([b"a"], [b"b"]), "scores": floats([0.1, 0.2], [0.1, 0.2])},
    ],
)
def test_class_outputs_of_the_wrong_shape_are_rejected(outputs: dict[str, Array]) -> None:
    with pytest.raises(InvalidRequest, match=r"inconsistent batch size|one column a class"):
        classify(EXAMPLES, CLASSIFY).encode(outputs)


@pytest.mark.parametrize("array", [floats(1), floats([1, 2], [3, 4]), strings(b"a", b"b"), np.float32(1)])
def test_regression_outputs_of_the_wrong_shape_are_rejected(array: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"outputs has inconsistent batch size or type: .* expecting: \[2\] or \[2,1\]"
    ):
        regress(EXAMPLES, REGRESS).encode({"outputs": np.asarray(array)})
