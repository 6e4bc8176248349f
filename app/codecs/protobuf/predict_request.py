"""Predict bodies as tensorflow.serving.PredictRequest, replies as PredictResponse: gRPC's messages over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf

from google.protobuf.message import DecodeError

from app.codecs.at_once import MOST_FIELDS, MOST_VALUES, SHORT_BYTES, TakesLong
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.errors import NotAcceptable
from app.codecs.protobuf.field_count import has_many_fields
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE, decode_tensors, tensor_parts
from app.codecs.protobuf.wire import Parts, check_fields, map_entry_start
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature, TensorSpec, dtype_name
from app.core.validation import check_names

_Request = message_class("tensorflow.serving.PredictRequest")
_Response = message_class("tensorflow.serving.PredictResponse")
_OUTPUTS = _Response.DESCRIPTOR.fields_by_name["outputs"].number


def read(body: bytes, max_bytes: int, *, at_once: bool = False) -> PredictBody:
    """The body. Raises InvalidRequest; `at_once` also TakesLong, as its inputs do if one has many strings."""
    if at_once and len(body) >= SHORT_BYTES and has_many_fields(body, _Request.DESCRIPTOR, MOST_FIELDS):
        raise TakesLong
    check_fields(body)
    try:
        message = _Request.FromString(body)
    except DecodeError as error:
        raise InvalidRequest("The body is not a tensorflow.serving.PredictRequest") from error
    spec = message.model_spec
    if spec.version_label:
        raise InvalidRequest(
            f"The body has version_label {spec.version_label[:256]!r}; expected the label in the URL: /labels/NAME"
        )

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        check_names(signature, message.inputs.keys())
        return decode_tensors(message.inputs, max_bytes, MOST_VALUES if at_once else inf)

    version = spec.version.value if spec.HasField("version") else None
    return PredictBody(inputs, spec.signature_name, tuple(message.output_filter), model=spec.name, version=version)


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Check that a TensorProto can carry all types. Raises NotAcceptable."""
    for name, spec in outputs.items():
        if spec.dtype not in ENCODING_BY_DTYPE:
            raise NotAcceptable(
                f"Output {name!r} of type {dtype_name(spec.dtype)} cannot be a TensorProto;"
                " accept another Content-Type or choose other outputs"
            )


def serialize_response(response: InferenceResponse, tensor_content: bool) -> bytes:
    """The serialized PredictResponse. A large output is copied once; a message object would copy it several times.

    Args:
        tensor_content: whether numbers go into `tensor_content`, which is faster; some clients read only lists.
    """
    parts: list[bytes | memoryview] = [_spec_part(response.model, response.version, response.signature)]
    for name, array in response.outputs.items():
        parts += output_parts(name, array, tensor_content)
    return b"".join(parts)


def output_parts(name: str, array: Array, tensor_content: bool) -> Parts:
    """One output of a PredictResponse; the last part has its numbers, if they are written as in memory."""
    value = tensor_parts(array, tensor_content)
    return [map_entry_start(_OUTPUTS, name, sum(map(len, value))), *value]


@lru_cache(maxsize=1024)
def _spec_part(name: str, version: int, signature: str) -> bytes:
    reply = _Response(model_spec={"name": name, "version": {"value": version}, "signature_name": signature})
    part: bytes = reply.SerializeToString()
    return part


FORMAT = BodyFormat(
    ("application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"),
    read,
    ReplyFormat(check, lambda response, _: serialize_response(response, tensor_content=True)),
    parsed=True,
)
