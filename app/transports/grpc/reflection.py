"""gRPC's standard reflection service: tools list methods and messages by it, without our .proto files.

Its two versions, v1 and v1alpha, have the same messages. It describes all messages of Ferry
(app/codecs/protobuf/messages/), its own and those of health included.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from app.access.rules import Permission
from app.codecs.protobuf.messages import message_class, pool
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.services import Service

#: Packages of the service.
VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")

_METHOD = "ServerReflectionInfo"


def reflection_names() -> list[str]:
    """The full names of the service, one for each version."""
    return [f"{package}.ServerReflection" for package in VERSIONS]


class Reflection:
    """The method that answers the requests of one version. `services`: the names that it lists."""

    def __init__(self, package: str, services: Sequence[str]) -> None:
        self._name = f"{package}.ServerReflection"
        self._services = sorted(services)
        self._reply = message_class(f"{package}.ServerReflectionResponse")

    def service(self, calls: GrpcCalls) -> Service:
        """The reflection service, for callers with the permission `metadata`, as all that tells of models."""
        return Service(calls, self._name, {_METHOD: self.answer}, permissions={_METHOD: Permission.METADATA})

    async def answer(self, requests: AsyncIterator[Any], call: GrpcCall) -> AsyncGenerator[Any, None]:
        async for request in requests:
            if call.permit is not None:
                call.permit.use()
            reply = self._reply(original_request=request)
            try:
                self._fill(reply, request)
            except KeyError:
                reply.error_response.error_code = StatusCode.NOT_FOUND
                reply.error_response.error_message = "not found"
            yield reply

    def _fill(self, reply: Any, request: Any) -> None:
        """Puts the answer to a request into `reply`. Raises KeyError: there is nothing of that name."""
        match request.WhichOneof("message_request"):
            case "file_by_filename":
                file = pool().FindFileByName(request.file_by_filename)
                reply.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))
            case "file_containing_symbol":
                file = pool().FindFileContainingSymbol(request.file_containing_symbol)
                reply.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))
            case "file_containing_extension":
                asked = request.file_containing_extension
                extended = pool().FindMessageTypeByName(asked.containing_type)
                extension = pool().FindExtensionByNumber(extended, asked.extension_number)
                file = pool().FindFileContainingSymbol(extension.full_name)
                reply.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))
            case "all_extension_numbers_of_type":
                extended = pool().FindMessageTypeByName(request.all_extension_numbers_of_type)
                numbers = sorted(each.number for each in pool().FindAllExtensions(extended))
                reply.all_extension_numbers_response.base_type_name = extended.full_name
                reply.all_extension_numbers_response.extension_number.extend(numbers)
            case "list_services":
                for name in self._services:
                    reply.list_services_response.service.add(name=name)
            case _:
                reply.error_response.error_code = StatusCode.INVALID_ARGUMENT
                reply.error_response.error_message = "invalid argument"


def _with_imports(file: FileDescriptor) -> list[bytes]:
    """A file, serialized, and all that it imports."""
    found: dict[str, FileDescriptor] = {}
    left = [file]
    while left:
        each = left.pop()
        if each.name not in found:
            found[each.name] = each
            left += each.dependencies
    return [each.serialized_pb for each in found.values()]
