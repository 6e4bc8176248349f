"""TensorFlow Serving's REST API in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from app.codecs.format_registry import BODY_FORMATS
from app.core.interfaces import ServedModel
from app.core.versions import VersionState
from app.protocols.operations.openapi.model_bodies import (
    example_lines,
    examples_body,
    examples_schema,
    media_types,
    predict_content,
)
from app.protocols.operations.openapi.parts import (
    BINARY,
    COMPUTING,
    JSON,
    PRIORITY,
    READING,
    TEXT,
    TIMING,
    VERSION,
    Document,
    array,
    in_json,
    model_parameter,
    operation,
    parameter,
    record,
    ref,
    timeout,
)
from app.protocols.streams.predict_stream import BYTES
from app.protocols.streams.predict_stream import MEDIA_TYPE as LINES
from app.protocols.tensorflow_serving.examples import CLASSIFY, REGRESS
from app.transports.rendered_pages import Pieces

_TAG = "TensorFlow Serving"
#: An extension of operations: all Content-Types of the body. Generators of clients know few types and warn of others,
#: so `requestBody` lists JSON and bytes alone.
REQUEST_TYPES = "x-request-types"

_AS_LINES = ", from lines as they arrive"

_STATUS_FIELDS: Document = {
    "version": TEXT,
    "state": {"type": "string", "enum": [state.value for state in VersionState]},
    "status": record({"error_code": TEXT, "error_message": TEXT}),
}
_STATUS = record(_STATUS_FIELDS)
_LISTED = record({**_STATUS_FIELDS, "note": {**TEXT, "description": "How it was loaded, if unusual"}}, ("note",))

SCHEMAS: Mapping[str, Document] = {
    "Base64": record({"b64": TEXT}, description="Any bytes, in base64"),
    "PredictRows": record({"signature_name": TEXT, "instances": array(minItems=1)}, ("signature_name",)),
    "PredictColumns": record({"signature_name": TEXT, "inputs": {}}, ("signature_name",)),
    "PredictExamples": examples_schema(TEXT),
    "PredictedRows": record({"predictions": array()}, description="An element for each row of `instances`"),
    "PredictedColumns": record({"outputs": {}}, description="Whole tensors, for `inputs`"),
    "Classes": record({"results": array(array(array()))}, description="For each example pairs of label and score"),
    "Regressions": record({"results": array()}, description="For each example a number"),
    "ModelVersions": record({"model_version_status": array(_STATUS)}),
    "Models": record({"models": array(record({"name": TEXT, "model_version_status": array(_LISTED)}))}),
    "ModelSignatures": record(
        {
            "model_spec": record({"name": TEXT, "signature_name": TEXT, "version": TEXT}),
            "metadata": record({"signature_def": record({"signature_def": {"type": "object"}})}),
        }
    ),
}

#: The three ways to name a version: the newest one, a number, or a label.
_PLACES: tuple[tuple[str, str, list[Document]], ...] = (
    ("", "", []),
    ("/versions/{version}", "_version", [VERSION]),
    ("/labels/{label}", "_label", [parameter("path", "label", TEXT, "A label of the configuration", example="stable")]),
)

_QUERY = [
    parameter("query", "signature_name", TEXT, "The signature, if the body does not name one"),
    parameter("query", "output", array(TEXT), "The wanted outputs; all if none is named"),
]

_ANY_DOCUMENT = {"anyOf": [ref("PredictRows"), ref("PredictColumns")]}
_ANSWER = in_json({"anyOf": [ref("PredictedRows"), ref("PredictedColumns")]})

#: Every Content-Type of predict; no model accepts all of them.
_ANY_BODY = {
    JSON: {"schema": _ANY_DOCUMENT},
    **{name: BINARY for name in media_types(BODY_FORMATS) if name != JSON},
}

#: Replies of predict: JSON, and the other formats that Accept may ask for.
_REPLIES = {
    **_ANSWER,
    **{name: BINARY for name in media_types(each for each in BODY_FORMATS if each.reply) if name != JSON},
}


def tensorflow_paths(ready: list[ServedModel], default: ServedModel | None) -> Pieces[Document]:
    """All paths below /v1, and /predict; the calls once more for each ready model, under the model's name."""
    paths: Document = {}
    for each in ready:
        paths |= _calls_of(each)
        yield
    model_body = _ANY_BODY if default is None else predict_content(default.name, default.signatures)
    paths["/predict"] = {"post": _predict("predict_default", "Predict with the default model", _TAG, model_body)}
    paths["/v1/models"] = {
        "get": operation(
            "models",
            "The models and the state of their versions",
            _TAG,
            replies=in_json(ref("Models")),
            errors=READING,
        )
    }
    model = model_parameter([each.name for each in ready])
    for place, suffix, parameters in _PLACES:
        paths |= _of_place(f"/v1/models/{{model}}{place}", suffix, [model, *parameters])
    return paths


def _of_place(base: str, suffix: str, parameters: list[Document]) -> Document:
    version = {"": "the newest version", "_version": "one version", "_label": "the version of a label"}[suffix]
    whose = f"{version} of a model" if suffix else "a model"

    def read(name: str, summary: str, schema: str) -> Document:
        replies = in_json(ref(schema))
        get = operation(
            name + suffix, f"{summary} of {whose}", _TAG, replies=replies, errors=READING, parameters=parameters
        )
        return {"get": get}

    def call(build: Any, name: str, *more: Any, verb: str = "", how: str = "") -> Document:
        post = build(name + suffix, f"{verb or name.capitalize()} with {version} of a model{how}", _TAG, *more)
        return {"post": {**post, "parameters": [*parameters, *post["parameters"]]}}

    examples = {"schema": ref("PredictExamples")}
    return {
        base: read("status", "State", "ModelVersions"),
        f"{base}/metadata": read("metadata", "Signatures", "ModelSignatures"),
        f"{base}:predict": call(_predict, "predict", _ANY_BODY),
        f"{base}:predictStream": call(_stream, "predictStream", "", verb="Predict", how=_AS_LINES),
        f"{base}:classify": call(_results, "classify", examples, "Classes"),
        f"{base}:regress": call(_results, "regress", examples, "Regressions"),
    }


def _calls_of(model: ServedModel) -> Document:
    """The paths of one model, with the schemas of its signatures."""
    name, signatures = model.name, model.signatures
    base = f"/v1/models/{quote(name, safe='')}"
    whom = f"{name}, version {model.version}"
    paths: Document = {}
    if signatures:
        content = predict_content(name, signatures)
        paths[f"{base}:predict"] = {"post": _predict(f"predict {name}", f"Predict with {whom}", name, content)}
        summary = f"Predict with {whom}{_AS_LINES}"
        stream = _stream(f"predictStream {name}", summary, name, example_lines(signatures))
        paths[f"{base}:predictStream"] = {"post": stream}
    for method, reply in ((CLASSIFY, "Classes"), (REGRESS, "Regressions")):
        body = examples_body(method, signatures)
        if body is not None:
            summary = f"{method.name.capitalize()} with {whom}"
            paths[f"{base}:{method.name}"] = {"post": _results(f"{method.name} {name}", summary, name, body, reply)}
    return paths


def _predict(name: str, summary: str, tag: str, body: Document) -> Document:
    return operation(
        name,
        summary,
        tag,
        body={JSON: body[JSON]},
        replies=_REPLIES,
        headers=TIMING,
        errors=sorted({*COMPUTING, 406}),
        parameters=[timeout(), PRIORITY, *_QUERY],
        description="A body without Content-Type, or with one that `curl -d` sends, is read as JSON. It may be "
        "compressed (Content-Encoding gzip or deflate). Accept chooses the type of the reply. The body may also be "
        f"{', '.join(name for name in body if name != JSON)}.",
        **{REQUEST_TYPES: [*body]},
    )


def _stream(name: str, summary: str, tag: str, example: str) -> Document:
    body = {**BINARY, **({"example": example} if example else {})}
    types: Document = {REQUEST_TYPES: [LINES, "text/plain", BYTES]}
    return operation(
        name,
        summary,
        tag,
        body={BYTES: body},
        replies={LINES: BINARY, BYTES: BINARY},
        errors=COMPUTING,
        parameters=[timeout("Milliseconds that each line has"), *_QUERY],
        description='Each line of the body is an instance. The reply has a line for each, in order: `{"prediction": '
        f'...}}` or `{{"error": ...}}`. Content-Type may also be {LINES}, the usual one, or text/plain.',
        **types,
    )


def _results(name: str, summary: str, tag: str, body: Document, reply: str) -> Document:
    return operation(
        name,
        summary,
        tag,
        body={JSON: body},
        replies=in_json(ref(reply)),
        headers=TIMING,
        errors=sorted({*COMPUTING, 406}),
        parameters=[timeout(), PRIORITY],
    )
