"""GetModelMetadata and GetModelStatus in TensorFlow Serving's gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.codecs.protobuf.messages import enum_numbers, message_class
from app.codecs.tensorflow_types import enum_name
from app.core.errors import InvalidRequest
from app.core.inference import ModelSignature, TensorSpec
from app.core.interfaces import ServedRepository
from app.protocols.tensorflow_serving.grpc_model_spec import fill_spec, resolve, version_choice
from app.transports.grpc.calls import GrpcCall

_SIGNATURES = "signature_def"

_TYPES = enum_numbers("tensorflow.DataType")
_CODES = enum_numbers("tensorflow.error.Code")
_STATES = enum_numbers("tensorflow.serving.ModelVersionStatus.State")


class Metadata:
    """Answers GetModelMetadataRequest and GetModelStatusRequest."""

    def __init__(self, repository: ServedRepository) -> None:
        self._repository = repository

    async def signatures(self, request: Any, call: GrpcCall) -> Any:
        _check_fields(request.metadata_field)
        model = resolve(self._repository, request.model_spec, call)
        reply = message_class("tensorflow.serving.GetModelMetadataResponse")()
        fill_spec(reply.model_spec, model.name, model.version)
        reply.metadata[_SIGNATURES].Pack(signature_map(model.signatures))
        return reply

    async def status(self, request: Any, call: GrpcCall) -> Any:
        """Newest version first. A label is ignored, as TensorFlow Serving ignores it."""
        spec = request.model_spec
        if not spec.name:
            raise InvalidRequest("ModelSpec has no name specified.")
        version, _ = version_choice(spec)
        reply = message_class("tensorflow.serving.GetModelStatusResponse")()
        for status in self._repository.statuses(spec.name, version):
            line = reply.model_version_status.add(version=status.version, state=_STATES[status.state.value])
            line.status.error_code = _CODES["UNKNOWN" if status.error_message else "OK"]
            line.status.error_message = status.error_message
        call.model, call.version = spec.name, version or 0
        return reply


def signature_map(signatures: Mapping[str, ModelSignature]) -> Any:
    """The SignatureDefMap of a model."""
    message = message_class("tensorflow.serving.SignatureDefMap")()
    for name, signature in signatures.items():
        definition = message.signature_def[name]
        definition.method_name = signature.method_name
        for tensors, specs in ((definition.inputs, signature.inputs), (definition.outputs, signature.outputs)):
            for key, spec in specs.items():
                _fill_tensor(tensors[key], spec)
    return message


def _fill_tensor(tensor: Any, spec: TensorSpec) -> None:
    tensor.name = spec.tensor_name
    tensor.dtype = _TYPES[enum_name(spec.dtype)]
    tensor.tensor_shape.unknown_rank = spec.shape is None
    for size in spec.shape or ():
        tensor.tensor_shape.dim.add(size=-1 if size is None else size)


def _check_fields(fields: Any) -> None:
    if not fields:
        raise InvalidRequest("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != _SIGNATURES:
            raise InvalidRequest(f"Metadata field {field} is not supported; have {_SIGNATURES}")
