"""TensorFlow Serving's gRPC API: PredictionService and ModelService.

Classify, Regress and MultiInference are in `grpc_examples.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.predict_request import serialize_response
from app.codecs.protobuf.tensor_protos import decode_tensors
from app.core.errors import InvalidRequest, Unsupported
from app.core.events import Listener
from app.core.inference import Array, InferenceRequest, ModelSignature
from app.core.interfaces import ServedRepository
from app.core.validation import check_names
from app.protocols.tensorflow_serving.grpc_examples import ExampleCalls
from app.protocols.tensorflow_serving.grpc_model_spec import fill_spec, resolve, resolve_signature, version_choice
from app.protocols.tensorflow_serving.metadata import signatures_document, status_document
from app.repository.model_config import ModelConfig
from app.repository.model_server_config import decode_model_configs
from app.transports.administration import Administration
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.request_caller import CallerRule

logger = logging.getLogger(__name__)

PROTOCOL = "tensorflow_grpc"

#: The only metadata_field.
_SIGNATURES = "signature_def"


#: Serves these models and no others; returns when the new ones are available. Raises ServingError.
Reload = Callable[[Sequence[ModelConfig]], Awaitable[None]]


class TensorFlowGrpc:
    """The services of one repository.

    Args:
        max_message_bytes: the most memory for one input.
        timeout_ms: the longest time for a call.
        tensor_content: outputs are raw bytes instead of lists of numbers; faster, but some clients read only lists.
        callers: tells callers apart; None if nothing does.
        reload: answers HandleReloadConfigRequest; None if the served models are no list.
        administration: says whether it may be called.
    """

    def __init__(
        self,
        repository: ServedRepository,
        listener: Listener,
        *,
        max_message_bytes: int,
        timeout_ms: float,
        tensor_content: bool = True,
        reload: Reload | None = None,
        callers: CallerRule | None = None,
        administration: Administration = Administration(),  # noqa: B008 - it is frozen
    ) -> None:
        self._administration = administration
        self._repository = repository
        self._calls = GrpcCalls(PROTOCOL, listener, timeout_ms, callers)
        self._examples = ExampleCalls(repository)
        self._max_message_bytes = max_message_bytes
        self._tensor_content = tensor_content
        self._reload = reload

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        return [
            self._calls.service(
                "tensorflow.serving.PredictionService",
                {
                    "Predict": self._predict,
                    "Classify": self._examples.classify,
                    "Regress": self._examples.regress,
                    "MultiInference": self._examples.multi_inference,
                    "GetModelMetadata": self._metadata,
                },
            ),
            self._calls.service(
                "tensorflow.serving.ModelService",
                {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload_config},
            ),
        ]

    # --- PredictionService ---

    async def _predict(self, request: Any, call: GrpcCall) -> bytes:
        model = resolve(self._repository, request.model_spec, call)
        signature = resolve_signature(model, request.model_spec, call)
        inputs = self._inputs(request.inputs, signature)
        outputs = tuple(sorted(set(request.output_filter))) if request.output_filter else ()
        infer = InferenceRequest(inputs, signature.name, outputs, call.deadline_s, call.priority, call.caller)
        response = await model.infer(infer)
        return serialize_response(response, self._tensor_content)

    def _inputs(self, protos: Any, signature: ModelSignature) -> dict[str, Array]:
        names = protos.keys()
        expected = signature.expected(names)
        if len(names) != len(expected):
            raise _wrong_names(names, expected.keys())
        check_names(signature, names)
        return decode_tensors(protos, self._max_message_bytes)

    async def _metadata(self, request: Any, call: GrpcCall) -> Any:
        _check_metadata_fields(request.metadata_field)
        model = resolve(self._repository, request.model_spec, call)
        reply = message_class("tensorflow.serving.GetModelMetadataResponse")()
        fill_spec(reply.model_spec, model.name, model.version)
        signatures = message_class("tensorflow.serving.SignatureDefMap")()
        reply.metadata[_SIGNATURES].Pack(ParseDict(signatures_document(model.signatures), signatures))
        return reply

    # --- ModelService ---

    async def _status(self, request: Any, call: GrpcCall) -> Any:
        """Newest version first. A label is ignored, as by TensorFlow Serving."""
        spec = request.model_spec
        if not spec.name:
            raise InvalidRequest("ModelSpec has no name specified.")
        version, _ = version_choice(spec)
        statuses = self._repository.statuses(spec.name, version)
        call.model, call.version = spec.name, version or 0
        return ParseDict(status_document(statuses), message_class("tensorflow.serving.GetModelStatusResponse")())

    async def _reload_config(self, request: Any, call: GrpcCall) -> Any:  # noqa: ARG002 - the signature of all answers
        self._administration.check_grpc()
        if self._reload is None:
            raise Unsupported("The served models are set by this server's own configuration; calls cannot change them")
        configs = decode_model_configs(request.config)
        logger.info(
            "The served models change, by a gRPC call, to: %s", ", ".join(each.name for each in configs) or "none"
        )
        await self._reload(configs)
        return message_class("tensorflow.serving.ReloadConfigResponse")(status={})


def _wrong_names(sent: Collection[str], wanted: Collection[str]) -> InvalidRequest:
    """TensorFlow Serving's text, which its users search for."""
    return InvalidRequest(
        f"input size does not match signature: {len(sent)}!={len(wanted)}"
        f" len({_set(sent)}) != len({_set(wanted)})."
        f" Sent extra: {_set(set(sent) - set(wanted))}. Missing but required: {_set(set(wanted) - set(sent))}."
    )


def _set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names))[:1024] + "}"


def _check_metadata_fields(fields: Any) -> None:
    """Raises InvalidRequest."""
    if not fields:
        raise InvalidRequest("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != _SIGNATURES:
            raise InvalidRequest(f"Metadata field {field} is not supported; have {_SIGNATURES}")
