"""Bodies for one model: schemas of its inputs by name, dtype and shape, and examples that it accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from json import dumps
from math import prod
from typing import Any

from app.codecs import image, npy
from app.codecs.body_format import BodyFormat
from app.codecs.format_registry import BODY_FORMATS
from app.codecs.json.scalars import is_floating, is_integer
from app.core.errors import Unsupported
from app.core.inference import DEFAULT_SIGNATURE, STRING, ModelSignature, TensorSpec
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.operations.openapi.parts import BINARY, JSON, TEXT, Document, array, record, ref
from app.protocols.tensorflow_serving.examples import CLASSIFY, REGRESS, ExamplesMethod

Signatures = Mapping[str, ModelSignature]


# --- predict ---


def predict_content(model: str, signatures: Signatures) -> Document:
    """The content of predict by media type: JSON with schemas, and every other type that a signature accepts."""
    specs = signatures.values()
    left_out = {
        *(() if any(len(each.unnamed()) == 1 for each in specs) else npy.FORMAT.media_types),
        *(() if any(map(image.takes_image, specs)) else media_types([image.JPEG, image.PNG])),
    }
    others = {name: BINARY for name in media_types(BODY_FORMATS) if name != JSON and name not in left_out}
    return {JSON: predict_body(model, signatures), **others}


def media_types(formats: Iterable[BodyFormat]) -> list[str]:
    return [name for each in formats for name in each.media_types]


def predict_body(model: str, signatures: Signatures) -> Document:
    """The schema of predict's JSON, and an example for each signature that has one."""
    examples = {}
    for name, signature in signatures.items():
        if _has_example(signature):
            choice = {} if name == DEFAULT_SIGNATURE else {"signature_name": name}
            examples[name] = {"summary": _describe(signature), "value": {**choice, **example_body(signature)}}
    schemas = [schema for name, signature in signatures.items() for schema in _documents(model, name, signature)]
    return {"schema": {"anyOf": schemas}, "examples": examples}


def example_body(signature: ModelSignature) -> Document:
    """A predict document that the signature accepts: zeros, with free sizes as 1."""
    inputs = signature.inputs
    if not signature.batchable:
        return {"inputs": {name: _zeros(spec, spec.shape or ()) for name, spec in inputs.items()}}
    row = {name: _zeros(spec, (spec.shape or ())[1:]) for name, spec in inputs.items()}
    return {"instances": [row if len(row) > 1 else next(iter(row.values()))]}


def example_lines(signatures: Signatures) -> str:
    """An example of a stream: two lines for the default signature; empty if it has no rows, or takes tf.Examples."""
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is None or not signature.batchable or _takes_examples(signature):
        return ""
    (instance,) = example_body(signature)["instances"]
    return 2 * f"{dumps(instance)}\n"


def _has_example(signature: ModelSignature) -> bool:
    """Whether zeros are an example: they fit no tf.Example, and no tree, where a node would be a child twice."""
    return not (_takes_examples(signature) or signature.mixed_rows)


def _takes_examples(signature: ModelSignature) -> bool:
    """Whether the strings are tf.Examples, whose features the signature does not say."""
    return CLASSIFY.fits(signature) or REGRESS.fits(signature)


def _documents(model: str, name: str, signature: ModelSignature) -> Iterator[Document]:
    """The schemas of a document for the signature: columns, and rows if the signature has rows."""
    choice = {"signature_name": _choice([name])}
    optional = ("signature_name",) if name == DEFAULT_SIGNATURE else ()
    told = {"description": _describe(signature)}
    if signature.batchable:
        rows = {each: _tensor_schema(spec, (spec.shape or ())[1:]) for each, spec in signature.inputs.items()}
        instances = array(_bare_or_named(signature, rows, additionalProperties=False), minItems=1)
        yield record({**choice, "instances": instances}, optional, title=f"{model} {name} rows", **told)
    columns = {each: _tensor_schema(spec, spec.shape) for each, spec in signature.inputs.items()}
    inputs = _bare_or_named(signature, columns)
    yield record({**choice, "inputs": inputs}, optional, title=f"{model} {name} columns", **told)


def _bare_or_named(signature: ModelSignature, tensors: Mapping[str, Document], **more: Any) -> Document:
    """The schema of an object of tensors by name, or of the bare tensor where one is enough."""
    unnamed = signature.unnamed()
    named = record(tensors, tensors.keys() - signature.expected(()).keys(), **more)
    return {"anyOf": [tensors[next(iter(unnamed))], named]} if len(unnamed) == 1 else named


def _choice(names: list[str]) -> Document:
    """The schema of the field `signature_name`; the default signature may be left out or empty."""
    if DEFAULT_SIGNATURE in names:
        return {"type": "string", "enum": [*names, ""], "default": DEFAULT_SIGNATURE}
    return {"type": "string", "enum": names}


def _describe(signature: ModelSignature) -> str:
    inputs, outputs = (
        ", ".join(f"{name}: {spec}" for name, spec in specs.items()) or "nothing"
        for specs in (signature.inputs, signature.outputs)
    )
    return f"{inputs} -> {outputs}"


# --- tensors ---


def _tensor_schema(spec: TensorSpec, shape: tuple[int | None, ...] | None) -> Document:
    """The schema of a tensor: nested arrays; any value if the rank is unknown."""
    if shape is None:
        return {"description": str(spec)}
    schema = _scalar_schema(spec)
    for size in reversed(shape):
        schema = array(schema)
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return {**schema, "description": str(spec)}


def _scalar_schema(spec: TensorSpec) -> Document:
    if spec.dtype == STRING:
        return {"anyOf": [TEXT, ref("Base64")]}
    if spec.dtype.kind == "b":
        return {"type": "boolean"}
    if is_integer(spec.dtype):
        return {"type": "integer"}
    return {"type": "number"} if is_floating(spec.dtype) else {}


#: The zero of a JSON type; of numbers it is 0.0.
_ZEROS = {"boolean": False, "integer": 0}


def _zero(spec: TensorSpec) -> Any:
    return "" if spec.dtype == STRING else _ZEROS.get(_scalar_schema(spec).get("type", ""), 0.0)


def _zeros(spec: TensorSpec, shape: tuple[int | None, ...]) -> Any:
    value = _zero(spec)
    for size in reversed(shape):
        value = [value] * (1 if size is None else size)
    return value


# --- classify and regress ---


def examples_body(method: ExamplesMethod, signatures: Signatures) -> Document | None:
    """The schema of the JSON of classify or regress; None if no signature fits.

    There is no example: a signature does not say which features its examples have.
    """
    fitting = [name for name, signature in signatures.items() if method.fits(signature)]
    if not fitting:
        return None
    schema = examples_schema(_choice(fitting))
    if DEFAULT_SIGNATURE not in fitting:
        schema["required"].append("signature_name")
    return {"schema": schema}


def examples_schema(signature_name: Document) -> Document:
    features = {"type": "object", "description": "Features by name: a value or a list of values"}
    properties = {
        "signature_name": signature_name,
        "context": {**features, "description": "Features of every example"},
        "examples": array(features, minItems=1),
    }
    return record(properties, ("signature_name", "context"))


# --- Open Inference ---


def infer_body(signatures: Signatures) -> Document:
    """The schema of infer's JSON, and an example for each signature that has one and that the protocol can express."""
    examples = {}
    for name, signature in signatures.items():
        try:
            inputs = [_infer_input(spec) for spec in signature.inputs.values()]
        except Unsupported:
            continue
        if _has_example(signature):
            choice = {} if name == DEFAULT_SIGNATURE else {"parameters": {"signature_name": name}}
            examples[name] = {"summary": _describe(signature), "value": {**choice, "inputs": inputs}}
    return {"schema": ref("InferRequest"), "examples": examples}


def _infer_input(spec: TensorSpec) -> Document:
    shape = [1 if size is None else size for size in spec.shape or (1,)] if spec.shape != () else []
    return {
        "name": spec.name,
        "datatype": datatype_of(spec.dtype),
        "shape": shape,
        "data": [_zero(spec)] * prod(shape),
    }
