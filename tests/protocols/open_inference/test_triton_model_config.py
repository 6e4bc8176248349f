from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict

from app.batching.policy import BatchingOptions
from app.codecs.protobuf.messages import message_class
from app.core.batch_sizes import BatchSizes
from app.protocols.open_inference.datatypes import BYTES, DATATYPES
from app.protocols.open_inference.triton_model_config import config_document
from tests.support.open_inference_world import dtype_of
from tests.support.protocol_fakes import echo_model, signature_of, specs

SIZES = BatchSizes((1, 8))
OPTIONS = BatchingOptions(max_batch_delay_ms=1.5)


def config(inputs, outputs):
    return config_document("m", signature_of(inputs, outputs, "s"), SIZES, OPTIONS)


def test_a_batched_model_shows_its_shapes_without_the_batch():
    document = config(specs(x=("float32", (None, 3, None))), specs(y=("int64", (None,)), z=("int8", None)))
    assert document["max_batch_size"] == 8
    assert document["dynamic_batching"] == {
        "preferred_batch_size": [1, 8],
        "max_queue_delay_microseconds": 1500,
        "priority_levels": 10,
        "default_priority_level": 5,
    }
    assert document["parameters"] == {"signature_name": {"string_value": "s"}}
    (x,) = document["input"]
    assert x["data_type"] == "TYPE_FP32"
    assert x["dims"] == [3, -1]
    assert not x["optional"]
    assert [(each["name"], each["data_type"], each["dims"]) for each in document["output"]] == [
        ("y", "TYPE_INT64", []),
        ("z", "TYPE_INT8", [-1]),
    ]


def test_a_batch_size_that_was_changed_while_it_serves_is_shown():
    signature = signature_of(specs(x=("float32", (None, 3))), specs(y=("int64", (None,))), "s")
    assert config_document("m", signature, SIZES, BatchingOptions(max_batch_size=2))["max_batch_size"] == 2


def test_a_model_without_batches_shows_its_shapes_whole():
    document = config(specs(x=("float32", (2, 3))), specs(y=("complex64", ())))
    assert document["max_batch_size"] == 0
    assert "dynamic_batching" not in document
    assert document["input"][0]["dims"] == [2, 3]
    assert document["output"][0]["data_type"] == "TYPE_INVALID"


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_configuration_is_a_message(datatype):
    dtype = "string" if datatype == BYTES else dtype_of(datatype)
    document = config_document("m", echo_model(dtype, (None, 2)).signatures["serving_default"], SIZES, OPTIONS)
    message = ParseDict(document, message_class("inference.ModelConfig")())
    assert message.input[0].data_type > 0
    assert list(message.input[0].dims) == [2]
