"""Predict bodies in MessagePack: the documents of JSON, with tensors as bytes.

Instead of nested lists, the value of an input, or all of `instances`, may be a tensor: a map of exactly `dtype`,
`shape` and `data`. `data` is little-endian, row-major bytes; for strings a flat list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from app.codecs.arrays import MAX_RANK, check_simple, from_bytes
from app.codecs.at_once import MOST_ELEMENTS, SHORT_BYTES, TakesLong
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.json.parsing import quote
from app.codecs.json.predict_documents import document_body
from app.codecs.json.scalars import to_bytes
from app.codecs.msgpack_elements import has_many_elements
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, dtype_name, string_array

_KEYS = {"dtype", "shape", "data"}
_DTYPES = {dtype_name(dtype): dtype for dtype in ENCODING_BY_DTYPE if not dtype.names}


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - no length can exceed the body's
    """Raises InvalidRequest."""
    document = _document(body)
    if type(document) is not dict:
        raise InvalidRequest(
            f"The MessagePack document is {quote(document)}; expected a map with 'inputs' or 'instances'"
        )
    predict = document_body(_with_tensors(document))
    predict.by_row = "instances" in document
    return predict


def read_at_once(body: bytes, max_bytes: int) -> PredictBody:
    """Raises InvalidRequest, TakesLong."""
    if len(body) >= SHORT_BYTES and has_many_elements(body, MOST_ELEMENTS):
        raise TakesLong
    return read(body, max_bytes)


def _document(body: bytes) -> Any:
    """The document in a body. Raises InvalidRequest.

    The body is walked through before an object is made: an array that claims more elements than follow would get its
    memory first, and nested ones a thousand times the body's size. Extensions would take a call of Python each;
    timestamps become numbers of seconds.
    """
    try:
        walk = msgpack.Unpacker(max_buffer_size=len(body))
        walk.feed(body)
        walk.skip()
        if walk.tell() != len(body):
            raise InvalidRequest(f"MessagePack parse error: the document ends at byte {walk.tell()} of {len(body)}")
        return msgpack.unpackb(body, ext_hook=_no_extension, timestamp=1)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRequest(f"MessagePack parse error: {str(error)[:256] or type(error).__name__}") from error


def _no_extension(code: int, _: bytes) -> Any:
    raise ValueError(f"extension type {code} is not supported")


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """The reply `{"outputs": {name: tensor}}`, also for a single output."""
    packed: bytes = msgpack.packb({"outputs": {name: _map_of(array) for name, array in response.outputs.items()}})
    return packed


def _with_tensors(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with arrays in place of tensors. One tensor as `instances` becomes `inputs`: a column, not rows."""
    instances, inputs = document.get("instances"), document.get("inputs")
    if "inputs" not in document and _is_tensor(instances):
        return {**{key: document[key] for key in document if key != "instances"}, "inputs": _tensor(instances)}
    if _is_tensor(inputs):
        return {**document, "inputs": _tensor(inputs)}
    if type(inputs) is dict:
        return {
            **document,
            "inputs": {name: _tensor(each) if _is_tensor(each) else each for name, each in inputs.items()},
        }
    return document


def _map_of(array: Array) -> dict[str, Any]:
    strings = array.dtype == STRING
    content = array.reshape(-1).tolist() if strings else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data": content}


def _is_tensor(value: object) -> bool:
    return type(value) is dict and value.keys() == _KEYS


def _tensor(found: Any) -> Array:
    """Raises InvalidRequest."""
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
    values = [to_bytes(each) for each in content]
    try:
        return string_array(values, shape)
    except ValueError as error:
        raise InvalidRequest(f"A tensor has {len(content)} strings in 'data'; expected 'shape' {shape}") from error


FORMAT = BodyFormat(
    ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack"),
    read,
    ReplyFormat(check_simple, write),
    read_at_once=read_at_once,
    parsed=True,
)
