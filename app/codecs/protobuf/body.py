"""Predict bodies as tensorflow.serving.PredictRequest, replies as PredictResponse. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from app.codecs.body_format import BodyForm, PredictBody, ReplyForm
from app.codecs.errors import NotAcceptable
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensors import BY_DTYPE, decode_tensor, encode_tensor
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature, TensorSpec, dtype_name

_Request = message_class("tensorflow.serving.PredictRequest")
_Response = message_class("tensorflow.serving.PredictResponse")


def read(body: bytes, max_bytes: int) -> PredictBody:
    """Raises InvalidRequest."""
    try:
        message = _Request.FromString(body)
    except DecodeError as error:
        raise InvalidRequest("The body is no tensorflow.serving.PredictRequest") from error
    spec = message.model_spec
    if spec.version_label:
        raise InvalidRequest(
            f"The body asks for the version with label {spec.version_label[:256]!r}; name it in the URL: /labels/NAME"
        )

    def inputs(_: ModelSignature) -> dict[str, Array]:
        return {name: decode_tensor(name, proto, max_bytes) for name, proto in message.inputs.items()}

    version = spec.version.value if spec.HasField("version") else None
    return PredictBody(inputs, spec.signature_name, tuple(message.output_filter), model=spec.name, version=version)


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable where a TensorProto cannot carry a type."""
    for name, spec in outputs.items():
        if spec.dtype not in BY_DTYPE:
            raise NotAcceptable(f"Output {name!r} of type {dtype_name(spec.dtype)} has no form in a TensorProto")


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """Numbers as `tensor_content`, which is the quick form."""
    reply = _Response()
    reply.model_spec.name = response.model
    reply.model_spec.version.value = response.version
    reply.model_spec.signature_name = response.signature
    for name, array in response.outputs.items():
        encode_tensor(array, reply.outputs[name], as_content=True)
    content: bytes = reply.SerializeToString()
    return content


FORM = BodyForm(
    ("application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"),
    read,
    ReplyForm(check, write),
)
