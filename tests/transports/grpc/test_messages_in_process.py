"""Messages with many fields are read in another process, with the same answers as here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import map_entry_start
from app.transports.grpc import messages_in_process
from app.transports.grpc.messages_in_process import takes_long
from app.transports.grpc.options import GrpcOptions
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from tests.support.grpc_live import ClassicModel, Live, outputs_of, predict_request, rows, spec, with_live
from tests.support.open_inference_world import AB, World
from tests.support.protocol_fakes import echo_model

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
    monkeypatch.setattr(messages_in_process, "SHORT_BYTES", 0)
    monkeypatch.setattr(messages_in_process, "MOST_FIELDS", 0)
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
    short = b"*\0" * 4_000
    assert not takes_long(short, Infer.DESCRIPTOR)
    strings = {"name": "x", "contents": {"bytes_contents": [b""] * 6_000}}
    assert takes_long(Infer(inputs=[strings]).SerializeToString(), Infer.DESCRIPTOR)


def test_a_predict_request_that_is_read_in_a_process_has_the_same_answer(readers: Readers) -> None:
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
    content = Predict(model_spec=spec()).SerializeToString() + map_entry_start(inputs, "x", len(tensor)) + tensor

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
def test_an_infer_request_read_in_a_process_has_the_same_answer(readers: Readers, changes: dict[str, Any]) -> None:
    fields = {**GOOD, **changes}
    assert _outcome(World(readers=readers), fields) == _outcome(World(), fields)
    assert readers.times == 1


def test_shared_memory_is_not_for_messages_that_are_read_in_a_process(readers: Readers, tmp_path: Path) -> None:
    region = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 16}}
    inputs = [{**each, "parameters": region} for each in INPUTS]
    world = World(readers=readers, shared=tmp_path)
    code, text = world.rejection("ModelInfer", model_name="m", inputs=inputs)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("Inputs in shared memory come in a message of at most 500 fields and 2,000 strings")


def _outcome(world: World, fields: dict[str, Any]) -> Any:
    try:
        return world.call("ModelInfer", **fields)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()


# --- examples ---


def examples(*features: dict[str, float], context: Any = None) -> Any:
    made = [_example(each) for each in features]
    if context is None:
        return {"example_list": {"examples": made}}
    return {"example_list_with_context": {"examples": made, "context": _example(context)}}


def _example(features: dict[str, float]) -> dict[str, Any]:
    return {"features": {"feature": {name: {"float_list": {"value": [each]}} for name, each in features.items()}}}


TWO = examples({"x": 1.0}, {"y": 2.0, "z": 3.0}, context={"x": 5.0})
REGRESS, CLASSIFY = "tensorflow/serving/regress", "tensorflow/serving/classify"


def _tasks(*tasks: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"model_spec": spec(signature=signature), "method_name": method} for signature, method in tasks]


BOTH = _tasks(("regress", REGRESS), ("", CLASSIFY))


@pytest.mark.parametrize(
    ("method", "kind", "fields"),
    [
        ("Classify", "ClassificationRequest", {"model_spec": spec(), "input": TWO}),
        ("Classify", "ClassificationRequest", {"model_spec": spec("q"), "input": TWO}),
        ("Classify", "ClassificationRequest", {"model_spec": spec(signature="q"), "input": TWO}),
        ("Classify", "ClassificationRequest", {"model_spec": spec()}),
        ("Regress", "RegressionRequest", {"model_spec": spec(signature="regress"), "input": TWO}),
        ("Regress", "RegressionRequest", {"model_spec": spec(), "input": TWO}),
        ("Regress", "RegressionRequest", {"model_spec": spec(signature="regress"), "input": examples({"": 1.0})}),
        ("MultiInference", "MultiInferenceRequest", {"tasks": BOTH, "input": TWO}),
        ("MultiInference", "MultiInferenceRequest", {"tasks": _tasks(("regress", "q")), "input": TWO}),
        ("MultiInference", "MultiInferenceRequest", {"input": TWO}),
    ],
)  # fmt: skip
def test_examples_that_are_read_in_a_process_have_the_same_answer(
    readers: Readers, method: str, kind: str, fields: dict[str, Any]
) -> None:
    content = message_class(f"tensorflow.serving.{kind}")(**fields).SerializeToString()
    told: list[Any] = []

    async def scenario(running: Live) -> None:
        try:
            answer = await running.call(method, content)
        except grpc.aio.AioRpcError as error:
            answer = error.code(), error.details()
        told.append((answer, [(each.code, each.model, each.version, each.signature) for each in running.finished]))

    with_live(scenario, ("m", 7, ClassicModel()))
    with_live(scenario, ("m", 7, ClassicModel()), readers=readers)
    assert told[0] == told[1]
    assert readers.times == 1


def test_what_is_no_message_of_examples_is_said_the_same(readers: Readers) -> None:
    async def scenario(running: Live) -> None:
        code, text = await running.failure("Classify", b"\xff")
        assert (code, text) == (
            grpc.StatusCode.INVALID_ARGUMENT, "The request is not a message that Classify takes",
        )  # fmt: skip

    with_live(scenario, readers=readers)
    assert readers.times == 1


# --- streams, and strings as bytes ---


def test_a_stream_of_messages_that_are_read_in_a_process_has_the_same_answers(readers: Readers) -> None:
    requests = [
        Infer(**{**GOOD, **changes})
        for changes in ({"id": "1"}, {"id": "2", "model_name": "q"}, {"id": "3", "raw_input_contents": []}, {"id": "4"})
    ]
    assert _streamed(World(readers=readers), *requests) == _streamed(World(), *requests)
    assert readers.times == len(requests)


def test_a_message_of_a_stream_that_does_not_parse_in_a_process_ends_the_stream(readers: Readers) -> None:
    assert _streamed(World(readers=readers), Infer(**GOOD), b"\xff") == _streamed(World(), Infer(**GOOD), b"\xff")
    assert readers.times == 2


def test_many_strings_in_few_bytes_are_read_in_a_process() -> None:
    readers, count = Readers(), 3000
    model = echo_model("string", (None,))
    tensor = {"name": "x", "datatype": "BYTES", "shape": [count]}
    fields = {"model_name": "m", "inputs": [tensor], "raw_input_contents": [b"\1\0\0\0a" * count]}
    replies = [world.call("ModelInfer", **fields) for world in (World(model, readers=readers), World(model))]
    assert replies[0].raw_output_contents == replies[1].raw_output_contents
    assert readers.times == 1
    readers.close()


def _streamed(world: World, *requests: Any) -> Any:
    """The replies, and the code and text that the stream ends with, if it fails."""

    async def main() -> Any:
        async def ask() -> AsyncIterator[bytes]:
            for request in requests:
                yield request if isinstance(request, bytes) else request.SerializeToString()

        replies = []
        async with world.channel() as channel:
            call = channel.stream_stream(
                "/inference.GRPCInferenceService/ModelStreamInfer",
                response_deserializer=message_class("inference.ModelStreamInferResponse").FromString,
            )
            try:
                async for reply in call(ask()):
                    replies.append(reply)  # noqa: PERF401 - those before an error are replies, too
            except grpc.aio.AioRpcError as error:
                return replies, error.code(), error.details()
        return replies

    return asyncio.run(main())
