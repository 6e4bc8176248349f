"""Predict bodies in MessagePack: the documents of JSON, with tensors as bytes.

The value of an input, or of `instances`, is nested lists or a tensor map: a map of exactly `dtype`, `shape` and `data`.
`data` is little-endian, row-major bytes; for strings a flat list.
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

#: The keys of a tensor map, and the types by the names that `dtype` may have.
_KEYS = {"dtype", "shape", "data"}
_DTYPES = {dtype_name(dtype): dtype for dtype in ENCODING_BY_DTYPE if not dtype.names}


def read(body: bytes, _: int, *, at_once: bool = False) -> PredictBody:
    """The content of a MessagePack body. Its arrays take no more bytes than the body.

    Raises:
        InvalidRequest: the body is no document of this form.
        TakesLong: `at_once` is set, and the document has many elements.
    """
    if at_once and len(body) >= SHORT_BYTES and has_many_elements(body, MOST_ELEMENTS):
        raise TakesLong
    document = _document(body)
    if type(document) is not dict:
        raise InvalidRequest(
            f"The MessagePack document is {quote(document)}; expected a map with 'inputs' or 'instances'"
        )
    predict = document_body(_with_arrays(document))
    predict.by_row = "instances" in document  # also where a tensor has become `inputs`
    return predict


def _document(body: bytes) -> Any:
    """The document in a body. Raises InvalidRequest.

    A first pass over the body makes no objects. The parser reserves memory for as many elements as an array claims to
    have, before it reads them: nested arrays with false lengths would take a thousand times the body's size. Extensions
    are rejected, since the parser would call Python for every extension. Timestamps become numbers of seconds.
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
    """Reject an extension; msgpack calls it. Raises ValueError."""
    raise ValueError(f"extension type {code} is not supported")


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - tensors are written whole, by row or not
    """The reply `{"outputs": {name: tensor}}`, also for a single output."""
    packed: bytes = msgpack.packb({"outputs": {name: _tensor_map(array) for name, array in response.outputs.items()}})
    return packed


def _with_arrays(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with an array in place of each tensor map. A tensor map as `instances` becomes `inputs`."""
    instances, inputs = document.get("instances"), document.get("inputs")
    if "inputs" not in document and _is_tensor_map(instances):
        return {**{key: document[key] for key in document if key != "instances"}, "inputs": _array(instances)}
    if _is_tensor_map(inputs):
        return {**document, "inputs": _array(inputs)}
    if type(inputs) is dict:
        return {
            **document,
            "inputs": {name: _array(value) if _is_tensor_map(value) else value for name, value in inputs.items()},
        }
    return document


def _tensor_map(array: Array) -> dict[str, Any]:
    """The tensor map of an array."""
    strings = array.dtype == STRING
    content = array.reshape(-1).tolist() if strings else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data": content}


def _is_tensor_map(value: object) -> bool:
    return type(value) is dict and value.keys() == _KEYS


def _array(tensor: Any) -> Array:
    """The array of a tensor map. Raises InvalidRequest."""
    dtype = _DTYPES.get(tensor["dtype"]) if type(tensor["dtype"]) is str else None
    if dtype is None:
        raise InvalidRequest(f"A tensor has 'dtype' {quote(tensor['dtype'])}; expected one of {', '.join(_DTYPES)}")
    shape, content = _checked_shape(tensor["shape"]), tensor["data"]
    if dtype == STRING:
        return _strings(content, shape)
    if type(content) is not bytes:
        raise InvalidRequest(f"A tensor of {dtype_name(dtype)} has 'data' {quote(content)}; expected bytes")
    return from_bytes(content, dtype, shape, "A tensor")


def _checked_shape(shape: Any) -> list[int]:
    """The shape, if it is one. Raises InvalidRequest."""
    if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > MAX_RANK:
        raise InvalidRequest(
            f"A tensor has 'shape' {quote(shape)}; expected a list of at most {MAX_RANK} whole numbers"
        )
    return shape


def _strings(content: Any, shape: list[int]) -> Array:
    """The string array of a flat list. Raises InvalidRequest."""
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
    parsed=True,
)
