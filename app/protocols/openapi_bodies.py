"""Schemas of the JSON bodies of a model, and examples that work. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import Any

from app.inference import DEFAULT_SIGNATURE, STRING, ModelSignature, TensorSpec
from app.protocols.json_scalars import is_floating, is_integer

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
