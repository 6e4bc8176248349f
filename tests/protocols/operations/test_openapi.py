from __future__ import annotations

import json
from typing import Any

import pytest

from app.codecs.json.predict_documents import decode_predict
from app.core.errors import ModelNotReady
from app.core.validation import check_inputs
from app.protocols.operations.openapi import example_body, model_paths
from app.transports.http.exchange import TIMEOUT_HEADER
from app.transports.request_priority import PRIORITY_HEADER
from tests.support.protocol_fakes import FakeModel, FakeRepository, signature_of, specs

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


def served(**signatures: Any) -> Any:
    return FakeModel("digits", 3, signatures, {})


def paths_of(model: Any, **more: Any) -> Any:
    """The paths that are documented for a repository of the model."""
    repository: Any = FakeRepository(model, **more)
    return model_paths(repository)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda each: ",".join(map(str, each.inputs.values())) or "none")
def test_the_example_works(signature: Any) -> None:
    inputs, _ = decode_predict(json.loads(json.dumps(example_body(signature))), signature)
    check_inputs(signature, inputs)
    schema = paths_of(served(serving_default=signature))
    assert schema["/v1/models/digits:predict"]["post"]["requestBody"]["content"]["application/json"]


def test_inputs_are_named_with_dtype_and_shape() -> None:
    paths = paths_of(served(serving_default=DIGITS, other=SIGNATURES[1]))
    json.dumps(paths)
    base = "/v1/models/digits"
    assert list(paths) == ["/v1/models", base, f"{base}/metadata", f"{base}:predict", f"{base}:predictStream"]
    body = paths["/v1/models/digits:predict"]["post"]["requestBody"]["content"]["application/json"]
    first, second = body["schema"]["anyOf"]
    image = first["properties"]["inputs"]["properties"]["image"]
    assert image["description"] == "float32[?,8,8]"
    assert image["items"]["maxItems"] == image["items"]["items"]["minItems"] == 8
    assert first["properties"]["instances"]["items"]["minItems"] == 8
    assert second["properties"]["instances"]["items"]["required"] == ["tokens", "text", "flag"]
    assert body["examples"]["serving_default"]["value"] == {"instances": [[[0.0] * 8] * 8]}
    assert body["examples"]["other"]["value"] == {
        "signature_name": "other",
        "instances": [{"tokens": [0], "text": "", "flag": False}],
    }


def test_lines_of_a_stream_are_shown_for_models_that_take_them() -> None:
    def lines(**signatures: Any) -> Any:
        paths = paths_of(served(**signatures))
        return paths["/v1/models/digits:predictStream"]["post"]["requestBody"]["content"]["application/x-ndjson"]

    example = lines(serving_default=DIGITS)["example"]
    assert [json.loads(line) for line in example.splitlines()] == 2 * [[[0.0] * 8] * 8]
    for signature in (CLASSIC, SIGNATURES[2]):
        assert "example" not in lines(serving_default=signature)
    assert "example" not in lines(other=DIGITS)


def test_classify_and_regress_are_shown_for_models_that_fit() -> None:
    paths = paths_of(served(serving_default=DIGITS, classic=CLASSIC))
    for action in ("classify", "regress"):
        body = paths[f"/v1/models/digits:{action}"]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"]["properties"]["signature_name"]["enum"] == ["classic"]
        assert body["example"] == {"signature_name": "classic", "examples": [{}]}


def test_no_example_is_made_up_for_a_string_that_holds_features() -> None:
    paths = paths_of(served(serving_default=DIGITS, classic=CLASSIC))
    body = paths["/v1/models/digits:predict"]["post"]["requestBody"]["content"]["application/json"]
    assert list(body["examples"]) == ["serving_default"]
    assert [each["title"] for each in body["schema"]["anyOf"]] == ["x", "x"]


def test_models_that_are_not_ready_and_models_without_signatures() -> None:
    assert list(paths_of(served(), failure=ModelNotReady("loading"))) == ["/v1/models"]
    assert list(paths_of(served())) == [
        "/v1/models",
        "/v1/models/digits",
        "/v1/models/digits/metadata",
    ]


def test_a_type_that_json_cannot_represent_is_shown_without_a_schema() -> None:
    signature = signature_of(specs(x=("complex64", (None,))), specs(y=("float32", (None,))))
    paths = paths_of(served(serving_default=signature))
    body = paths["/v1/models/digits:predict"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["anyOf"][0]["properties"]["instances"]["items"] == {"description": "complex64[?]"}


def test_every_content_type_is_shown_for_models_that_take_it() -> None:
    several = signature_of(specs(a=("float32", FREE), b=("float32", FREE)), specs(y=("float32", (None,))))
    table = signature_of(specs(x=("float32", FREE)), specs(y=("float32", (None,))))
    always = ["application/json", "application/x-npz", "application/msgpack", "application/x-protobuf"]
    for signature, more in (
        (several, []),
        (table, ["application/x-npy"]),
        (DIGITS, ["application/x-npy", "image/jpeg", "image/png"]),
    ):
        paths = paths_of(served(serving_default=signature))
        operation = paths["/v1/models/digits:predict"]["post"]
        assert set(operation["requestBody"]["content"]) == {*always, *more}
        assert next(iter(operation["requestBody"]["content"])) == "application/json"
        assert set(operation["responses"]["200"]["content"]) == {*always, "application/x-npy"}
        assert {"406", "415"} <= operation["responses"].keys()
        assert [each["name"] for each in operation["parameters"] if each["in"] == "query"] == [
            "signature_name",
            "output",
        ]


def test_query_and_headers_are_shown() -> None:
    paths = paths_of(served(serving_default=DIGITS, classic=CLASSIC))  # a fake
    computing = {path.rpartition(":")[2]: each["post"] for path, each in paths.items() if "post" in each}
    headers = {
        action: {each["name"].lower().encode() for each in operation["parameters"] if each["in"] == "header"}
        for action, operation in computing.items()
    }
    both = {TIMEOUT_HEADER, PRIORITY_HEADER}
    assert headers == {"predict": both, "classify": both, "regress": both, "predictStream": {TIMEOUT_HEADER}}
    timed = {action for action, operation in computing.items() if "headers" in operation["responses"]["200"]}
    assert timed == {"predict", "classify", "regress"}
