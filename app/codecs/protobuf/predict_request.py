"""Predict bodies as tensorflow.serving.PredictRequest, replies as PredictResponse: gRPC's messages over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.errors import NotAcceptable
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE, decode_tensor, encode_tensor
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature, TensorSpec, dtype_name

_Request = message_class("tensorflow.serving.PredictRequest")
_Response = message_class("tensorflow.serving.PredictResponse")


def read(body: bytes, max_bytes: int) -> PredictBody:
    """Raises InvalidRequest."""
    try:
        message = _Request.FromString(body)
    except DecodeError as error:
        raise InvalidRequest("The body is not a tensorflow.serving.PredictRequest") from error
    spec = message.model_spec
    if spec.version_label:
        raise InvalidRequest(
            f"The body has version_label {spec.version_label[:256]!r}; expected the label in the URL: /labels/NAME"
        )

    def inputs(_: ModelSignature) -> dict[str, Array]:
        return {name: decode_tensor(name, proto, max_bytes) for name, proto in message.inputs.items()}

    version = spec.version.value if spec.HasField("version") else None
    return PredictBody(inputs, spec.signature_name, tuple(message.output_filter), model=spec.name, version=version)


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable if a TensorProto cannot carry a type."""
    for name, spec in outputs.items():
        if spec.dtype not in ENCODING_BY_DTYPE:
            raise NotAcceptable(
                f"Output {name!r} of type {dtype_name(spec.dtype)} cannot be a TensorProto;"
                " accept another Content-Type or choose other outputs"
            )


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """The PredictResponse, with numbers in `tensor_content`, which is faster than lists."""
    reply = _Response()
    reply.model_spec.name = response.model
    reply.model_spec.version.value = response.version
    reply.model_spec.signature_name = response.signature
    for name, array in response.outputs.items():
        encode_tensor(array, reply.outputs[name], as_content=True)
    content: bytes = reply.SerializeToString()
    return content


FORMAT = BodyFormat(
    ("application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"),
    read,
    ReplyFormat(check, write),
)
