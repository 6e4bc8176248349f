"""Predict in TensorFlow Serving's documents: rows (`instances`) or columns (`inputs`), in and out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.codecs.arrays import cast
from app.codecs.json.long_arrays import Numbers
from app.codecs.json.scalars import is_base64
from app.codecs.json.tensors import column, rows, tensor
from app.codecs.json.text import quote
from app.codecs.json.writing import check_writable, dumps, jsonable
from app.core.errors import InvalidRequest
from app.core.inference import DEFAULT_SIGNATURE, Array, ModelSignature, TensorSpec


def signature_name(document: Mapping[str, Any]) -> str:
    """The signature asked for; left out and empty mean the default one. Raises InvalidRequest."""
    return named_signature(document) or DEFAULT_SIGNATURE


def named_signature(document: Mapping[str, Any]) -> str:
    """Empty where none is named. Raises InvalidRequest."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise InvalidRequest(
            f"JSON Value: {quote(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def decode_predict(document: Mapping[str, Any], signature: ModelSignature) -> tuple[dict[str, Array], bool]:
    """The inputs, and whether they came as rows.

    Raises:
        InvalidRequest: naming what is wrong and where.
        Unsupported: an input type has no JSON form.
    """
    if "instances" in document:
        if "inputs" in document:
            raise InvalidRequest(
                f"JSON Value: {quote(document)} Not formatted correctly expecting only one of"
                " 'inputs' or 'instances' keys to exist"
            )
        return _decode_rows(_instances(document), signature), True
    if "inputs" in document:
        return _decode_columns(document["inputs"], signature), False
    raise InvalidRequest("Missing 'inputs' or 'instances' key")


def check_outputs_writable(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises Unsupported where an output type has no JSON form: before it is computed, not after."""
    for spec in outputs.values():
        check_writable(spec.dtype)


def encode_predict(outputs: Mapping[str, Array], by_row: bool) -> bytes:
    """Raises InvalidRequest where the outputs of a row-form request are no rows, or not equally many."""
    return dumps({"predictions": predictions(outputs)}) if by_row else _encode_columns(outputs)


def predictions(outputs: Mapping[str, Array]) -> Any:
    """By row: what `dumps` writes as `predictions`. Raises as `encode_predict` does."""
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        if array.ndim:
            return jsonable(name, array)
    _check_rows(outputs)
    columns = {name: jsonable(name, array) for name, array in outputs.items()}
    count = next((len(array) for array in outputs.values()), 0)
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def _encode_columns(outputs: Mapping[str, Array]) -> bytes:
    columns = {name: jsonable(name, array) for name, array in outputs.items()}
    return dumps({"outputs": columns if len(columns) != 1 else next(iter(columns.values()))})


def _instances(document: Mapping[str, Any]) -> list[Any] | Numbers:
    values = document["instances"]
    if isinstance(values, Numbers):
        return values
    if type(values) is not list:
        raise InvalidRequest(f"JSON Value: {quote(document)} Expecting 'instances' to be a list/array")
    if not values:
        raise InvalidRequest(f"JSON Value: {quote(document)} No values in 'instances' array")
    return values


def _decode_rows(values: list[Any] | Numbers, signature: ModelSignature) -> dict[str, Array]:
    inputs = signature.expected(values[0] if type(values) is list and _is_object(values[0]) else ())
    if type(values) is list and dict in map(type, values) and any(map(_is_object, values)):
        _check_objects(values, inputs.keys(), _is_object(values[0]))
        return {name: column([value[name] for value in values], spec.dtype, name) for name, spec in inputs.items()}
    if len(inputs) != 1:
        raise InvalidRequest(
            "instances is a plain list, but expecting list of objects as multiple input tensors required: "
            + ",".join(sorted(inputs))
        )
    ((name, spec),) = inputs.items()
    return {name: rows(values, spec.dtype)}


def _decode_columns(value: Any, signature: ModelSignature) -> dict[str, Array]:
    """Names beyond the signature's are ignored, as TensorFlow Serving ignores them."""
    inputs = signature.expected(value if _is_object(value) else ())
    if not _is_object(value):
        if len(inputs) != 1:
            raise InvalidRequest(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required: "
                + ",".join(sorted(inputs))
            )
        value = dict.fromkeys(inputs, value)
    for name in inputs:
        if name not in value:
            raise InvalidRequest(f"Missing named input: {name} in 'inputs' object.")
    return {name: _column(name, value[name], signature) for name in inputs}


def _column(name: str, value: Any, signature: ModelSignature) -> Array:
    spec = signature.inputs[name]
    if isinstance(value, np.ndarray):  # never in JSON, but in documents of the same form
        return cast(value, spec)
    try:
        return tensor(value, spec.dtype)
    except InvalidRequest as error:
        error.args = (f"Input {name!r}: {error}",)
        raise


def _is_object(value: object) -> bool:
    return type(value) is dict and not is_base64(value)


def _check_objects(values: list[Any], names: Any, named: bool) -> None:
    """Either every instance is an object with exactly these keys, or none is an object."""
    for index, value in enumerate(values):
        if _is_object(value) != named:
            found, expected = ("list", "object") if named else ("object", "value/list")
            raise InvalidRequest(f"Expecting {expected} but got {found} at item {index} of input list")
        if named and value.keys() != names:
            raise InvalidRequest(
                f"Failed to process element: {index} of 'instances' list. JSON object: {quote(value)}"
                f" keys must be equal to: {','.join(sorted(names))}"
            )


def _check_rows(outputs: Mapping[str, Array]) -> None:
    expected: int | None = None
    for name, array in outputs.items():
        if not array.ndim:
            raise InvalidRequest(
                f"Tensor name: {name} has inconsistent batch size: it is a scalar; ask for it with 'inputs'"
            )
        if expected is None:
            expected = len(array)
        if len(array) != expected:
            raise InvalidRequest(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {expected}")
