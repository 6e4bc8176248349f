"""OpenAPI paths of the served models: schemas of their inputs by name, dtype and shape, and example bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import dumps
from typing import Any

from app.batching.priority import DEFAULT_LEVEL, LOWEST_LEVEL
from app.codecs import image, npy
from app.codecs.body_format import BodyFormat
from app.codecs.format_registry import BODY_FORMATS
from app.codecs.json.scalars import is_floating, is_integer
from app.core.errors import ServingError
from app.core.inference import DEFAULT_SIGNATURE, STRING, BatchTiming, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.streams.predict_stream import MEDIA_TYPE as PREDICT_STREAM
from app.protocols.tensorflow_serving.examples import CLASSIFY, REGRESS
from app.transports.http.server_timing import server_timing

_ERRORS = {
    "400": "The request does not parse or does not fit the model",
    "404": "No such model or version",
    "503": "Loading, overloaded or shutting down; see Retry-After",
    "504": "The request timed out",
}

_PREDICT_ERRORS = {
    "406": "Accept allows no type that the reply can have",
    "415": "The Content-Type or Content-Encoding is not supported",
}

_BINARY = {"schema": {"type": "string", "format": "binary"}}

_ERROR_SCHEMA = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def _parameter(place: str, name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


_QUERY = [
    _parameter("query", "signature_name", {"type": "string"}, "The signature, if the body does not name one"),
    _parameter(
        "query", "output", {"type": "array", "items": {"type": "string"}}, "The wanted outputs; all if none is named"
    ),
]


def _timeout(meaning: str) -> dict[str, Any]:
    schema = {"type": "number", "exclusiveMinimum": 0}
    return _parameter("header", "X-Request-Timeout-Ms", schema, f"{meaning}; at most request_timeout_ms")


_HEADERS = [
    _timeout("Milliseconds from arrival to answer"),
    _parameter(
        "header",
        "X-Request-Priority",
        {"type": "integer", "minimum": 0, "default": 0},
        f"1 is the highest, {DEFAULT_LEVEL} (or 0) the default, {LOWEST_LEVEL} the lowest",
    ),
]

#: The headers of replies to computed requests.
_TIMING = {
    "Server-Timing": {
        "description": "Milliseconds in the queue and in the call, and the rows of the batch",
        "schema": {"type": "string", "example": server_timing(BatchTiming(0.00012, 0.00085, 16)).decode()},
    }
}


# --- paths ---


def model_paths(repository: ServedRepository) -> dict[str, Any]:
    """The `paths` object. Models that are not ready have no paths of their own."""
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
    for method in (CLASSIFY, REGRESS):
        fitting = [name for name, signature in signatures.items() if method.fits(signature)]
        if fitting:
            summary = f"{method.name.capitalize()} with {model.name}, version {model.version}"
            paths[f"{base}:{method.name}"] = _compute(summary, model, {"application/json": examples_body(fitting)})
    return paths


def _read(summary: str, tag: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "tags": [tag], "responses": _responses()}}


def _predict(model: ServedModel) -> dict[str, Any]:
    """Predict, with every Content-Type that a signature accepts or a reply can have."""
    signatures = model.signatures.values()
    left_out = {
        *(() if any(len(signature.expected(())) == 1 for signature in signatures) else npy.FORMAT.media_types),
        *(() if any(map(image.takes_image, signatures)) else _types([image.JPEG, image.PNG])),
    }
    content = {name: _BINARY for name in _types(BODY_FORMATS) if name not in left_out}
    content |= {"application/json": predict_body(model.signatures)}
    operation = _compute(f"Predict with {model.name}, version {model.version}", model, content)
    replies = dict.fromkeys(_types(each for each in BODY_FORMATS if each.reply), _BINARY)
    operation["post"]["responses"]["200"]["content"] = replies | _responses()["200"]["content"]
    operation["post"]["responses"] |= _failures(_PREDICT_ERRORS)
    operation["post"]["parameters"] += _QUERY
    return operation


def _predict_stream(model: ServedModel) -> dict[str, Any]:
    summary = f"Predict with {model.name}, version {model.version} from lines as they arrive"
    lines = example_lines(model.signatures)
    body = {"schema": {"type": "string"}, **({"example": lines} if lines else {})}
    operation = _compute(summary, model, {PREDICT_STREAM: body, "text/plain": body})
    answer = {"description": "A prediction or an error a line, in order", "content": {PREDICT_STREAM: _BINARY}}
    operation["post"]["responses"] |= {"200": answer, **_failures({"415": _PREDICT_ERRORS["415"]})}
    operation["post"]["parameters"] = [_timeout("Milliseconds that each line has"), *_QUERY]
    return operation


def _types(formats: Iterable[BodyFormat]) -> list[str]:
    """The usual media type of each format."""
    return [each.media_types[0] for each in formats]


def _compute(summary: str, model: ServedModel, content: dict[str, Any]) -> dict[str, Any]:
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


# --- bodies: schemas and examples ---


def example_body(signature: ModelSignature) -> dict[str, Any]:
    """A predict document that the signature accepts: zeros, with free sizes as 1."""
    inputs = signature.inputs
    if not signature.batchable:
        return {"inputs": {name: _zeros(spec, spec.shape or ()) for name, spec in inputs.items()}}
    row = {name: _zeros(spec, (spec.shape or ())[1:]) for name, spec in inputs.items()}
    return {"instances": [row if len(row) > 1 else next(iter(row.values()))]}


def example_lines(signatures: Mapping[str, ModelSignature]) -> str:
    """Two lines for a stream to the default signature; empty if it has no rows, or its rows are tf.Examples."""
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is None or not signature.batchable or _takes_examples(signature):
        return ""
    (instance,) = example_body(signature)["instances"]
    return 2 * f"{dumps(instance)}\n"


def predict_body(signatures: Mapping[str, ModelSignature]) -> dict[str, Any]:
    """The schema of predict's JSON, and an example for each signature."""
    examples = {}
    for name, signature in signatures.items():
        if _takes_examples(signature):
            continue
        choice = {} if name == DEFAULT_SIGNATURE else {"signature_name": name}
        examples[name] = {"summary": _describe(signature), "value": {**choice, **example_body(signature)}}
    schema = {"anyOf": [_signature_schema(signature) for signature in signatures.values()]}
    return {"schema": schema, "examples": examples}


def _takes_examples(signature: ModelSignature) -> bool:
    """Are its strings tf.Examples? The signature does not say which features they have."""
    return CLASSIFY.fits(signature) or REGRESS.fits(signature)


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
    """Nested arrays; any value if the rank is unknown."""
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


#: The zero of a JSON type; of numbers it is 0.0.
_ZEROS = {"boolean": False, "integer": 0}


def _zeros(spec: TensorSpec, shape: tuple[int | None, ...]) -> Any:
    value: Any = "" if spec.dtype == STRING else _ZEROS.get(_scalar_schema(spec).get("type", ""), 0.0)
    for size in reversed(shape):
        value = [value] * (1 if size is None else size)
    return value


def examples_body(signatures: list[str]) -> dict[str, Any]:
    """The schema of the JSON of classify and regress, and an example."""
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
