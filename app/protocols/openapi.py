"""OpenAPI for the models that are served now: their inputs by name, dtype and shape, and bodies that work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.batching.priority import DEFAULT_LEVEL, LOWEST_LEVEL
from app.errors import ServingError
from app.inference import BatchTiming
from app.protocols import body_image, body_npy
from app.protocols.body_form import BodyForm
from app.protocols.body_forms import FORMS
from app.protocols.openapi_bodies import CLASSIC, example_lines, examples_body, is_classic, predict_body
from app.protocols.predict_stream import MEDIA_TYPE as PREDICT_STREAM
from app.protocols.server_timing import server_timing
from app.serving import ServedModel, ServedRepository

_ERRORS = {
    "400": "The request does not parse or does not fit the model",
    "404": "No such model or version",
    "503": "Loading, overloaded or shutting down; see Retry-After",
    "504": "The request's time ran out",
}

_PREDICT_ERRORS = {
    "406": "No reply of a form that Accept allows",
    "415": "A Content-Type or Content-Encoding that is not read here",
}

_BINARY = {"schema": {"type": "string", "format": "binary"}}

_ERROR_SCHEMA = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def _parameter(place: str, name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


_QUERY = [
    _parameter("query", "signature_name", {"type": "string"}, "The signature, where the body has no place for it"),
    _parameter(
        "query", "output", {"type": "array", "items": {"type": "string"}}, "The outputs wanted; all where none is named"
    ),
]


def _timeout(meaning: str) -> dict[str, Any]:
    schema = {"type": "number", "exclusiveMinimum": 0}
    return _parameter("header", "X-Request-Timeout-Ms", schema, f"{meaning}; request_timeout_ms where that is less")


_HEADERS = [
    _timeout("Milliseconds from arrival to answer"),
    _parameter(
        "header",
        "X-Request-Priority",
        {"type": "integer", "minimum": 0, "default": 0},
        f"1 is the highest, {DEFAULT_LEVEL} (or 0) the default, {LOWEST_LEVEL} the lowest",
    ),
]

#: Of replies to what was computed.
_TIMING = {
    "Server-Timing": {
        "description": "Milliseconds in the queue and of the call, and the rows of the batch",
        "schema": {"type": "string", "example": server_timing(BatchTiming(0.00012, 0.00085, 16)).decode()},
    }
}


def model_paths(repository: ServedRepository) -> dict[str, Any]:
    """The `paths` object. Models that are not ready yet have none of their own."""
    paths: dict[str, Any] = {"/v1/models": _read("The models and the state of their versions", "status")}
    for name in repository.names():
        try:
            model = repository.resolve(name)
        except ServingError:
            continue
        paths |= _paths_of(model)
    return paths


def _paths_of(model: ServedModel) -> dict[str, Any]:
    base = f"/v1/models/{model.name}"
    paths = {
        base: _read(f"State of the versions of {model.name}", model.name),
        f"{base}/metadata": _read(f"Signatures of {model.name}", model.name),
    }
    signatures = model.signatures
    if signatures:
        paths[f"{base}:predict"] = _predict(model)
        paths[f"{base}:predictStream"] = _predict_stream(model)
    for action, outputs in CLASSIC.items():
        fitting = [name for name, signature in signatures.items() if is_classic(signature, outputs)]
        if fitting:
            summary = f"{action.capitalize()} with {model.name}, version {model.version}"
            paths[f"{base}:{action}"] = _write(summary, model, {"application/json": examples_body(fitting)})
    return paths


def _read(summary: str, tag: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "tags": [tag], "responses": _responses()}}


def _predict(model: ServedModel) -> dict[str, Any]:
    """With every content type that some signature takes, and those of replies."""
    signatures = model.signatures.values()
    left_out = {
        *(() if any(len(signature.expected(())) == 1 for signature in signatures) else body_npy.FORM.media_types),
        *(() if any(map(body_image.takes_image, signatures)) else _types(body_image.FORMS)),
    }
    content = {name: _BINARY for name in _types(FORMS) if name not in left_out}
    content |= {"application/json": predict_body(model.signatures)}
    operation = _write(f"Predict with {model.name}, version {model.version}", model, content)
    replies = dict.fromkeys(_types(form for form in FORMS if form.reply), _BINARY)
    operation["post"]["responses"]["200"]["content"] = replies | _responses()["200"]["content"]
    operation["post"]["responses"] |= _failures(_PREDICT_ERRORS)
    operation["post"]["parameters"] += _QUERY
    return operation


def _predict_stream(model: ServedModel) -> dict[str, Any]:
    """Lines in, lines out."""
    summary = f"Predict with {model.name}, version {model.version}, for an instance a line, while the lines still come"
    lines = example_lines(model.signatures)
    body = {"schema": {"type": "string"}, **({"example": lines} if lines else {})}
    operation = _write(summary, model, {PREDICT_STREAM: body, "text/plain": body})
    answer = {"description": "A prediction or an error a line, in order", "content": {PREDICT_STREAM: _BINARY}}
    operation["post"]["responses"] |= {"200": answer, **_failures({"415": _PREDICT_ERRORS["415"]})}
    operation["post"]["parameters"] = [_timeout("Milliseconds that each line has"), *_QUERY]
    return operation


def _types(forms: Iterable[BodyForm]) -> list[str]:
    """The usual name of each form."""
    return [form.media_types[0] for form in forms]


def _write(summary: str, model: ServedModel, content: dict[str, Any]) -> dict[str, Any]:
    """An operation that computes."""
    responses = _responses()
    responses["200"]["headers"] = _TIMING
    return {
        "post": {
            "summary": summary,
            "tags": [model.name],
            "parameters": [*_HEADERS],
            "requestBody": {"required": True, "content": content},
            "responses": responses,
        }
    }


def _responses() -> dict[str, Any]:
    answer = {"application/json": {"schema": {"type": "object"}}}
    return {"200": {"description": "The answer", "content": answer}, **_failures(_ERRORS)}


def _failures(texts: Mapping[str, str]) -> dict[str, Any]:
    error = {"application/json": {"schema": _ERROR_SCHEMA}}
    return {code: {"description": text, "content": error} for code, text in texts.items()}
