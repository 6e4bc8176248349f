"""Reflection answers as the servicer of gRPC's package does, in both versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest
from grpc_reflection.v1alpha.reflection import ReflectionServicer
from grpc_reflection.v1alpha.reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from app.codecs.protobuf.messages import message_class, pool
from app.transports.grpc.calls import GrpcCall
from app.transports.grpc.reflection import VERSIONS, Reflection

SERVICES = ["tensorflow.serving.PredictionService", "inference.GRPCInferenceService"]
QUESTIONS = [
    ServerReflectionRequest(list_services=""),
    ServerReflectionRequest(file_by_filename="serving_predict.proto"),
    ServerReflectionRequest(file_by_filename="nothing.proto"),
    ServerReflectionRequest(file_containing_symbol="tensorflow.serving.PredictionService"),
    ServerReflectionRequest(file_containing_symbol="tensorflow.serving.PredictionService.Predict"),
    ServerReflectionRequest(file_containing_symbol="inference.ModelInferRequest", host="h"),
    ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"),
    ServerReflectionRequest(file_containing_symbol="no.Thing"),
    ServerReflectionRequest(file_containing_extension=ExtensionRequest(containing_type="tensorflow.Example")),
    ServerReflectionRequest(file_containing_extension=ExtensionRequest(containing_type="no.Thing")),
    ServerReflectionRequest(all_extension_numbers_of_type="tensorflow.Example"),
    ServerReflectionRequest(all_extension_numbers_of_type="no.Thing"),
    ServerReflectionRequest(),
]


def read(content: bytes) -> tuple[list[bytes], bytes]:
    """The files that a reply has, whose order does not matter, and the rest of it."""
    reply = ServerReflectionResponse.FromString(content)
    files = sorted(reply.file_descriptor_response.file_descriptor_proto)
    if files:
        reply.ClearField("file_descriptor_response")
    return files, reply.SerializeToString()


@pytest.mark.parametrize("version", VERSIONS)
def test_each_question_is_answered_as_by_the_package_of_grpc(version: str) -> None:
    kind = message_class(f"{version}.ServerReflectionRequest")

    async def requests() -> AsyncIterator[Any]:
        for each in QUESTIONS:
            yield kind.FromString(each.SerializeToString())

    async def main() -> list[bytes]:
        replies = Reflection(version, SERVICES).answer(requests(), GrpcCall(0.0, inf))
        return [each.SerializeToString() async for each in replies]

    theirs = ReflectionServicer(SERVICES, pool=pool()).ServerReflectionInfo(iter(QUESTIONS), None)
    assert [read(each) for each in asyncio.run(main())] == [read(each.SerializeToString()) for each in theirs]
