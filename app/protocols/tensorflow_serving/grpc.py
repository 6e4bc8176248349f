"""TensorFlow Serving's gRPC API: PredictionService and ModelService.

Classify, Regress and MultiInference are in `grpc_examples.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.json_format import ParseDict

from app.access.rules import Permission
from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest, Unsupported
from app.core.interfaces import ServedRepository
from app.protocols.tensorflow_serving.grpc_examples import ExampleCalls
from app.protocols.tensorflow_serving.grpc_model_spec import fill_spec, resolve, version_choice
from app.protocols.tensorflow_serving.grpc_predict_taskless import PredictTaskless
from app.protocols.tensorflow_serving.metadata import signatures_document, status_document
from app.repository.model_config import ModelConfig
from app.repository.model_server_config import decode_model_configs
from app.transports.administration import Administration
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.services import Service

logger = logging.getLogger(__name__)

PROTOCOL = "tensorflow_grpc"

#: The need of each method.
PERMISSIONS = {
    "Predict": Permission.INFER,
    "Classify": Permission.INFER,
    "Regress": Permission.INFER,
    "MultiInference": Permission.INFER,
    "GetModelMetadata": Permission.METADATA,
    "GetModelStatus": Permission.METADATA,
    "HandleReloadConfigRequest": Permission.ADMINISTRATION,
}

#: The only metadata_field.
_SIGNATURES = "signature_def"


#: Serves these models and no others; returns when the new ones are available. Raises ServingError.
Reload = Callable[[Sequence[ModelConfig]], Awaitable[None]]


#: Methods for operators, by path: where these have a port of their own, no other answers them.
OPERATORS_METHODS = frozenset({"/tensorflow.serving.ModelService/HandleReloadConfigRequest"})


class TensorFlowGrpc:
    """The services of one repository.

    Args:
        max_message_bytes: the most memory for one input.
        tensor_content: outputs are raw bytes instead of lists of numbers; faster, but some clients read only lists.
        reload: answers HandleReloadConfigRequest; None if the served models are no list.
        administration: says whether it may be called.
    """

    def __init__(
        self,
        repository: ServedRepository,
        calls: GrpcCalls,
        *,
        max_message_bytes: int,
        tensor_content: bool = True,
        reload: Reload | None = None,
        administration: Administration = Administration(),  # noqa: B008 - it is frozen
    ) -> None:
        self._administration = administration
        self._repository = repository
        self._calls = calls
        self._examples = ExampleCalls(repository)
        self._predict = PredictTaskless(repository, max_message_bytes, tensor_content)
        self._reload = reload

    def services(self) -> Sequence[Service]:
        return [
            Service(
                self._calls,
                "tensorflow.serving.PredictionService",
                {
                    "Classify": self._examples.classify,
                    "Regress": self._examples.regress,
                    "MultiInference": self._examples.multi_inference,
                    "GetModelMetadata": self._metadata,
                },
                {
                    "Predict": self._predict.read_in_process,
                    "Classify": self._examples.classify_in_process,
                    "Regress": self._examples.regress_in_process,
                    "MultiInference": self._examples.multi_inference_in_process,
                },
                {"Predict": self._predict},
                permissions=PERMISSIONS,
            ),
            Service(
                self._calls,
                "tensorflow.serving.ModelService",
                {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload_config},
                permissions=PERMISSIONS,
            ),
        ]

    # --- PredictionService ---

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
        call.check_model(spec.name)
        version, _ = version_choice(spec)
        statuses = self._repository.statuses(spec.name, version)
        call.model, call.version = spec.name, statuses[0].version
        return ParseDict(status_document(statuses), message_class("tensorflow.serving.GetModelStatusResponse")())

    async def _reload_config(self, request: Any, call: GrpcCall) -> Any:
        if call.permit is not None:
            call.permit.check_every_model()
        self._administration.check_grpc()
        if self._reload is None:
            raise Unsupported("The served models are set by this server's own configuration; calls cannot change them")
        configs = decode_model_configs(request.config)
        call.target = ", ".join(each.name for each in configs)
        logger.info(
            "The served models change, by a gRPC call, to: %s", ", ".join(each.name for each in configs) or "none"
        )
        await self._reload(configs)
        return message_class("tensorflow.serving.ReloadConfigResponse")(status={})


def _check_metadata_fields(fields: Any) -> None:
    """Check that a request asks for the signatures alone. Raises InvalidRequest."""
    if not fields:
        raise InvalidRequest("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != _SIGNATURES:
            raise InvalidRequest(f"Metadata field {field} is not supported; have {_SIGNATURES}")
