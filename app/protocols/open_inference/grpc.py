"""The Open Inference Protocol v2 over gRPC, with Triton's extensions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.access.rules import Permission
from app.codecs.at_once import TakesLong
from app.codecs.errors import NotParsed
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import field_start
from app.protocols.open_inference.api import OpenInference, cuda_regions, reject_cuda_memory
from app.protocols.open_inference.documents.grpc_documents import fill_message
from app.protocols.open_inference.documents.list_pages import IN_PROTOBUF
from app.protocols.open_inference.grpc_infer_taskless import InferTaskless
from app.protocols.open_inference.grpc_messages import parameters_of
from app.protocols.open_inference.ordered_stream import answer_in_order
from app.transports.administration import Administration
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.services import Service, Stream, Unary

PROTOCOL = "open_inference_grpc"
SERVICE = "inference.GRPCInferenceService"

#: The need of each method. ServerLive and ServerReady need no permission.
PERMISSIONS = {
    "ServerLive": None,
    "ServerReady": None,
    "ServerMetadata": Permission.METADATA,
    "ModelReady": Permission.METADATA,
    "ModelMetadata": Permission.METADATA,
    "ModelConfig": Permission.METADATA,
    "ModelStatistics": Permission.METADATA,
    "RepositoryIndex": Permission.METADATA,
    "SystemSharedMemoryStatus": Permission.METADATA,
    "CudaSharedMemoryStatus": Permission.METADATA,
    "ModelInfer": Permission.INFER,
    "ModelStreamInfer": Permission.INFER,
    "RepositoryModelLoad": Permission.ADMINISTRATION,
    "RepositoryModelUnload": Permission.ADMINISTRATION,
    "SystemSharedMemoryRegister": Permission.ADMINISTRATION,
    "SystemSharedMemoryUnregister": Permission.ADMINISTRATION,
    "CudaSharedMemoryRegister": Permission.ADMINISTRATION,
    "CudaSharedMemoryUnregister": Permission.ADMINISTRATION,
}

#: Methods for operators, by path: where these have a port of their own, no other answers them.
OPERATORS_METHODS = frozenset(
    f"/{SERVICE}/{name}"
    for name in (
        "ModelStatistics",
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
        *(f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")),
    )
)

_StreamResponse = message_class("inference.ModelStreamInferResponse")
_INFER_RESPONSE = _StreamResponse.DESCRIPTOR.fields_by_name["infer_response"].number


class OpenInferenceGrpc:
    """The service. Each request of a stream is an event of its own for `listener`."""

    def __init__(
        self,
        served: OpenInference,
        calls: GrpcCalls,
        *,
        administration: Administration = Administration(),  # noqa: B008 - it is frozen
    ) -> None:
        self._served = served
        self._calls = calls
        self._infer = InferTaskless(served)
        self._administration = administration

    def services(self) -> Sequence[Service]:
        answers: dict[str, Unary | Stream] = {
            **{name: _document_reply(f"inference.{name}Response", read) for name, read in self._documents().items()},
            "ModelStreamInfer": self._infer_stream,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryRegister": self._register_memory,
            "SystemSharedMemoryUnregister": self._unregister_memory,
        }
        in_process, taskless = {"ModelInfer": self._infer.read_in_process}, {"ModelInfer": self._infer}
        return [Service(self._calls, SERVICE, answers, in_process, taskless, permissions=PERMISSIONS)]

    def _documents(self) -> Mapping[str, Callable[[Any, GrpcCall], Mapping[str, Any]]]:
        """The calls that do not wait: request message -> the reply's document."""
        served = self._served
        return {
            "ServerLive": lambda _, __: {"live": served.live()},
            "ServerReady": lambda _, __: {"ready": served.ready()},
            "ServerMetadata": lambda _, __: served.server_metadata(),
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "SystemSharedMemoryStatus": lambda message, call: {
                "regions": {region["name"]: region for region in served.region_documents(message.name, call.permit)}
            },
            "CudaSharedMemoryStatus": lambda message, _: {
                "regions": {region["name"]: region for region in cuda_regions(message.name)}
            },
            "CudaSharedMemoryRegister": lambda message, _: reject_cuda_memory(message),
            "CudaSharedMemoryUnregister": lambda _, __: {},
        }

    def _model_ready(self, message: Any, call: GrpcCall) -> Mapping[str, Any]:
        call.check_model(message.name)
        return {"ready": self._served.model_ready(message.name, message.version)}

    def _model_metadata(self, message: Any, call: GrpcCall) -> Mapping[str, Any]:
        call.check_model(message.name)
        return self._served.model_metadata(message.name, message.version)

    def _infer_stream(self, messages: AsyncIterator[Any], stream: GrpcCall) -> AsyncGenerator[Any, None]:
        return answer_in_order(messages, partial(self._answer_in_stream, stream))

    async def _answer_in_stream(self, stream: GrpcCall, message: Any) -> bytes:
        """The ModelStreamInferResponse to a message of a stream; an error is told in it."""
        call = self._calls.message_of(stream)
        try:
            if call.permit is not None:
                call.permit.use()
            content = await self._infer_in_stream(message, call)
            reply = field_start(_INFER_RESPONSE, len(content)) + content
            call.code = "OK"
        except NotParsed:
            call.code = "INVALID_ARGUMENT"
            raise
        except Exception as error:
            failure = self._calls.failed(call, error)
            told = _StreamResponse(error_message=failure.text or call.code)
            told.infer_response.id = call.request_id
            reply = told.SerializeToString()
        finally:
            self._calls.finish(call, time.monotonic())
        return reply

    async def _infer_in_stream(self, message: Any, call: GrpcCall) -> bytes:
        """The ModelInferResponse to a message or its bytes. Raises ServingError; NotParsed, which ends the stream."""
        if not isinstance(message, bytes):
            call.request_id = message.id
            try:
                return await self._infer.read(message, call).answer(call)
            except TakesLong:
                message = message.SerializeToString()
        content: bytes = await self._calls.read_in_process(self._infer.read_in_process, message, call)
        return content

    async def _statistics(self, message: Any, call: GrpcCall) -> Any:
        if message.name:
            call.check_model(message.name)
        models = None if call.permit is None else call.permit.models
        return (await self._served.model_statistics(message.name, message.version, IN_PROTOBUF, models)).body

    async def _index(self, message: Any, call: GrpcCall) -> Any:
        models = None if call.permit is None else call.permit.models
        return (await self._served.repository_index(message.ready, IN_PROTOBUF, models)).body

    async def _config(self, message: Any, call: GrpcCall) -> Any:
        call.check_model(message.name)
        document = {"config": await self._served.model_config(message.name, message.version)}
        return fill_message("inference.ModelConfigResponse", document)

    async def _load(self, message: Any, call: GrpcCall) -> Any:
        call.target = message.model_name
        call.check_model(message.model_name)
        self._administration.check_grpc()
        await self._served.load_model(message.model_name, parameters_of(message))
        return message_class("inference.RepositoryModelLoadResponse")()

    async def _unload(self, message: Any, call: GrpcCall) -> Any:
        call.target = message.model_name
        call.check_model(message.model_name)
        self._administration.check_grpc()
        await self._served.unload_model(message.model_name)
        return message_class("inference.RepositoryModelUnloadResponse")()

    async def _register_memory(self, message: Any, call: GrpcCall) -> Any:
        self._administration.check_grpc()
        asked = message.name, message.key, message.offset, message.byte_size
        await self._served.register_region(*asked, call.client, permit=call.permit)
        return message_class("inference.SystemSharedMemoryRegisterResponse")()

    async def _unregister_memory(self, message: Any, call: GrpcCall) -> Any:
        self._administration.check_grpc()
        await self._served.unregister_region(message.name, call.client, permit=call.permit)
        return message_class("inference.SystemSharedMemoryUnregisterResponse")()


def _document_reply(reply: str, document: Callable[[Any, GrpcCall], Mapping[str, Any]]) -> Unary:
    """Answers with the message `reply`, made from the document."""

    async def answer(message: Any, call: GrpcCall) -> Any:
        return fill_message(reply, document(message, call))

    return answer
