from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.predict_request import FORMAT
from app.core.errors import InvalidRequest
from app.core.inference import STRING, InferenceResponse
from tests.support.bodies import PROTOBUF, as_protobuf, from_protobuf
from tests.support.protocol_fakes import Client, FakeModel, model, signature_of, specs

X = np.array([1, 2], np.float32)
ONE = signature_of(specs(x=("float32", (None,))), {})


def two_outputs() -> FakeModel:
    outputs = specs(y=("float32", (None,)), z=("float32", (None,)))
    return model(specs(x=("float32", (None,))), outputs, lambda i: {"y": i["x"], "z": -i["x"]})


def spec(**fields: Any) -> bytes:
    return as_protobuf({"x": X}, model_spec=fields)


def post(body: bytes) -> Any:
    return Client(two_outputs()).predict(body, {"content-type": PROTOBUF})


@pytest.mark.parametrize(
    "fields",
    [{}, {"name": "m"}, {"name": "m", "version": {"value": 1}}, {"signature_name": "serving_default"}],
)
def test_a_reply_names_the_model_version(fields: dict[str, Any]) -> None:
    answer = post(spec(**fields))
    assert (answer.status, answer.headers["content-type"]) == (200, PROTOBUF)
    reply = message_class("tensorflow.serving.PredictResponse").FromString(answer.body)
    chosen = reply.model_spec
    assert (chosen.name, chosen.version.value, chosen.signature_name) == ("m", 1, "serving_default")
    assert reply.outputs["y"].tensor_content == X.tobytes()
    assert {name: array.tolist() for name, array in from_protobuf(answer.body).items()} == {"y": [1, 2], "z": [-1, -2]}


def test_typed_fields_and_the_output_filter() -> None:
    request = message_class("tensorflow.serving.PredictRequest")(output_filter=["z"])
    request.inputs["x"].dtype = 1
    request.inputs["x"].float_val.extend([1, 2])
    request.inputs["x"].tensor_shape.dim.add(size=2)
    assert from_protobuf(post(request.SerializeToString()).body)["z"].tolist() == [-1, -2]
    assert from_protobuf(post(request.SerializeToString()).body).keys() == {"z"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\xff", "The body is not a tensorflow.serving.PredictRequest"),
        (b"", "missing 'x'"),
        (spec(name="other"), "The body is for model 'other', the URL for 'm'"),
        (spec(version={"value": 2}), "name the version in the URL: /versions/2"),
        (spec(version={}), "The body is for version 0, the URL for version 1"),
        (spec(version_label="stable"), "The body has version_label 'stable'"),
        (spec(signature_name="none"), 'Serving signature name: "none" not found'),
        (as_protobuf({"x": X}, output_filter=["w"]), "has no output 'w'; it has 'y', 'z'"),
        (as_protobuf({"x": X.astype(np.float64)}), "Input 'x' has dtype float64; expected float32[?]"),
    ],
)
def test_malformed_messages_are_rejected(body: bytes, text: str) -> None:
    answer = post(body)
    assert answer.status == 400
    assert text in answer.error


def test_an_implied_tensor_beyond_the_limit() -> None:
    request = message_class("tensorflow.serving.PredictRequest")()
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=1 << 40)
    with pytest.raises(InvalidRequest, match="more than the 1000 bytes"):
        FORMAT.read(request.SerializeToString(), 1000).inputs(ONE)


def test_strings_are_typed() -> None:
    assert FORMAT.reply
    outputs = {"s": np.array([b"\xff"], STRING)}
    reply = FORMAT.reply.write(InferenceResponse(outputs, "m", 1, "s"), False)
    assert from_protobuf(reply)["s"].tolist() == [b"\xff"]


def test_names_are_checked_before_values_are_made() -> None:
    """300 inputs of 64 MB each took 1,200 bytes, and 20 GB."""
    request = message_class("tensorflow.serving.PredictRequest")()
    for name in range(300):
        tensor = request.inputs[f"x{name}"]
        tensor.dtype = 99  # no type: whoever reads it would say so
    with pytest.raises(InvalidRequest, match="Inputs do not match signature 'x': missing 'x'; unknown 'x0'"):
        FORMAT.read(request.SerializeToString(), 1 << 20).inputs(ONE)
