"""Schemas of the JSON bodies of a model, and examples that work. Pure.

OpenAPI for the models that are served now: their inputs by name, dtype and shape, and bodies that work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import dumps
from typing import Any

from app.batching.priority import DEFAULT_LEVEL, LOWEST_LEVEL
from app.codecs import image as body_image
from app.codecs import npy as body_npy
from app.codecs.body_format import BodyFormat
from app.codecs.body_formats import BODY_FORMATS
from app.codecs.json.scalars import is_floating, is_integer
from app.core.errors import ServingError
from app.core.inference import DEFAULT_SIGNATURE, STRING, BatchTiming, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.streams.predict_stream import MEDIA_TYPE as PREDICT_STREAM
from app.transports.http.server_timing import server_timing

#: The outputs that a signature may have to classify, and to regress.
CLASSIC = {"classify": ("classes", "scores"), "regress": ("outputs",)}


def example_body(signature: ModelSignature) -> dict[str, Any]:
    """A predict body that the signature accepts: zeros, one of every free dimension."""
    inputs = signature.inputs
    if not signature.batchable:
        return {"inputs": {name: _zeros(spec, spec.shape or ()) for name, spec in inputs.items()}}
    row = {name: _zeros(spec, (spec.shape or ())[1:]) for name, spec in inputs.items()}
    return {"instances": [row if len(row) > 1 else next(iter(row.values()))]}


def example_lines(signatures: Mapping[str, ModelSignature]) -> str:
    """Two lines for a stream to the default signature; empty where that takes no instances, or examples only."""
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is None or not signature.batchable or _takes_examples(signature):
        return ""
    (instance,) = example_body(signature)["instances"]
    return 2 * f"{dumps(instance)}\n"


def predict_body(signatures: Mapping[str, ModelSignature]) -> dict[str, Any]:
    """A schema and a working example for each signature."""
    examples = {}
    for name, signature in signatures.items():
        if _takes_examples(signature):
            continue
        choice = {} if name == DEFAULT_SIGNATURE else {"signature_name": name}
        examples[name] = {"summary": _describe(signature), "value": {**choice, **example_body(signature)}}
    schema = {"anyOf": [_signature_schema(signature) for signature in signatures.values()]}
    return {"schema": schema, "examples": examples}


def _takes_examples(signature: ModelSignature) -> bool:
    """Is its string a tf.Example? The signature does not tell the features of that."""
    return any(is_classic(signature, outputs) for outputs in CLASSIC.values())


def _signature_schema(signature: ModelSignature) -> dict[str, Any]:
    inputs = signature.inputs
    columns = {name: _tensor_schema(spec, spec.shape) for name, spec in inputs.items()}
    properties: dict[str, Any] = {
        "signature_name": {"type": "string", "default": DEFAULT_SIGNATURE},
        "inputs": {"type": "object", "properties": columns, "required": list(signature.expected(()))},
    }
    if signature.batchable:
        rows = {name: _tensor_schema(spec, (spec.shape or ())[1:]) for name, spec in inputs.items()}
        named = {"type": "object", "properties": rows, "required": list(signature.expected(()))}
        instance = next(iter(rows.values())) if len(rows) == 1 else named
        properties["instances"] = {"type": "array", "minItems": 1, "items": instance}
    return {"title": signature.name, "type": "object", "description": _describe(signature), "properties": properties}


def _describe(signature: ModelSignature) -> str:
    inputs, outputs = (
        ", ".join(f"{name}: {spec}" for name, spec in specs.items()) or "nothing"
        for specs in (signature.inputs, signature.outputs)
    )
    return f"{inputs} -> {outputs}"


def _tensor_schema(spec: TensorSpec, shape: tuple[int | None, ...] | None) -> dict[str, Any]:
    """Nested arrays; anything where the rank is unknown."""
    if shape is None:
        return {"description": str(spec)}
    schema = _scalar_schema(spec)
    for size in reversed(shape):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return {**schema, "description": str(spec)}


def _scalar_schema(spec: TensorSpec) -> dict[str, Any]:
    if spec.dtype == STRING:
        base64 = {"type": "object", "properties": {"b64": {"type": "string"}}, "required": ["b64"]}
        return {"anyOf": [{"type": "string"}, base64]}
    if spec.dtype.kind == "b":
        return {"type": "boolean"}
    if is_integer(spec.dtype):
        return {"type": "integer"}
    return {"type": "number"} if is_floating(spec.dtype) else {}


def _zeros(spec: TensorSpec, shape: tuple[int | None, ...]) -> Any:
    value: Any = _zero(spec)
    for size in reversed(shape):
        value = [value] * (1 if size is None else size)
    return value


def _zero(spec: TensorSpec) -> Any:
    if spec.dtype == STRING:
        return ""
    if spec.dtype.kind == "b":
        return False
    return 0 if is_integer(spec.dtype) else 0.0


def examples_body(signatures: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "signature_name": {"type": "string", "enum": signatures},
            "context": {"type": "object", "description": "Features of every example"},
            "examples": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "description": "The model's features by name"},
            },
        },
        "required": ["examples"],
    }
    return {"schema": schema, "example": {"signature_name": signatures[0], "examples": [{}]}}


def is_classic(signature: ModelSignature, outputs: tuple[str, ...]) -> bool:
    spec = signature.inputs.get("inputs")
    has_output = any(name in signature.outputs for name in outputs)
    return len(signature.inputs) == 1 and spec is not None and spec.dtype == STRING and has_output


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
        *(() if any(len(signature.expected(())) == 1 for signature in signatures) else body_npy.FORMAT.media_types),
        *(() if any(map(body_image.takes_image, signatures)) else _types([body_image.JPEG, body_image.PNG])),
    }
    content = {name: _BINARY for name in _types(BODY_FORMATS) if name not in left_out}
    content |= {"application/json": predict_body(model.signatures)}
    operation = _write(f"Predict with {model.name}, version {model.version}", model, content)
    replies = dict.fromkeys(_types(each for each in BODY_FORMATS if each.reply), _BINARY)
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


def _types(forms: Iterable[BodyFormat]) -> list[str]:
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
