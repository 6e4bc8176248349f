"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from app.codecs.protobuf.messages import message_class
from app.core.errors import Unsupported
from app.core.events import Listener
from app.core.interfaces import ServedRepository
from app.protocols.tensorflow_serving.grpc_examples import Examples
from app.protocols.tensorflow_serving.grpc_metadata import Metadata
from app.protocols.tensorflow_serving.grpc_predict import Predict
from app.repository.model_config import ModelConfig
from app.repository.model_server_config import decode_model_configs
from app.transports.grpc.calls import GrpcCall, GrpcCalls

logger = logging.getLogger(__name__)

PROTOCOL = "tensorflow_grpc"


class Reload(Protocol):
    """Serves these models from now on and no others; returns when the new ones are available. Raises ServingError."""

    async def __call__(self, configs: Sequence[ModelConfig], /) -> None: ...


class TensorFlowGrpc:
    """The services of one repository.

    Args:
        max_message_bytes: the most memory that an input may take.
        timeout_ms: the longest that a call may take.
        tensor_content: see Predict.
        reload: answers HandleReloadConfigRequest; None where the models served are not to be changed by callers.
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
    ) -> None:
        self._calls = GrpcCalls(PROTOCOL, listener, timeout_ms)
        self._predict = Predict(repository, max_message_bytes, tensor_content)
        self._examples = Examples(repository)
        self._metadata = Metadata(repository)
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
                    "GetModelMetadata": self._metadata.signatures,
                },
            ),
            self._calls.service(
                "tensorflow.serving.ModelService",
                {"GetModelStatus": self._metadata.status, "HandleReloadConfigRequest": self._reload_config},
            ),
        ]

    async def _reload_config(self, request: Any, call: GrpcCall) -> Any:  # noqa: ARG002 - every answer's signature
        if self._reload is None:
            raise Unsupported("Which models this server serves is its own configuration, not changed by calls")
        configs = decode_model_configs(request.config)
        logger.info("Reloading: %s", ", ".join(config.name for config in configs) or "no models")
        await self._reload(configs)
        return message_class("tensorflow.serving.ReloadConfigResponse")(status={})
