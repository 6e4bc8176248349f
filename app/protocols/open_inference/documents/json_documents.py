"""JSON of the protocol: documents, their fields, and the data of tensors."""

from __future__ import annotations

import json
from math import inf, prod
from typing import Any

import orjson

from app.codecs.at_once import LENIENT, SHORT_BYTES, check_text
from app.codecs.json.long_arrays import Numbers, parse_long_arrays
from app.codecs.json.nested_lists import tensor
from app.codecs.json.parsing import decoder_of
from app.codecs.json.writing import jsonable
from app.core.errors import InvalidRequest
from app.core.inference import Array, Buffer, TensorSpec
from app.protocols.open_inference.parameters import Parameters


def parse(body: Buffer, most: float = inf) -> dict[str, Any]:
    """The JSON object that fills `body`, with `Numbers` in the places that `parse_long_arrays` names.

    NaN and Infinity are accepted. Raises InvalidRequest; TakesLong if there are more than `most` values.
    """
    document: object = parse_long_arrays(body, most) if isinstance(body, bytes) else None
    if document is None:
        if len(body) >= SHORT_BYTES:
            check_text(body, most)
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if len(body) >= SHORT_BYTES:
                check_text(body, most / LENIENT)
            document = _parse_non_finite(body, error)
    if type(document) is not dict:
        raise InvalidRequest("The request must be a JSON object")
    return document


def parse_optional(body: bytes) -> dict[str, Any]:
    """The JSON object of a body, as by `parse`; an empty body is an empty object."""
    return parse(body) if body.strip() else {}


def text_field(document: dict[str, Any], name: str, of: str = "The request") -> str:
    """The field as text; empty if absent. Raises InvalidRequest."""
    value = document.get(name, "")
    if type(value) is not str:
        raise InvalidRequest(f"{of}: {name!r} must be a string")
    if not value.isascii():
        _check_unicode(value, f"{of}: {name!r}")
    return value


def list_field(document: dict[str, Any], name: str, of: str = "The request") -> list[Any]:
    """The field as a list; empty if absent. Raises InvalidRequest."""
    value = document.get(name, [])
    if isinstance(value, Numbers):
        return value.expanded()
    if type(value) is not list:
        raise InvalidRequest(f"{of}: {name!r} must be a list")
    return value


def parameters_field(document: dict[str, Any], of: str = "The request") -> Parameters:
    """The field `parameters`; empty if absent. Raises InvalidRequest."""
    value = document.get("parameters", {})
    if type(value) is not dict:
        raise InvalidRequest(f"{of}: 'parameters' must be an object")
    return value


def named_objects(document: dict[str, Any], field: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, document) of each tensor in the list `field`, `inputs` or `outputs`. Raises InvalidRequest."""
    found = []
    for index, each in enumerate(list_field(document, field)):
        if type(each) is not dict or type(each.get("name")) is not str:
            raise InvalidRequest(f"Element {index} of {field!r} must be an object with a string 'name'")
        found.append((each["name"], each))
    return found


def decode_data(value: object, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """The tensor of a checked `shape` in `data`: all elements in one list, or nested lists of that shape.

    Raises:
        InvalidRequest: an element does not fit, or there are not as many as `shape` has.
        Unsupported: JSON cannot represent the type.
    """
    try:
        array = tensor(value, spec.dtype)
    except InvalidRequest as error:
        error.args = (f"Input {spec.name!r}: {error}",)
        raise
    if array.size != prod(shape):
        raise InvalidRequest(
            f"Input {spec.name!r} has {array.size} elements in 'data'; shape {list(shape)} takes {prod(shape)}"
        )
    if array.ndim > 1 and array.shape != shape:
        raise InvalidRequest(f"Input {spec.name!r} has 'data' of shape {list(array.shape)}; 'shape' is {list(shape)}")
    return array.reshape(shape)


def encode_data(array: Array) -> Any:
    """The tensor as a flat list, for `dumps`. BYTES that are not UTF-8 become `{"b64": ...}`."""
    return jsonable("", array.reshape(-1))


def _check_unicode(text: str, where: str) -> None:
    """Rejects half of a surrogate pair: JSON can have it, but a reply with it could not be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{where} is not valid Unicode") from error


def _parse_non_finite(body: Buffer, first: orjson.JSONDecodeError) -> object:
    """The value of a text that orjson rejected with `first`; NaN and infinities are accepted."""
    try:
        text = str(body, "utf-8")
        return decoder_of(text).decode(text)
    except json.JSONDecodeError:
        raise InvalidRequest(f"JSON Parse error: {first.msg} at offset: {first.pos}") from first
    except (RecursionError, ValueError) as error:
        raise InvalidRequest(f"JSON Parse error: {str(error)[:256]}") from error
