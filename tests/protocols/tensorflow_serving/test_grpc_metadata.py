"""GetModelMetadata and GetModelStatus, live."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode

from app.codecs.protobuf.messages import message_class
from app.protocols.tensorflow_serving.metadata import metadata_document
from tests.support.fakes import FakeLoadedModel
from tests.support.grpc_live import MODEL, Live, spec, with_live

TWO_VERSIONS = (("m", 3, FakeLoadedModel()), ("m", 12, FakeLoadedModel()))


def metadata(*fields: str, **more: Any) -> Any:
    return message_class("tensorflow.serving.GetModelMetadataRequest")(model_spec=spec(**more), metadata_field=fields)


def status(**more: Any) -> Any:
    return message_class("tensorflow.serving.GetModelStatusRequest")(model_spec=spec(**more))


def test_signatures_are_those_of_rest() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("GetModelMetadata", metadata("signature_def"))
        assert (reply.model_spec.name, reply.model_spec.version.value) == ("m", 3)
        signatures = message_class("tensorflow.serving.SignatureDefMap")()
        assert reply.metadata["signature_def"].Unpack(signatures)
        ours = MessageToDict(signatures, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        rest = metadata_document("m", 3, FakeLoadedModel().signatures)["metadata"]["signature_def"]
        assert ours == rest

    with_live(scenario)


def test_every_version_has_a_status_newest_first() -> None:
    async def scenario(running: Live) -> None:
        for label in ("", "ignored"):
            reply = await running.call("GetModelStatus", status(label=label), MODEL)
            assert [each.version for each in reply.model_version_status] == [12, 3]
        assert [each.state for each in reply.model_version_status] == [30, 30]
        assert [each.status.error_code for each in reply.model_version_status] == [0, 0]
        one = await running.call("GetModelStatus", status(version=3), MODEL)
        assert [each.version for each in one.model_version_status] == [3]
        counted = [(event.code, event.model, event.version) for event in running.finished]
        assert counted == [("OK", "m", 12), ("OK", "m", 12), ("OK", "m", 3)], "of versions that there are"

    with_live(scenario, *TWO_VERSIONS)


def test_a_version_that_failed_says_why() -> None:
    async def scenario(running: Live) -> None:
        running.repository.error_message = "No such file"
        (line,) = (await running.call("GetModelStatus", status(), MODEL)).model_version_status
        assert (line.state, line.status.error_code, line.status.error_message) == (50, 2, "No such file")

    with_live(scenario)


@pytest.mark.parametrize(
    ("method", "service", "message", "code", "text"),
    [
        ("GetModelStatus", MODEL, status(name=""), StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        ("GetModelStatus", MODEL, status(name="n"), StatusCode.NOT_FOUND, "Could not find any versions of model n"),
        ("GetModelStatus", MODEL, status(version=9), StatusCode.NOT_FOUND, "Could not find version 9 of model m"),
        (
            "GetModelMetadata",
            "",
            metadata(),
            StatusCode.INVALID_ARGUMENT,
            "GetModelMetadataRequest must specify at least one metadata_field",
        ),
        (
            "GetModelMetadata",
            "",
            metadata("signature_def", "size"),
            StatusCode.INVALID_ARGUMENT,
            "Metadata field size is not supported",
        ),
        ("GetModelMetadata", "", metadata("signature_def", name="n"), StatusCode.NOT_FOUND, "Servable not found"),
    ],
)
def test_what_is_wrong_is_said(method: str, service: str, message: Any, code: StatusCode, text: str) -> None:
    async def scenario(running: Live) -> None:
        got_code, got_text = await running.failure(method, message, *([service] if service else []))
        assert got_code is code
        assert text in got_text

    with_live(scenario)
