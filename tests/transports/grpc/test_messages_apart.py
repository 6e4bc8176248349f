"""Messages with many fields are read in another process, with the same answers as here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import map_entry
from app.transports.grpc import messages_apart
from app.transports.grpc.messages_apart import takes_long
from app.transports.grpc.server import GrpcOptions
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from tests.support.grpc_live import Live, outputs_of, predict_request, rows, spec, with_live
from tests.support.open_inference_world import AB, World

Infer = message_class("inference.ModelInferRequest")
Predict = message_class("tensorflow.serving.PredictRequest")

INPUTS = [{"name": name, "datatype": "FP32", "shape": [2, 2]} for name in AB]
GOOD: dict[str, Any] = {
    "model_name": "m",
    "inputs": INPUTS,
    "raw_input_contents": [array.tobytes() for array in AB.values()],
}


class Readers(ReadingProcesses):
    """Counts what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def read(self, *args: Any) -> Any:
        self.times += 1
        return await super().read(*args)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    """They read every message, however short."""
    monkeypatch.setattr(messages_apart, "_LONG_BYTES", 0)
    monkeypatch.setattr(messages_apart, "_MANY_FIELDS", 0)
    made = Readers()
    yield made
    made.close()


def test_only_long_messages_with_many_fields_take_long() -> None:
    """Tensors of honest clients are few fields, however long; they are parsed at once."""
    tensor = np.zeros((300, 1000), np.float32)
    for as_content in (True, False):
        assert not takes_long(
            predict_request({"x": tensor}, as_content=as_content).SerializeToString(), Predict.DESCRIPTOR
        )
    few = b"*\0" * 10_000
    assert not takes_long(few, Infer.DESCRIPTOR)
    strings = {"name": "x", "contents": {"bytes_contents": [b""] * 600_000}}
    assert takes_long(Infer(inputs=[strings]).SerializeToString(), Infer.DESCRIPTOR)


def test_a_predict_request_that_is_read_apart_has_the_same_answer(readers: Readers) -> None:
    async def scenario(running: Live) -> None:
        request = predict_request({"x": rows(1, 2)}, spec(signature="serving_default"), wanted=["y"])
        assert outputs_of(await running.call("Predict", request))["y"].tolist() == [[2, 2], [4, 4]]
        assert [(each.code, each.model, each.version) for each in running.finished] == [("OK", "m", 3)]
        assert readers.times == 1

    with_live(scenario, readers=readers)


@pytest.mark.parametrize(
    "request_message",
    [
        predict_request({"x": rows(1)}, spec("q")),
        predict_request({"x": rows(1)}, spec(signature="q")),
        predict_request({"z": rows(1)}),
        predict_request({"x": rows(1)}, wanted=["q"]),
        b"\xff",
    ],
)
def test_what_is_wrong_with_a_predict_request_is_said_the_same(readers: Readers, request_message: Any) -> None:
    said: list[Any] = []

    async def scenario(running: Live) -> None:
        said.append(await running.failure("Predict", request_message))

    with_live(scenario)
    with_live(scenario, readers=readers)
    assert said[0] == said[1]
    assert readers.times == 1


def test_a_predict_request_of_many_fields_is_not_parsed_here() -> None:
    """600,000 fields that a TensorProto does not have: a parser keeps them all."""
    readers = Readers()
    request = predict_request({"x": rows(1)})
    tensor = request.inputs["x"].SerializeToString() + b"\xc0\x0c\x01" * 600_000
    inputs = Predict.DESCRIPTOR.fields_by_name["inputs"].number
    content = Predict(model_spec=spec()).SerializeToString() + b"".join(map_entry(inputs, "x", [tensor]))

    async def scenario(running: Live) -> None:
        assert outputs_of(await running.call("Predict", content))["y"].tolist() == [[2, 2]]
        assert readers.times == 1

    with_live(scenario, readers=readers, options=GrpcOptions("127.0.0.1", 0, 2 * len(content)))
    readers.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"id": "7", "outputs": [{"name": "sum"}], "parameters": {"timeout": {"int64_param": 9_000_000}}},
        {"model_name": "q"},
        {"model_version": "x"},
        {"raw_input_contents": []},
        {"parameters": {"signature_name": {"string_param": "q"}}},
    ],
)
def test_an_infer_request_that_is_read_apart_has_the_same_answer(readers: Readers, changes: dict[str, Any]) -> None:
    fields = {**GOOD, **changes}
    assert _outcome(World(readers=readers), fields) == _outcome(World(), fields)
    assert readers.times == 1


def test_shared_memory_is_not_for_messages_that_are_read_apart(readers: Readers, tmp_path: Path) -> None:
    region = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 16}}
    inputs = [{**each, "parameters": region} for each in INPUTS]
    world = World(readers=readers, shared=tmp_path)
    code, text = world.rejection("ModelInfer", model_name="m", inputs=inputs)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("Inputs in shared memory come in a message of less than 1 MiB")


def _outcome(world: World, fields: dict[str, Any]) -> Any:
    try:
        return world.call("ModelInfer", **fields)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
