"""Predict in TensorFlow Serving's gRPC: tensors in, tensors out. Pure but for the call of the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensor, tensor_parts
from app.codecs.protobuf.wire import map_entry
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceRequest, ModelSignature
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.tensorflow_serving.grpc_model_spec import fill_spec, find_signature, resolve
from app.transports.grpc.calls import GrpcCall

_PredictResponse = message_class("tensorflow.serving.PredictResponse")
_OUTPUTS = _PredictResponse.DESCRIPTOR.fields_by_name["outputs"].number


class Predict:
    """Answers PredictRequest.

    Args:
        max_bytes: the most memory that an input may take.
        tensor_content: outputs go out as raw bytes, not as a list of numbers; fast, but some clients read lists only.
    """

    def __init__(self, repository: ServedRepository, max_bytes: int, tensor_content: bool) -> None:
        self._repository = repository
        self._max_bytes = max_bytes
        self._tensor_content = tensor_content

    async def __call__(self, request: Any, call: GrpcCall) -> bytes:
        model = resolve(self._repository, request.model_spec, call)
        signature = find_signature(model, request.model_spec, call)
        inputs = self._inputs(request.inputs, signature)
        outputs = tuple(sorted(set(request.output_filter))) if request.output_filter else ()
        response = await model.infer(InferenceRequest(inputs, signature.name, outputs, call.deadline_s, call.priority))
        return serialize_reply(model, signature.name, response.outputs, self._tensor_content)

    def _inputs(self, protos: Any, signature: ModelSignature) -> dict[str, Array]:
        inputs = {name: decode_tensor(name, proto, self._max_bytes) for name, proto in protos.items()}
        expected = signature.expected(inputs)
        if len(inputs) != len(expected):
            raise _wrong_names(inputs.keys(), expected.keys())
        return inputs


def serialize_reply(model: ServedModel, signature: str, outputs: Mapping[str, Array], tensor_content: bool) -> bytes:
    """The serialized PredictResponse. A large output is copied once, which messages would do several times."""
    parts: list[bytes | memoryview] = [_spec_part(model.name, model.version, signature)]
    for name, array in outputs.items():
        parts += map_entry(_OUTPUTS, name, tensor_parts(array, tensor_content))
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _spec_part(name: str, version: int, signature: str) -> bytes:
    reply = _PredictResponse()
    fill_spec(reply.model_spec, name, version, signature)
    part: bytes = reply.SerializeToString()
    return part


def _wrong_names(sent: Collection[str], wanted: Collection[str]) -> InvalidRequest:
    """In TensorFlow Serving's words, which its users search for."""
    return InvalidRequest(
        f"input size does not match signature: {len(sent)}!={len(wanted)}"
        f" len({_set(sent)}) != len({_set(wanted)})."
        f" Sent extra: {_set(set(sent) - set(wanted))}. Missing but required: {_set(set(wanted) - set(sent))}."
    )


def _set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
