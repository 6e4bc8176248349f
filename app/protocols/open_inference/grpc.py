"""The Open Inference Protocol v2 over gRPC, with Triton's extensions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc

from app.access.access import Access
from app.access.rules import Permission
from app.codecs.at_once import MOST_VALUES, TakesLong
from app.codecs.errors import NotParsed
from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.core.events import Listener
from app.core.interfaces import ServedModel
from app.protocols.open_inference.api import OpenInference, cuda_regions, reject_cuda_memory
from app.protocols.open_inference.documents.grpc_documents import fill_message
from app.protocols.open_inference.documents.list_pages import IN_PROTOBUF
from app.protocols.open_inference.grpc_infer_at_once import InferAtOnce, deadline
from app.protocols.open_inference.grpc_messages import parameters_of, read_message, write_message
from app.protocols.open_inference.grpc_messages_apart import InferRequestApart
from app.protocols.open_inference.infer_call import InferCall
from app.protocols.open_inference.ordered_stream import answer_in_order
from app.protocols.open_inference.shared_memory import WriteRegion
from app.transports.administration import Administration
from app.transports.grpc.calls import Answer, GrpcCall, GrpcCalls, Stream, Unary
from app.transports.grpc.codes import failure_of
from app.transports.grpc.held_messages import HeldMessages
from app.transports.http.long_bodies.reading_process import Reader
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.local_clients import host_and_port
from app.transports.request_caller import CallerRule
from app.transports.request_trace import Tracing

PROTOCOL = "open_inference_grpc"
SERVICE = "inference.GRPCInferenceService"

#: What each method needs. Whether the server lives and is ready is for everybody.
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


class OpenInferenceGrpc:
    """The service. Each request of a stream is an event of its own for `listener`.

    Args:
        timeout_ms: the longest time for an answer; a caller's deadline may be sooner.
        callers: tells callers apart; None if nothing does.
        readers: read messages with many fields; without them a thread does.
        held: counts long messages and replies of calls.
        tracing: decides which calls, and streams, are traced; None if none is.
        allowed: says who may make which call; None if everybody may make all.
    """

    def __init__(
        self,
        served: OpenInference,
        listener: Listener,
        timeout_ms: float,
        callers: CallerRule | None = None,
        *,
        administration: Administration = Administration(),  # noqa: B008 - it is frozen
        readers: ReadingProcesses | None = None,
        held: HeldMessages | None = None,
        tracing: Tracing | None = None,
        allowed: Access | None = None,
    ) -> None:
        self._served = served
        self._administration = administration
        self._timeout_s = timeout_ms / 1e3
        self._calls = GrpcCalls(
            PROTOCOL,
            listener,
            timeout_ms,
            callers,
            peers=served.has_regions,
            readers=readers,
            held=held,
            tracing=tracing,
            allowed=allowed,
        )

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        answers: dict[str, Unary | Stream] = {
            **{name: _document_reply(f"inference.{name}Response", read) for name, read in self._documents().items()},
            "ModelInfer": self._infer,
            "ModelStreamInfer": self._infer_stream,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryRegister": self._register_memory,
            "SystemSharedMemoryUnregister": self._unregister_memory,
        }
        at_once = {"ModelInfer": InferAtOnce(self._served)}
        infer_apart = {"ModelInfer": self._infer_apart}
        return [self._calls.service(SERVICE, answers, infer_apart, at_once, permissions=PERMISSIONS)]

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

    async def _infer(self, message: Any, exchange: GrpcCall) -> Any:
        """The ModelInferResponse. Raises ServingError."""
        # No await until the batcher has the request: the version cannot change in between.
        exchange.check_model(message.model_name)
        model = self._served.resolve(message.model_name, message.model_version)
        exchange.model, exchange.version = model.name, model.version
        read_region, write_region = self._served.region_access(host_and_port(exchange.peer)[0], exchange.permit)
        call = read_message(message, model.signatures, read_region, partial(deadline, exchange), MOST_VALUES)
        return await self._compute(model, call, write_region, exchange)

    def _infer_apart(self, content: bytes, exchange: GrpcCall, process: Reader) -> Answer:
        message = InferRequestApart(process, content)
        name, version, exchange.request_id = message.head()
        exchange.check_model(name)
        model = self._served.resolve(name, version)
        exchange.model, exchange.version = model.name, model.version
        call = message.call(model.signatures, partial(deadline, exchange))
        if call is None:
            self._served.check_regions()
            raise InvalidRequest(
                "Inputs in shared memory come in a message of less than 8 KiB, or of fewer than 500 fields"
            )
        _, write_region = self._served.region_access(host_and_port(exchange.peer)[0], exchange.permit)
        return partial(self._compute, model, call, write_region, exchange)

    async def _compute(self, model: ServedModel, call: InferCall, write: WriteRegion, exchange: GrpcCall) -> Any:
        call.request.priority = call.request.priority or exchange.priority
        call.request.caller = exchange.caller
        exchange.signature = call.request.signature
        return write_message(call, exchange.computed(call.request, await model.infer(call.request)), write)

    def _infer_stream(self, messages: AsyncIterator[Any], stream: GrpcCall) -> AsyncGenerator[Any, None]:
        return answer_in_order(messages, partial(self._answer_in_stream, stream))

    async def _answer_in_stream(self, stream: GrpcCall, message: Any) -> Any:
        """The ModelStreamInferResponse, errors included."""
        started_s = time.monotonic()
        exchange = GrpcCall(started_s, started_s + self._timeout_s, stream.priority, "CANCELLED", caller=stream.caller)
        exchange.permit = stream.permit
        exchange.peer, exchange.path, exchange.client_id = stream.peer, stream.path, stream.client_id
        exchange.trace = stream.trace.again() if stream.trace is not None else None
        try:
            if exchange.permit is not None:
                exchange.permit.use()
            reply = _StreamResponse(infer_response=await self._infer_in_stream(message, exchange))
            exchange.code = "OK"
        except NotParsed:
            exchange.code = "INVALID_ARGUMENT"
            raise
        except Exception as error:
            self._calls.note_denied(error, exchange, exchange.peer, exchange.path)
            failure = failure_of(error, "ModelStreamInfer")
            exchange.code = failure.code.name
            if exchange.trace is not None:
                exchange.trace.error = failure.text
            reply = _StreamResponse(error_message=failure.text or exchange.code)
            reply.infer_response.id = exchange.request_id
        finally:
            self._calls.finish(exchange)
        return reply

    async def _infer_in_stream(self, message: Any, exchange: GrpcCall) -> Any:
        """As `_infer`, for a message or its bytes. Raises also NotParsed, which ends the stream."""
        if isinstance(message, bytes):
            return await self._calls.answer_apart(self._infer_apart, message, exchange)
        exchange.request_id = message.id
        try:
            return await self._infer(message, exchange)
        except TakesLong:
            return await self._calls.answer_apart(self._infer_apart, message.SerializeToString(), exchange)

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
        client = host_and_port(call.peer)
        asked = message.name, message.key, message.offset, message.byte_size
        await self._served.register_region(*asked, client, permit=call.permit)
        return message_class("inference.SystemSharedMemoryRegisterResponse")()

    async def _unregister_memory(self, message: Any, call: GrpcCall) -> Any:
        self._administration.check_grpc()
        await self._served.unregister_region(message.name, host_and_port(call.peer), permit=call.permit)
        return message_class("inference.SystemSharedMemoryUnregisterResponse")()


def _document_reply(reply: str, document: Callable[[Any, GrpcCall], Mapping[str, Any]]) -> Unary:
    """Answers with the message `reply`, made from the document."""

    async def answer(message: Any, call: GrpcCall) -> Any:
        return fill_message(reply, document(message, call))

    return answer
