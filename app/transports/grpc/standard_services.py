"""gRPC's own services, health and reflection, over bytes as all others: what does not parse is its caller's fault.

The packages that have these services let gRPC parse, which answers UNKNOWN and logs a stack trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from app.access.access import Permit
from app.access.rules import Need, Permission
from app.core.errors import ServingError
from app.transports.grpc.calls import GrpcCalls, fields_of
from app.transports.grpc.codes import failure_of

_NEED = Need(Permission.METADATA)


class Guarded(grpc.ServiceRpcHandler):  # type: ignore[misc]  # grpc has no types
    """A service that answers callers with the permission `metadata` alone. `calls`: reject all others."""

    def __init__(self, service: grpc.ServiceRpcHandler, calls: GrpcCalls) -> None:
        self._service = service
        self._calls = calls

    def service_name(self) -> str:
        name: str = self._service.service_name()
        return name

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        handler = self._service.service(handler_call_details)
        access = self._calls.allowed
        if handler is None or access is None:
            return handler
        try:
            permit = access.permit(fields_of(handler_call_details.invocation_metadata), _NEED)
            if not handler.request_streaming:
                permit.use()
        except ServingError as error:
            return self._calls.rejecting(handler_call_details.method, error)
        return (
            self._asking_again(handler_call_details.method, handler, permit) if handler.request_streaming else handler
        )

    def _asking_again(self, path: str, handler: grpc.RpcMethodHandler, permit: Permit) -> grpc.RpcMethodHandler:
        """A stream, each of whose messages is counted, and ends it with an error if the caller may not send it."""

        async def handle(
            contents: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[Any]:
            async def permitted() -> AsyncIterator[bytes]:
                async for content in contents:
                    permit.use()
                    yield content

            try:
                async for reply in handler.stream_stream(permitted(), context):
                    yield reply
            except ServingError as error:
                self._calls.tell_denied(error, permit.principal.name, context.peer(), path)
                await _reject(error, path.rpartition("/")[2], context)

        return grpc.stream_stream_rpc_method_handler(handle, response_serializer=handler.response_serializer)


class StandardServices:
    """As much of a server as `add_...Servicer_to_server` of such a package uses; collects the handlers."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same methods again, for which gRPC would parse."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        over_bytes = {name: _over_bytes(name, handler) for name, handler in handlers.items()}
        self.handlers.append(grpc.method_handlers_generic_handler(service, over_bytes))


def _over_bytes(name: str, handler: Any) -> grpc.RpcMethodHandler:
    parse, serialize = handler.request_deserializer, handler.response_serializer
    if handler.request_streaming:
        answers = _stream(name, parse, handler.stream_stream)
        return grpc.stream_stream_rpc_method_handler(answers, response_serializer=serialize)
    make = grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(_one(name, parse, handler.unary_stream or handler.unary_unary), response_serializer=serialize)


def _one(name: str, parse: Callable[[bytes], Any], answer: Any) -> Any:
    async def handle(content: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> Any:
        try:
            request = parse(content)
        except DecodeError as error:
            await _reject(error, name, context)
        return await answer(request, context)

    return handle


def _stream(name: str, parse: Callable[[bytes], Any], answers: Any) -> Any:
    async def handle(
        contents: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[Any]:
        async def requests() -> AsyncIterator[Any]:
            async for content in contents:
                yield parse(content)

        try:
            async for reply in answers(requests(), context):
                yield reply
        except DecodeError as error:
            await _reject(error, name, context)

    return handle


async def _reject(
    error: DecodeError | ServingError, name: str, context: grpc.aio.ServicerContext[bytes, bytes]
) -> NoReturn:
    failure = failure_of(error, name)
    await context.abort(failure.code, failure.text, failure.metadata)
    raise AssertionError("abort raises")
