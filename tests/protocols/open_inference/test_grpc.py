from __future__ import annotations

import asyncio
import time

import grpc
import numpy as np
import pytest

from app.codecs.protobuf.messages import service_descriptor
from app.core.errors import InferenceFailed, Overloaded
from app.core.events import RequestFinished
from app.protocols.open_inference.grpc import SERVICE
from tests.instrumentation.pages import document_of
from tests.support.open_inference_world import AB, World, request_message, stub, sum_model
from tests.support.waiting import until

Code = grpc.StatusCode
INPUTS = [{"name": name, "datatype": "FP32", "shape": [2, 2]} for name in AB]
RAW = [array.tobytes() for array in AB.values()]
GOOD = {"model_name": "m", "inputs": INPUTS, "raw_input_contents": RAW}


def test_infer():
    world = World()
    reply = world.call("ModelInfer", **GOOD, id="7", outputs=[{"name": "sum"}])
    assert (reply.model_name, reply.model_version, reply.id) == ("m", "1", "7")
    assert np.frombuffer(reply.raw_output_contents[0], np.float32).tolist() == [6, 8, 10, 12]
    finished = world.finished
    assert (finished.protocol, finished.code) == ("open_inference_grpc", "OK")
    assert (finished.model, finished.version, finished.signature) == ("m", 1, "serving_default")


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"model_name": "q"}, Code.NOT_FOUND, "Request for unknown model: 'q' is not found"),
        ({"model_version": "9"}, Code.NOT_FOUND, "Request for unknown model: 'm' version 9 is not found"),
        ({"model_version": "x"}, Code.INVALID_ARGUMENT, "Model version is 'x'"),
        ({"raw_input_contents": RAW[:1]}, Code.INVALID_ARGUMENT, "Input 'b' has no data"),
        ({"inputs": INPUTS[:1], "raw_input_contents": RAW[:1]}, Code.INVALID_ARGUMENT, "missing 'b'"),
        ({"parameters": {"signature_name": {"string_param": "q"}}}, Code.FAILED_PRECONDITION, "no signature 'q'"),
    ],
)
def test_infer_rejects(changes, code, text):
    got, said = World().rejection("ModelInfer", **{**GOOD, **changes})
    assert got is code
    assert text in said


@pytest.mark.parametrize(
    ("failure", "code", "text"),
    [
        (Overloaded("full"), Code.UNAVAILABLE, "full"),
        (InferenceFailed("no"), Code.INTERNAL, "no"),
        (RuntimeError("bug"), Code.INTERNAL, "Internal error"),
    ],
)
def test_failures_of_the_model(failure, code, text):
    model = sum_model()
    model.failure = failure
    world = World(model)
    assert world.rejection("ModelInfer", **GOOD) == (code, text)
    assert world.finished.code == code.name


def test_the_timeout_of_a_request_is_its_deadline():
    model = sum_model()
    before_s = time.monotonic()
    World(model).call("ModelInfer", **GOOD, parameters={"timeout": {"int64_param": 9_000_000}})
    assert before_s + 9 <= model.requests[0].deadline_s <= time.monotonic() + 9


def test_the_callers_deadline_applies_if_it_is_sooner():
    """gRPC rounds the caller's deadline, and converts it between two clocks: the hours are told apart, not the ms."""
    model, hour_s = sum_model(), 3600
    world = World(model, timeout_ms=1000.0 * 10 * hour_s)

    async def main():
        async with world.channel() as channel:
            await stub(channel, "ModelInfer")(request_message("ModelInfer", **GOOD), timeout=5 * hour_s)

    before_s = time.monotonic()
    asyncio.run(main())
    assert before_s + 4 * hour_s < model.requests[0].deadline_s < before_s + 6 * hour_s


@pytest.mark.parametrize(("parameters", "priority"), [({}, 2), ({"priority": {"uint64_param": 3}}, 3)])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_the_priority_is_the_messages_or_the_metadatas(method, parameters, priority):
    model = sum_model()
    world = World(model)
    message = request_message(method, **GOOD, parameters=parameters)

    async def requests():
        yield message

    async def main():
        metadata = (("x-request-priority", "2"),)
        async with world.channel() as channel:
            if method == "ModelInfer":
                await stub(channel, method)(message, metadata=metadata)
            else:
                assert len([reply async for reply in stub(channel, method)(requests(), metadata=metadata)]) == 1

    asyncio.run(main())
    assert [request.priority for request in model.requests] == [priority]


def test_a_caller_that_disconnects_cancels_its_request():
    async def main():
        model = sum_model()
        model.never = True
        world = World(model)
        async with world.channel() as channel:
            call = stub(channel, "ModelInfer")(request_message("ModelInfer", **GOOD))
            await until(lambda: bool(model.requests))
            call.cancel()
            await until(lambda: bool(model.cancelled and world.events))
        assert world.finished.code == "CANCELLED"

    asyncio.run(main())


def test_documents():
    world = World(sum_model(version=1), sum_model(version=2))
    assert world.call("ServerLive").live
    assert world.call("ServerReady").ready
    assert "statistics" in world.call("ServerMetadata").extensions
    assert world.call("ModelReady", name="m", version="2").ready
    assert not world.call("ModelReady", name="q").ready
    metadata = world.call("ModelMetadata", name="m")
    assert list(metadata.versions) == ["1", "2"]
    assert list(metadata.inputs[0].shape) == [-1, 2]
    config = world.call("ModelConfig", name="m").config
    assert config.max_batch_size == 4
    assert list(config.input[0].dims) == [2]
    world.health.reasons_unready = ["loading"]
    assert not world.call("ServerReady").ready
    world.health.reasons_dead = ["stuck"]
    assert not world.call("ServerLive").live


def test_statistics():
    world = World()
    world.call("ModelInfer", **GOOD)
    (stats,) = world.call("ModelStatistics", name="m").model_stats
    assert stats.version == "1"
    assert stats.inference_stats.success.count == 1
    assert stats.inference_stats.success.ns > 0
    assert len(world.call("ModelStatistics").model_stats) == 1
    assert world.rejection("ModelStatistics", name="q")[0] is Code.NOT_FOUND


def test_the_repository():
    world = World()
    index = world.call("RepositoryIndex").models
    assert [(each.name, each.version, each.state) for each in index] == [
        ("m", "1", "READY"),
        ("new", "", "UNAVAILABLE"),
    ]
    world.call("RepositoryModelUnload", model_name="m")
    assert not world.call("RepositoryIndex", ready=True).models
    world.call("RepositoryModelLoad", model_name="m")
    assert len(world.call("RepositoryIndex", ready=True).models) == 1
    assert world.rejection("RepositoryModelLoad", model_name="broken")[0] is Code.UNAVAILABLE
    override = {"model_name": "m", "parameters": {"config": {"string_param": "{"}}}
    assert world.rejection("RepositoryModelLoad", **override)[0] is Code.INVALID_ARGUMENT


def test_shared_memory(tmp_path):
    (tmp_path / "k").write_bytes(RAW[0] + bytes(16))
    world = World(shared=tmp_path)
    world.call("SystemSharedMemoryRegister", name="r", key="/k", byte_size=32)
    regions = world.call("SystemSharedMemoryStatus").regions
    assert (regions["r"].key, regions["r"].byte_size) == ("/k", 32)

    def part(offset):
        return {
            "shared_memory_region": {"string_param": "r"},
            "shared_memory_offset": {"int64_param": offset},
            "shared_memory_byte_size": {"int64_param": 16},
        }

    inputs = [{**INPUTS[0], "parameters": part(0)}, INPUTS[1]]
    outputs = [{"name": "sum", "parameters": part(16)}]
    reply = world.call("ModelInfer", model_name="m", inputs=inputs, outputs=outputs, raw_input_contents=RAW[1:])
    assert list(reply.raw_output_contents) == [b""]
    assert (tmp_path / "k").read_bytes()[16:] == (AB["a"] + AB["b"]).tobytes()
    world.call("SystemSharedMemoryUnregister", name="r")
    assert world.rejection("SystemSharedMemoryStatus", name="r")[0] is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "method",
    ["CudaSharedMemoryRegister", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
     "SystemSharedMemoryUnregister", "TraceSetting"],
)  # fmt: skip
def test_what_is_not_offered_is_unimplemented(method):
    assert World().rejection(method)[0] is Code.UNIMPLEMENTED


def test_there_is_no_region_of_cuda_memory():
    world = World()
    assert not world.call("CudaSharedMemoryStatus").regions
    assert world.rejection("CudaSharedMemoryStatus", name="r")[0] is Code.INVALID_ARGUMENT
    for name in ("", "r"):
        world.call("CudaSharedMemoryUnregister", name=name)


def test_every_call_but_tracing_and_logging_is_served():
    (service,) = World().grpc.services()
    methods = set(service_descriptor(SERVICE).methods_by_name)
    served = {name for name in methods if service.methods.get(f"/{SERVICE}/{name}")}
    assert methods - served == {"TraceSetting", "LogSettings"}


def streamed(world, *requests):
    async def main():
        async def ask():
            for fields in requests:
                yield request_message("ModelStreamInfer", **fields)

        async with world.channel() as channel:
            return [reply async for reply in stub(channel, "ModelStreamInfer")(ask())]

    return asyncio.run(main())


def test_a_stream_is_answered_in_order_errors_included():
    world = World()
    replies = streamed(
        world,
        {**GOOD, "id": "0"},
        {**GOOD, "id": "1", "model_name": "q"},
        {**GOOD, "id": "2", "parameters": {"triton_enable_empty_final_response": {"bool_param": True}}},
    )
    assert [reply.infer_response.id for reply in replies] == ["0", "1", "2"]
    assert [bool(reply.error_message) for reply in replies] == [False, True, False]
    assert "Request for unknown model" in replies[1].error_message
    assert [reply.infer_response.parameters["triton_final_response"].bool_param for reply in replies] == [
        False, False, True,
    ]  # fmt: skip
    told = [(event.code, event.signature) for event in world.events if isinstance(event, RequestFinished)]
    assert sorted(told) == [("NOT_FOUND", ""), ("OK", "serving_default"), ("OK", "serving_default")]
    (told,) = document_of(asyncio.run(world.served.model_statistics("m")))["model_stats"]
    assert told["inference_stats"]["success"]["count"] == 2


def test_a_stream_whose_caller_disconnects_cancels_its_requests():
    async def main():
        model = sum_model()
        model.never = True
        world = World(model)
        gone = asyncio.Event()

        async def ask():
            for _ in range(3):
                yield request_message("ModelStreamInfer", **GOOD)
            await gone.wait()

        async with world.channel() as channel:
            call = stub(channel, "ModelStreamInfer")(ask())
            await until(lambda: len(model.requests) == 3)
            call.cancel()
            await until(lambda: model.cancelled == len(world.events) == 3)
        assert {event.code for event in world.events if isinstance(event, RequestFinished)} == {"CANCELLED"}

    asyncio.run(main())
