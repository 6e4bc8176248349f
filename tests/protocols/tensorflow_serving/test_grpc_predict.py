"""Predict, live: over the real port, model and batcher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import StatusCode

from app.batching.queue import RequestQueue
from app.transports.grpc.application import GrpcApplication
from tests.support.fakes import FakeLoadedModel
from tests.support.grpc_live import (
    LIMIT,
    Live,
    NeverDevice,
    RefusingModel,
    live,
    outputs_of,
    predict_request,
    rows,
    spec,
    with_live,
)
from tests.support.waiting import HANG_S, until


def test_an_answer_and_its_event_name_the_model_version() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("Predict", predict_request({"x": rows(1, 2)}))
        assert outputs_of(reply)["y"].tolist() == [[2, 2], [4, 4]]
        assert (reply.model_spec.name, reply.model_spec.version.value) == ("m", 3)
        assert reply.model_spec.signature_name == "serving_default"
        (event,) = running.finished
        assert (event.protocol, event.code) == ("tensorflow_grpc", "OK")
        assert (event.model, event.version, event.signature) == ("m", 3, "serving_default")
        assert event.seconds > 0

    with_live(scenario)


@pytest.mark.parametrize("as_content", [True, False])
def test_outputs_go_out_as_asked_for(as_content: bool) -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("Predict", predict_request({"x": rows(1)}, as_content=not as_content))
        assert bool(reply.outputs["y"].tensor_content) is as_content
        assert list(reply.outputs["y"].float_val) == ([] if as_content else [2, 2])

    with_live(scenario, tensor_content=as_content)


def test_only_the_outputs_wanted_are_computed() -> None:
    loaded = FakeLoadedModel()

    async def scenario(running: Live) -> None:
        pair = {"x": rows(1), "z": rows(2)}
        request = predict_request(pair, spec(signature="pair"), ["w", "w"])
        assert outputs_of(await running.call("Predict", request)).keys() == {"w"}
        both = predict_request(pair, spec(signature="pair"), ["y", "w"])
        assert outputs_of(await running.call("Predict", both)).keys() == {"w", "y"}
        assert loaded.wanted == [("w",), ()]  # all of them is as if none were named

    with_live(scenario, ("m", 3, loaded))


def test_the_version_asked_for_answers() -> None:
    async def scenario(running: Live) -> None:
        for version, answered in ((None, 12), (3, 3), (12, 12)):
            reply = await running.call("Predict", predict_request({"x": rows(1)}, spec(version=version)))
            assert reply.model_spec.version.value == answered

    with_live(scenario, ("m", 3, FakeLoadedModel()), ("m", 12, FakeLoadedModel()))


def test_scalars_and_empty_batches_pass() -> None:
    async def scenario(running: Live) -> None:
        scalar = predict_request({"x": np.array(1, np.float32)}, spec(signature="total"))
        assert outputs_of(await running.call("Predict", scalar))["y"].tolist() == 2
        empty = outputs_of(await running.call("Predict", predict_request({"x": rows()[:0].reshape(0, 2)})))
        assert empty["y"].shape == (0, 2)

    with_live(scenario)


@pytest.mark.parametrize(
    ("request_message", "code", "text"),
    [
        (b"\xff\xff", StatusCode.INVALID_ARGUMENT, "The request is not a message that Predict takes"),
        (predict_request({}, spec("")), StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        (predict_request({}, spec("n")), StatusCode.NOT_FOUND, "Servable not found for request: Latest(n)"),
        (
            predict_request({}, spec(version=50)),
            StatusCode.NOT_FOUND,
            "Servable not found for request: Specific(m, 50)",
        ),
        (
            predict_request({}, spec(label="best")),
            StatusCode.INVALID_ARGUMENT,
            "Unrecognized servable version label: best",
        ),
        (
            predict_request({}, spec(signature="nope")),
            StatusCode.FAILED_PRECONDITION,
            'Serving signature key "nope" not found.',
        ),
        (
            predict_request({"z": rows(1), "a": rows(1)}),
            StatusCode.INVALID_ARGUMENT,
            "input size does not match signature: 2!=1 len({a,z}) != len({x})."
            " Sent extra: {a,z}. Missing but required: {x}.",
        ),
        (
            predict_request({}),
            StatusCode.INVALID_ARGUMENT,
            "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. Missing but required: {x}.",
        ),
        (predict_request({"z": rows(1)}), StatusCode.INVALID_ARGUMENT, "missing 'x'; unknown 'z'"),
        (
            predict_request({"x": rows(1).astype(np.int32)}),
            StatusCode.INVALID_ARGUMENT,
            "Input 'x' has dtype int32; expected float32[?,2]",
        ),
        (
            predict_request({"x": rows(1)[:, :1]}),
            StatusCode.INVALID_ARGUMENT,
            "Input 'x' has shape [1,1]; expected [?,2]",
        ),
        (predict_request({"x": rows(1)}, wanted=["q"]), StatusCode.INVALID_ARGUMENT, "has no output 'q'; it has 'y'"),
        (predict_request({"x": rows(-1)}), StatusCode.INVALID_ARGUMENT, "x must not be negative"),
        (predict_request({"x": rows(np.nan)}), StatusCode.INTERNAL, "The model failed on NaN"),
    ],
)
def test_what_is_wrong_is_said(request_message: object, code: StatusCode, text: str) -> None:
    async def scenario(running: Live) -> None:
        got_code, got_text = await running.failure("Predict", request_message)
        assert got_code is code
        assert text in got_text
        assert [event.code for event in running.finished] == [code.name]

    with_live(scenario)


def test_long_texts_fit_into_a_header() -> None:
    async def scenario(running: Live) -> None:
        code, text = await running.failure("Predict", predict_request({"x": rows(13)}))
        assert code is StatusCode.INVALID_ARGUMENT
        assert text.startswith("x must not be 13 éé")
        assert 1000 < len(text.encode()) <= 2048

    with_live(scenario, ("m", 1, RefusingModel()))


def test_a_message_beyond_the_limit_is_rejected() -> None:
    async def scenario(running: Live) -> None:
        request = predict_request({"x": np.zeros((LIMIT // 8 + 1, 2), np.float32)})
        code, _ = await running.failure("Predict", request)
        assert code is StatusCode.RESOURCE_EXHAUSTED
        assert outputs_of(await running.call("Predict", predict_request({"x": rows(1)})))["y"].tolist() == [[2, 2]]

    with_live(scenario)


def with_busy_device(scenario: Callable[[Live, grpc.aio.Call], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        device = NeverDevice()
        async with live(device=device, **more) as running:
            first = running.start("Predict", predict_request({"x": rows(1)}))
            await device.started.wait()
            await scenario(running, first)
            first.cancel()

    asyncio.run(main())


async def until_rows(queue: RequestQueue, wanted: int) -> None:
    await until(lambda: queue.rows == wanted)


def test_a_caller_that_disconnects_cancels_its_request() -> None:
    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        waiting = running.start("Predict", predict_request({"x": rows(1, 2, 3)}))
        await until_rows(running.batcher.queue, 3)
        waiting.cancel()
        await until_rows(running.batcher.queue, 0)
        assert [event.code for event in running.finished] == ["CANCELLED"]

    with_busy_device(scenario)


def test_the_callers_deadline_is_kept() -> None:
    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        code, _text = await running.failure("Predict", predict_request({"x": rows(1)}), timeout=0.05)
        assert code is StatusCode.DEADLINE_EXCEEDED
        await until_rows(running.batcher.queue, 0)

    with_busy_device(scenario)


@pytest.mark.parametrize(("later_s", "code"), [(HANG_S, "DEADLINE_EXCEEDED"), (0.0, "CANCELLED")])
def test_a_cancelled_call_whose_deadline_has_passed_is_counted_as_such(
    later_s: float, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC cancels a call at its deadline, too: the clock tells the two apart."""
    passed_s = 0.0

    def now() -> float:
        return time.monotonic() + passed_s

    monkeypatch.setattr("app.transports.grpc.server.GrpcApplication", partial(GrpcApplication, clock=now))

    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        waiting = running.start("Predict", predict_request({"x": rows(1)}), timeout=HANG_S)
        await until_rows(running.batcher.queue, 1)
        with monkeypatch.context() as patched:
            patched.setattr("app.transports.grpc.calls.time", SimpleNamespace(monotonic=now))
            nonlocal passed_s
            passed_s = later_s
            waiting.cancel()
            await until(lambda: bool(running.finished))
        assert [event.code for event in running.finished] == [code]

    with_busy_device(scenario)


def test_the_servers_own_timeout_is_kept() -> None:
    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        code, text = await running.failure("Predict", predict_request({"x": rows(1)}), timeout=30)
        assert code is StatusCode.DEADLINE_EXCEEDED
        assert text in {
            "The request's time ran out before its answer was ready",
            "The request's time was over when it arrived",  # on a machine that stood still meanwhile
        }

    with_busy_device(scenario, timeout_ms=50.0)


def test_a_full_queue_says_when_to_retry() -> None:
    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        full = running.start("Predict", predict_request({"x": rows(*range(100))}))
        await until_rows(running.batcher.queue, 100)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.call("Predict", predict_request({"x": rows(1)}))
        assert caught.value.code() is StatusCode.UNAVAILABLE
        assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        full.cancel()

    with_busy_device(scenario)


def test_a_draining_server_answers_what_it_accepted_and_rejects_the_rest() -> None:
    async def scenario(running: Live) -> None:
        accepted = asyncio.gather(*[running.call("Predict", predict_request({"x": rows(n)})) for n in range(5)])
        await until(lambda: running.batcher.queue.rows + len(running.finished) >= 5)
        running.batcher.begin_drain()
        code, text = await running.failure("Predict", predict_request({"x": rows(1)}))
        assert (code, text) == (StatusCode.UNAVAILABLE, "The server is shutting down")
        await running.batcher.drain()
        assert [outputs_of(reply)["y"][0, 0] for reply in await accepted] == [0, 2, 4, 6, 8]

    with_live(scenario)


def test_a_request_of_higher_priority_is_computed_first() -> None:
    async def scenario(running: Live, _: grpc.aio.Call) -> None:
        sent = running.batcher.queue
        calls = [running.start("Predict", predict_request({"x": rows(1)}))]
        await until_rows(sent, 1)
        urgent = (("x-request-priority", "1"),)
        calls.append(running.start("Predict", predict_request({"x": rows(2)}), metadata=urgent))
        await until_rows(sent, 2)
        (lane,) = sent.lanes
        assert [request.inputs["x"][0, 0] for request in lane] == [2, 1]
        for call in calls:
            call.cancel()

    with_busy_device(scenario)
