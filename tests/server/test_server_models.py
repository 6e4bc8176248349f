"""A server whose models are listed: its start, its changes, its batching files."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app import runtime
from app.config.settings import Settings
from app.core.errors import InvalidRequest, Overloaded
from app.core.events import RequestsRefused
from app.core.inference import InferenceRequest
from app.pipelines.pipeline_model import PipelineModel
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.repository.version_policy import All
from app.server.http_app import HttpApp
from app.server.server import Server
from tests.repository.fakes import add
from tests.support.fakes import rows_of
from tests.support.waiting import HANG_S, until


@pytest.fixture(autouse=True)
def _fake_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "fake", "tests.support.fakes:FakeRuntime")


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(**{"runtime": "fake", "models": folder, "host": "127.0.0.1", "grpc_port": 0, **more})


async def play(
    scenario: Callable[[Server], Awaitable[None]], settings: Settings, models: WatchedModels | None = None
) -> Server:
    server = Server(settings, models)
    await server.start()
    try:
        await scenario(server)
    finally:
        await server.stop()
    return server


async def nothing(_: Server) -> None: ...


def model(folder: Path, name: str = "m") -> ModelConfig:
    return ModelConfig(name, folder / name)


def test_a_start_that_waits_returns_when_the_models_are_there(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        assert server.unready() == []
        assert server.grpc.port > 0

    asyncio.run(play(scenario, settings(tmp_path, wait_for_models=True), WatchedModels([model(tmp_path)])))


def test_a_start_that_waits_ends_with_a_model_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (add(tmp_path, "m", 1) / "saved_model.pb").rename(tmp_path / "m" / "1" / "saved_model.pbtxt")
    server = asyncio.run(play(nothing, settings(tmp_path, wait_for_models=True), WatchedModels([model(tmp_path)])))
    text = "Failed to start server. Error: Model m version 1 failed to load: m/1 holds no saved_model.pb"
    assert server.dead()[0] == text
    assert text in caplog.messages
    assert server.grpc.port == 0, "nobody is let in"


def test_a_wrong_list_ends_the_start(tmp_path: Path) -> None:
    server = asyncio.run(
        play(nothing, settings(tmp_path, wait_for_models=True), WatchedModels([ModelConfig("m", Path("m"))]))
    )
    assert "Failed to start server. Error: Expected model m to have an absolute local base_path" in server.failure


def test_a_start_that_waits_for_a_missing_model_can_be_ended(tmp_path: Path) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path, wait_for_models=True), WatchedModels([model(tmp_path)]))
        starting = asyncio.create_task(server.start())
        await asyncio.sleep(0)
        assert not starting.done()
        server.engine.begin_drain()
        await starting
        await server.stop()

    asyncio.run(main())


def test_the_list_is_followed(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    in_effect = asyncio.Event()
    readings = 0

    async def scenario(server: Server) -> None:
        async with asyncio.timeout(HANG_S):
            await in_effect.wait()
        await until(lambda: server.repository.names() == ["b"])  # its memory is free

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def read() -> list[ModelConfig]:
            nonlocal readings
            readings += 1
            if readings == 2:  # what the first reading brought is in effect before the second
                loop.call_soon_threadsafe(in_effect.set)
            return [model(tmp_path, "b")]

        await play(
            scenario, settings(tmp_path, wait_for_models=True), WatchedModels([model(tmp_path, "a")], read, 0.001)
        )

    asyncio.run(main())


def test_a_pipeline_follows_a_label_that_moves(tmp_path: Path) -> None:
    """Such as one that goes back to the version before: no version is loaded or unloaded then."""
    for version in (1, 2):
        add(tmp_path, "m", version)
    (tmp_path / "p" / "1").mkdir(parents=True)
    (tmp_path / "p" / "1" / "pipeline.yaml").write_text(
        'steps: {s: {model: "m:stable", inputs: {x: x}}}\noutputs: {y: s.y}\n'
    )

    def listed(stable: int) -> list[ModelConfig]:
        return [ModelConfig("m", tmp_path / "m", All(), {"stable": stable}), model(tmp_path, "p")]

    async def scenario(server: Server) -> None:
        def version() -> int:
            pipeline = server.repository.resolve("p")
            assert isinstance(pipeline, PipelineModel)
            assert pipeline.bound_to is not None
            return pipeline.bound_to.models[0][0].version

        assert version() == 2
        for stable in (1, 2):
            await server.repository.reload(listed(stable))
            await until(lambda wanted=stable: version() == wanted)

    asyncio.run(play(scenario, settings(tmp_path, wait_for_models=True, settle_s=0.0), WatchedModels(listed(2))))


def test_a_versions_own_file_sets_its_batch_sizes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "plain", 1)
    path = add(tmp_path, "tuned", 1) / "batching_params.pbtxt"
    path.write_text("max_batch_size { value: 3 } allowed_batch_sizes: 3")

    async def scenario(server: Server) -> None:
        sizes = {name: server.repository.resolve(name).sizes.allowed for name in ("plain", "tuned")}
        assert sizes == {"plain": (1, 2), "tuned": (3,) if server.settings.per_model_batching else (1, 2)}

    for per_model in (True, False):
        more = {"wait_for_models": True, "max_batch_size": 2, "per_model_batching": per_model}
        asyncio.run(play(scenario, settings(tmp_path, **more)))


def test_without_batching_one_size_is_warmed_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "m", 1)
    caplog.set_level(logging.DEBUG)

    async def scenario(server: Server) -> None:
        assert server.repository.resolve("m").sizes.allowed == (1,)
        assert not any("2 rows" in message for message in caplog.messages)

    asyncio.run(play(scenario, settings(tmp_path, wait_for_models=True, batching=False)))


def test_metrics_lie_where_the_settings_say_too(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(HttpApp(server)), base_url="http://x") as client:
            page = await client.get("/monitoring/prometheus/metrics")
            assert "# TYPE :tensorflow:serving:request_count counter" in page.text
            assert "ferry_queue_rows" in page.text
            assert page.headers["content-type"].startswith("text/plain")
            reply = await client.options(
                "/v1/models/m:predict", headers={"Origin": "x", "Access-Control-Request-Method": "POST"}
            )
            assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "*")

    asyncio.run(play(scenario, settings(tmp_path, metrics_path="/monitoring/prometheus/metrics", cors=True)))


def test_room_in_the_queue_is_kept_for_the_models_that_are_served(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add(tmp_path, name, 1)

    async def scenario(server: Server) -> None:
        batcher = server.engine._batcher
        assert batcher is not None
        assert [batcher.queue.room.kept(name) for name in "ab"] == [10, 30]
        await server.repository.unload("b")
        assert [batcher.queue.room.kept(name) for name in "ab"] == [0, 0]
        await server.repository.load("b")
        assert [batcher.queue.room.kept(name) for name in "ab"] == [10, 30]

    more = {"max_batch_size": 4, "max_queue_size": 80, "model_weights": {"b": 3.0}, "wait_for_models": True}
    asyncio.run(play(scenario, settings(tmp_path, **more)))


def test_a_server_that_refuses_requests_moderates_interrupts(tmp_path: Path) -> None:
    """It hears of refusals of every protocol."""
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # whatever servers of other tests left
        server.listener(RequestsRefused("late"))
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    asyncio.run(play(scenario, settings(tmp_path)))


def test_a_load_overrides_batching_until_the_next_one(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        load, engine, batcher = server.open_inference.load_model, server.engine, server.engine._batcher
        assert batcher is not None

        async def seen() -> tuple[int, list[int], int]:
            config = await server.open_inference.model_config("m")
            batching = config["dynamic_batching"]
            return config["max_batch_size"], batching["preferred_batch_size"], batching["max_queue_delay_microseconds"]

        before = await seen()
        assert before == (8, [1, 2, 4, 8], 0)
        wanted = {"max_batch_size": "16", "dynamic_batching": {"max_queue_delay_microseconds": 2000}}
        await load("m", {"config": json.dumps(wanted)})
        assert await seen() == (16, [1, 2, 4, 8, 16], 2000)
        assert server.repository.resolve("m").sizes.largest == 16
        assert engine.batching_options("m").max_batch_delay_ms == 2.0
        assert not batcher.state.scheduler.eager

        again = await server.open_inference.model_config("m")
        await load("m", {"config": json.dumps(again)})
        assert await seen() == (16, [1, 2, 4, 8, 16], 2000)

        for config in ('{"max_batch_size": 81}', '{"platform": "onnx"}'):
            with pytest.raises(InvalidRequest, match=r"^failed to load 'm'"):
                await load("m", {"config": config})
        assert await seen() == (16, [1, 2, 4, 8, 16], 2000)

        await load("m", {})
        assert await seen() == before
        assert batcher.state.scheduler.eager

    more = {"max_batch_size": 8, "max_queue_size": 80, "wait_for_models": True}
    asyncio.run(play(scenario, settings(tmp_path, **more)))


def test_no_load_asks_for_batches_without_end(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        with pytest.raises(InvalidRequest, match="max_batch_size is 1048576, but should be at most 8192 here"):
            await server.open_inference.load_model("m", {"config": '{"max_batch_size": 1048576}'})
        await server.open_inference.load_model("m", {"config": '{"max_batch_size": 128}'})

    asyncio.run(play(scenario, settings(tmp_path, max_queue_size=0, wait_for_models=True)))


def test_without_batching_there_is_no_batch_size_to_override(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        with pytest.raises(InvalidRequest, match="max_batch_size cannot be overridden: batching is off"):
            await server.open_inference.load_model("m", {"config": '{"max_batch_size": 2}'})
        assert (await server.open_inference.model_config("m"))["max_batch_size"] == 1

    asyncio.run(play(scenario, settings(tmp_path, batching=False, wait_for_models=True)))


def test_without_a_limit_in_rows_large_requests_of_several_clients_are_computed(tmp_path: Path) -> None:
    """As in the drop-in, where the peer has no limit in rows: bytes count alone."""
    add(tmp_path, "m", 1)

    async def scenario(server: Server) -> None:
        batcher = server.engine._batcher
        assert batcher is not None
        assert repr(batcher.queue.room) == "<Room 0/524288 bytes (m: 0, 0 kept)>"
        model = server.repository.resolve("m")
        sizes = (3000, 3000, 3000, 3000, 10_000)
        requests = [InferenceRequest(rows_of(float(number), rows)) for number, rows in enumerate(sizes)]
        responses = await asyncio.gather(*[model.infer(request) for request in requests])
        for number, (rows, response) in enumerate(zip(sizes, responses, strict=True)):
            np.testing.assert_array_equal(response.outputs["y"], np.full((rows, 2), 2.0 * number))
        with pytest.raises(Overloaded, match="bytes wait"):
            await asyncio.gather(*[model.infer(InferenceRequest(rows_of(1.0, 40_000))) for _ in range(2)])

    more = {"max_batch_size": 512, "max_queue_size": 0, "memory_budget_mb": 1, "wait_for_models": True}
    asyncio.run(play(scenario, settings(tmp_path, **more)))
