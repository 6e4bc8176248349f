"""Predict bodies as MessagePack: JSON's document, with tensors as bytes. Pure.

Wherever the document has `inputs`, or the whole batch of `instances`, a tensor may be a map of exactly
`dtype`, `shape` and `data` instead of nested lists: little-endian, row-major bytes, or a list for strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from app.codecs.arrays import MAX_RANK, check_simple, from_bytes
from app.codecs.body_format import BodyForm, PredictBody, ReplyForm
from app.codecs.json.body import document_body
from app.codecs.json.scalars import to_bytes
from app.codecs.json.text import quote
from app.codecs.protobuf.tensors import BY_DTYPE
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, dtype_name

_KEYS = {"dtype", "shape", "data"}
_DTYPES = {dtype_name(dtype): dtype for dtype in BY_DTYPE}


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - lengths are limited by those of the body
    """Raises InvalidRequest."""
    try:
        document = msgpack.unpackb(body, object_hook=_tensor_or_map)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRequest(f"MessagePack parse error: {str(error)[:256] or type(error).__name__}") from error
    if type(document) is not dict:
        raise InvalidRequest(
            f"The MessagePack document must be a map with 'inputs' or 'instances', not {quote(document)}"
        )
    question = document_body(_by_column(document))
    question.by_row = "instances" in document
    return question


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """`{"outputs": {name: tensor}}`, however many there are."""
    packed: bytes = msgpack.packb({"outputs": {name: _map_of(array) for name, array in response.outputs.items()}})
    return packed


def _by_column(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A batch that is one tensor is a column, not a list of rows."""
    if "inputs" in document or not isinstance(document.get("instances"), np.ndarray):
        return document
    return {("inputs" if key == "instances" else key): value for key, value in document.items()}


def _map_of(array: Array) -> dict[str, Any]:
    strings = array.dtype == STRING
    content = array.reshape(-1).tolist() if strings else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data": content}


def _tensor_or_map(found: dict[str, Any]) -> Any:
    if found.keys() != _KEYS:
        return found
    dtype = _DTYPES.get(found["dtype"]) if type(found["dtype"]) is str else None
    if dtype is None:
        raise InvalidRequest(f"A tensor has 'dtype' {quote(found['dtype'])}; expected one of {', '.join(_DTYPES)}")
    shape, content = _checked_shape(found["shape"]), found["data"]
    if dtype == STRING:
        return _strings(content, shape)
    if type(content) is not bytes:
        raise InvalidRequest(f"A tensor of {dtype_name(dtype)} has 'data' {quote(content)}; expected bytes")
    return from_bytes(content, dtype, shape, "A tensor")


def _checked_shape(shape: Any) -> list[int]:
    if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > MAX_RANK:
        raise InvalidRequest(
            f"A tensor has 'shape' {quote(shape)}; expected a list of at most {MAX_RANK} whole numbers"
        )
    return shape


def _strings(content: Any, shape: list[int]) -> Array:
    if type(content) is not list:
        raise InvalidRequest(f"A tensor of strings has 'data' {quote(content)}; expected a list of strings")
    values = np.empty(len(content), STRING)
    values[:] = [to_bytes(each) for each in content]
    try:
        return values.reshape(shape)
    except ValueError as error:
        raise InvalidRequest(f"A tensor has {len(content)} strings in 'data'; expected 'shape' {shape}") from error


FORM = BodyForm(
    ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack"), read, ReplyForm(check_simple, write)
)
