"""Schemas and examples of one model's bodies, for signatures of many forms."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.codecs.json.predict_documents import decode_predict
from app.core.validation import check_inputs
from app.protocols.operations.openapi.model_bodies import (
    example_body,
    example_lines,
    examples_body,
    infer_body,
    predict_body,
    predict_content,
)
from app.protocols.operations.openapi.tensorflow_paths import SCHEMAS
from app.protocols.tensorflow_serving.examples import CLASSIFY, REGRESS
from tests.support.protocol_fakes import signature_of, specs

DIGITS = signature_of(specs(image=("float32", (None, 8, 8))), specs(probabilities=("float32", (None, 10))))
FREE = (None, None)
SIGNATURES = [
    DIGITS,
    signature_of(
        specs(tokens=("int64", FREE), text=("string", (None,)), flag=("bool", (None,))), specs(y=("int8", (None,)))
    ),
    signature_of(specs(x=("float32", ())), specs(y=("float32", ()))),
    signature_of(specs(x=("float16", None)), specs(y=("float32", None))),
    signature_of({}, specs(y=("float32", ()))),
    signature_of(specs(x=("float64", (3, 2))), specs(y=("float32", (3,)))),
]
CLASSIC = signature_of(specs(inputs=("string", (None,))), specs(scores=("float32", FREE), outputs=("float32", (None,))))


def accepts(schema: dict[str, Any], value: object) -> bool:
    whole = {**schema, "components": {"schemas": SCHEMAS}}
    return bool(jsonschema.Draft202012Validator(whole).is_valid(value))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda each: ",".join(map(str, each.inputs.values())) or "none")
def test_the_example_works_and_fits_its_schema(signature: Any) -> None:
    example = json.loads(json.dumps(example_body(signature)))
    inputs, _ = decode_predict(example, signature)
    check_inputs(signature, inputs)
    assert accepts(predict_body("m", {"serving_default": signature})["schema"], example)


IMAGE = [[1.0] * 8] * 8


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [IMAGE]},
        {"instances": [{"image": IMAGE}, {"image": IMAGE}]},
        {"inputs": [IMAGE]},
        {"inputs": {"image": [IMAGE]}},
        {"signature_name": "serving_default", "instances": [IMAGE]},
        {"signature_name": "", "instances": [IMAGE]},
        {"signature_name": "classic", "instances": ["", {"b64": "AA=="}]},
    ],
)
def test_every_form_that_is_read_fits_the_schema(body: dict[str, Any]) -> None:
    signatures = {"serving_default": DIGITS, "classic": CLASSIC}
    decode_predict(body, signatures[body.get("signature_name") or "serving_default"])
    assert accepts(predict_body("digits", signatures)["schema"], body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"instances": []},
        {"instances": [[[1.0] * 7] * 8]},
        {"instances": [{"picture": IMAGE}]},
        {"signature_name": "other", "instances": [IMAGE]},
        {"inputs": {"picture": [IMAGE]}},
    ],
)
def test_what_is_not_read_does_not_fit(body: dict[str, Any]) -> None:
    assert not accepts(predict_body("digits", {"serving_default": DIGITS})["schema"], body)


def test_inputs_are_named_with_dtype_and_shape() -> None:
    body = predict_body("digits", {"serving_default": DIGITS, "other": SIGNATURES[1]})
    rows, columns, other, _ = body["schema"]["anyOf"]
    assert [rows["title"], columns["title"]] == ["digits serving_default rows", "digits serving_default columns"]
    bare, named = columns["properties"]["inputs"]["anyOf"]
    assert named["properties"]["image"] == bare
    assert bare["description"] == "float32[?,8,8]"
    assert bare["items"]["maxItems"] == bare["items"]["items"]["minItems"] == 8
    assert other["required"] == ["signature_name", "instances"]
    assert other["properties"]["instances"]["items"]["required"] == ["tokens", "text", "flag"]
    assert body["examples"]["serving_default"]["value"] == {"instances": [[[0.0] * 8] * 8]}
    assert body["examples"]["other"]["value"] == {
        "signature_name": "other",
        "instances": [{"tokens": [0], "text": "", "flag": False}],
    }


def test_lines_of_a_stream_are_shown_for_models_that_take_them() -> None:
    lines = example_lines({"serving_default": DIGITS})
    assert [json.loads(line) for line in lines.splitlines()] == 2 * [[[0.0] * 8] * 8]
    for signature in (CLASSIC, SIGNATURES[2]):
        assert example_lines({"serving_default": signature}) == ""
    assert example_lines({"other": DIGITS}) == ""


@pytest.mark.parametrize("method", [CLASSIFY, REGRESS])
def test_classify_names_the_signature_unless_it_is_the_default(method: Any) -> None:
    assert examples_body(method, {"serving_default": DIGITS}) is None
    body = examples_body(method, {"serving_default": DIGITS, "classic": CLASSIC})
    assert body is not None
    assert not accepts(body["schema"], {"examples": [{}]})
    assert not accepts(body["schema"], {"signature_name": "serving_default", "examples": [{}]})
    assert accepts(body["schema"], {"signature_name": "classic", "context": {"a": 1}, "examples": [{"b": [1.5]}]})
    default = examples_body(method, {"serving_default": CLASSIC})
    assert default is not None
    assert accepts(default["schema"], {"examples": [{}]})


def test_no_example_is_made_up_for_a_string_that_holds_features() -> None:
    signatures = {"serving_default": DIGITS, "classic": CLASSIC}
    assert list(predict_body("digits", signatures)["examples"]) == ["serving_default"]
    assert list(infer_body(signatures)["examples"]) == ["serving_default"]


def test_infer_has_an_example_for_each_signature_that_the_protocol_can_express() -> None:
    complex_ = signature_of(specs(x=("complex64", (None,))), specs(y=("float32", (None,))))
    examples = infer_body({"serving_default": DIGITS, "other": SIGNATURES[2], "complex": complex_})["examples"]
    assert examples["serving_default"]["value"] == {
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.0] * 64}]
    }
    assert examples["other"]["value"] == {
        "parameters": {"signature_name": "other"},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [0.0]}],
    }
    assert examples.keys() == {"serving_default", "other"}


def test_a_type_that_json_cannot_represent_is_shown_without_a_schema() -> None:
    signature = signature_of(specs(x=("complex64", (None,))), specs(y=("float32", (None,))))
    rows, _ = predict_body("m", {"serving_default": signature})["schema"]["anyOf"]
    assert rows["properties"]["instances"]["items"]["anyOf"][0] == {"description": "complex64[?]"}


def test_every_content_type_is_shown_for_models_that_take_it() -> None:
    several = signature_of(specs(a=("float32", FREE), b=("float32", FREE)), specs(y=("float32", (None,))))
    table = signature_of(specs(x=("float32", FREE)), specs(y=("float32", (None,))))
    always = {
        *("application/json", "application/x-npz"),
        *("application/msgpack", "application/x-msgpack", "application/vnd.msgpack"),
        *("application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"),
    }
    for signature, more in (
        (several, set()),
        (table, {"application/x-npy"}),
        (DIGITS, {"application/x-npy", "image/jpeg", "image/png"}),
    ):
        content = predict_content("m", {"serving_default": signature})
        assert content.keys() == always | more
        assert next(iter(content)) == "application/json"
