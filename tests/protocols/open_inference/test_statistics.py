"""A field of the statistics is defined in one document; REST and gRPC both follow it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict, ParseError

from app.codecs.json.writing import dumps
from app.codecs.protobuf.messages import message_class
from app.core.events import BatchExecuted, RequestFinished, tell_all
from app.instrumentation.counts import Counts
from app.instrumentation.statistics import ModelStatistics
from app.protocols.open_inference.documents.grpc_documents import fill_message

MESSAGE = "inference.ModelStatistics"


def document() -> dict[str, Any]:
    counts = Counts()
    statistics = ModelStatistics(counts, clock=lambda: 1234.5)
    tell = tell_all(counts.subscriptions, statistics.subscriptions)
    tell(BatchExecuted("m", 1, "s", 4, 0, "idle", 2.0, (0.5, 0.25), 0, 0))
    tell(RequestFinished("p", "200", "m", 1, "s", 3.0))
    return statistics.document("m", 1)


def numbers_as_text(value: Any) -> Any:
    """protobuf's JSON has 64-bit integers as strings."""
    if isinstance(value, dict):
        return {key: numbers_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [numbers_as_text(each) for each in value]
    return str(value)


def test_grpc_and_rest_have_the_same_fields_with_the_same_values() -> None:
    counted = document()
    rest = orjson.loads(dumps(counted))
    message = fill_message(MESSAGE, counted)
    grpc = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    assert numbers_as_text(grpc) == numbers_as_text(rest)


def test_every_field_of_the_message_is_in_the_document() -> None:
    assert {field.name for field in message_class(MESSAGE).DESCRIPTOR.fields} == document().keys()


def test_a_field_that_the_proto_file_lacks_is_an_error() -> None:
    with pytest.raises(ParseError, match='no field named "rejected_count"'):
        fill_message(MESSAGE, {**document(), "rejected_count": 1})
