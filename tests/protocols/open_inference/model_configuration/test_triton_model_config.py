from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from google.protobuf.json_format import ParseDict

from app.batching.policy import BatchingOptions
from app.codecs.protobuf.messages import message_class
from app.core.batch_sizes import BatchSizes
from app.protocols.open_inference.datatypes import BYTES, DATATYPES
from app.protocols.open_inference.model_configuration.triton_model_config import config_document
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


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("float32", (None, 224, 224, 3), "FORMAT_NHWC"),
        ("uint8", (None, None, None, 1), "FORMAT_NHWC"),
        ("float32", (None, 3, 224, 224), "FORMAT_NCHW"),
        ("float32", (224, 224, 3), "FORMAT_NHWC"),
        ("float32", (None, 3, 32, 3), "FORMAT_NHWC"),
        ("float32", (None, 224, 224, 7), "FORMAT_NONE"),
        ("float32", (None, 8, 8), "FORMAT_NONE"),
        ("string", (None, 8, 8, 3), "FORMAT_NONE"),
        ("float32", None, "FORMAT_NONE"),
    ],
)
def test_images_have_a_format(dtype, shape, expected):
    rows = shape and shape[0]
    document = config(specs(x=(dtype, shape)), specs(y=("float32", (rows, 4))))
    assert document["input"][0]["format"] == expected


def test_an_output_with_labels_says_so():
    signature = signature_of(specs(x=("float32", (None, 2))), specs(y=("float32", (None, 2)), z=("int8", (None,))), "s")
    document = config_document("m", replace(signature, labels={"y": ("cat", "dog")}), SIZES, OPTIONS)
    assert [each["label_filename"] for each in document["output"]] == ["labels.txt", ""]


def test_a_batch_size_that_was_changed_while_it_serves_is_shown():
    signature = signature_of(specs(x=("float32", (None, 3))), specs(y=("int64", (None,))), "s")
    assert config_document("m", signature, SIZES, BatchingOptions(max_batch_size=2))["max_batch_size"] == 2


def test_a_pipeline_is_of_a_platform_of_its_own():
    signature = signature_of(specs(x=("float32", (None, 3))), specs(y=("int64", (None,))), "s")
    document = config_document("m", signature, SIZES, OPTIONS, pipeline=True)
    shown = document["platform"], document["backend"], document["default_model_filename"]
    assert shown == ("ferry_pipeline", "", "pipeline.yaml")


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


def test_an_input_with_a_default_value_is_optional():
    signature = signature_of(specs(x=("float32", (None,)), scale=("float32", (None,))), specs(y=("float32", (None,))))
    signature = replace(signature, defaults={"scale": np.array([1], np.float32)})
    document = config_document("m", signature, SIZES, OPTIONS)
    assert {each["name"]: each["optional"] for each in document["input"]} == {"x": False, "scale": True}
