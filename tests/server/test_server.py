import asyncio
import gc
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from app import runtime
from app.batching.policy import BatchingOptions
from app.config.settings import Settings
from app.core.errors import InvalidRequest, ModelNotFound, ShuttingDown
from app.core.inference import Array, InferenceRequest
from app.runtime import CompiledPrograms, RuntimeOptions
from app.server.http_app import HttpApp
from app.server.server import Server
from app.transports.tls.texts import TlsError
from tests.instrumentation.pages import document_of
from tests.support.fakes import FakeLoadedModel, FakeRuntime, rows_of
from tests.support.waiting import HANG_S, until


class HeldModel(FakeLoadedModel):
    """Works until it is released."""

    release = threading.Event()
    started = threading.Event()

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if inputs["x"].any():
            self.started.set()
            self.release.wait(HANG_S)
        return super().run(signature, inputs, outputs)


class HeldRuntime(FakeRuntime):
    def load(self, path: Path) -> FakeLoadedModel:
        return HeldModel()


class HeldLoadRuntime(FakeRuntime):
    """Version 1 loads at once, any other when it is released."""

    release = threading.Event()

    def load(self, path: Path) -> FakeLoadedModel:
        if path.name != "1":
            self.release.wait(HANG_S)
        return super().load(path)


class HeldStartRuntime(FakeRuntime):
    """Starts when it is released, as one does whose import takes long."""

    release = threading.Event()
    started = False

    def __init__(self, options: RuntimeOptions | None = None) -> None:
        self.release.wait(HANG_S)
        HeldStartRuntime.started = True
        super().__init__(options)


class FullRuntime(FakeRuntime):
    """It compiled as much as it may."""

    compiled_programs = CompiledPrograms(7, 7)


class CollectingRuntime(FakeRuntime):
    """Notes whether garbage is collected while it starts."""

    collected = True

    def __init__(self, options: RuntimeOptions | None = None) -> None:
        super().__init__(options)
        CollectingRuntime.collected = gc.isenabled()


@pytest.fixture(autouse=True)
def _fake_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, maker in {"fake": "FakeRuntime", "missing": "NoSuchRuntime"}.items():
        monkeypatch.setitem(runtime._REGISTRY, name, f"tests.support.fakes:{maker}")
    monkeypatch.setitem(runtime._REGISTRY, "held", "tests.server.test_server:HeldRuntime")
    monkeypatch.setitem(runtime._REGISTRY, "held_load", "tests.server.test_server:HeldLoadRuntime")
    monkeypatch.setitem(runtime._REGISTRY, "full", "tests.server.test_server:FullRuntime")
    monkeypatch.setitem(runtime._REGISTRY, "collecting", "tests.server.test_server:CollectingRuntime")


def settings(folder: Path, runtime_name: str = "fake", **more: object) -> Settings:
    version = folder / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "saved_model.pb").touch()
    values: dict[str, Any] = {"models": folder, "runtime": runtime_name, "max_batch_size": 4, "grpc_port": 0}
    values |= {"drain_grace_s": 0.0, **more}
    if runtime_name == "held":
        values["max_inline_ms"] = 0  # a call that is held must not hold the event loop
        values["row_independence"] = {"m": "assume"}  # and a probe would be held, too
    return Settings(**{name: value for name, value in values.items() if name in Settings.model_fields})


async def started(server: Server) -> Server:
    await server.start()
    assert server._starting is not None
    await server._starting
    return server


def test_an_engine_behind_frontends_starts_whatever_the_files_of_tls_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not need them, and frontends that run serve on with what they read before."""
    missing = {"tls_certificate": "/none.crt", "tls_key": "/none.key"}
    assert Server(settings(tmp_path, frontends=1, **missing)).tls is None
    assert "tls_certificate (/none.crt) cannot be read: No such file or directory; frontends serve on" in caplog.text
    with pytest.raises(TlsError, match=r"tls_certificate \(/none\.crt\) cannot be read"):
        Server(settings(tmp_path, **missing))


def test_ready_when_models_are_loaded_and_warm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path))
        assert server.unready() == ["The runtime is starting"]
        assert repr(server) == "<Server, The runtime is starting>"
        with caplog.at_level("INFO"):
            await started(server)
        assert "Model m version 1 warms up: 1 of" in caplog.text
        assert server.unready() == server.dead() == []
        assert repr(server) == "<Server, ready>"
        response = await server.repository.resolve("m").infer(InferenceRequest(rows_of(2.0)))
        assert response.outputs["y"].tolist() == [[4.0, 4.0]]
        summary = document_of(await server.summary())
        assert summary["status"] == "ready"
        assert summary["devices"] == ["fake:0"]
        assert summary["batch_sizes"] == [1, 2, 4]
        assert summary["largest_bodies"] == (server.memory.room.told() or None)
        assert summary["models"]["m"] == [{"version": 1, "state": "AVAILABLE", "error": ""}]
        page, content_type, _ = await server.metrics()
        assert b"ferry_queue_rows 0.0" in page
        assert content_type.startswith("text/plain")
        await server.stop()

    asyncio.run(main())


def test_a_server_that_compiled_all_it_may_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path, "full"))
        assert document_of(await server.summary())["compiled_programs"] is None
        await started(server)
        assert document_of(await server.summary())["compiled_programs"] == {
            "number": 7, "limit": 7, "consequence": "what is loaded from now on is not compiled",
        }  # fmt: skip
        assert b"ferry_compiled_programs 7.0" in (await server.metrics())[0]
        await server.stop()

    asyncio.run(main())


def test_warm_up_can_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with caplog.at_level("INFO"):
            server = await started(Server(settings(tmp_path, warm_up=False)))
        assert "warms up" not in caplog.text
        await server.stop()

    asyncio.run(main())


def test_several_batches_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        server = await started(Server(settings(tmp_path, batches_in_flight=3)))
        assert "<DeviceSlots 3 of 3 free>" in repr(server.engine._batcher)
        await server.stop()

    asyncio.run(main())


def test_no_garbage_is_collected_while_the_runtime_starts(tmp_path: Path) -> None:
    async def main() -> None:
        server = await started(Server(settings(tmp_path, "collecting")))
        assert not CollectingRuntime.collected
        assert gc.isenabled()
        await server.stop()

    asyncio.run(main())


def test_a_runtime_that_does_not_start_turns_liveness_red(tmp_path: Path) -> None:
    async def main() -> None:
        server = await started(Server(settings(tmp_path, "missing")))
        assert server.dead()[0].startswith("Ferry could not start")
        assert document_of(await server.summary())["status"] == "not ready"
        await server.stop()

    asyncio.run(main())


def test_a_watch_that_ended_turns_liveness_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        server = await started(Server(settings(tmp_path)))
        monkeypatch.setattr(server.repository, "alive", lambda: False)
        assert server.dead() == ["The models folder is no longer watched"]
        await server.stop()

    asyncio.run(main())


def test_what_loads_is_named_while_it_loads(tmp_path: Path) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path, "fake"))
        await started(server)
        server.engine._loader._report("m", 2, 1, 7, "signature 's' with 1 row")
        assert server.unready() == []  # a version beside the one that serves keeps nobody waiting
        await server.stop()

    asyncio.run(main())


def test_drain_answers_what_was_accepted_and_rejects_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        HeldModel.release.clear()
        server = await started(Server(settings(tmp_path, "held")))
        model = server.repository.resolve("m")
        accepted = asyncio.create_task(model.infer(InferenceRequest(rows_of(2.0))))
        await asyncio.sleep(0)
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        assert server.unready() == ["The server is draining"]
        assert not server.engine.drained
        with pytest.raises(ShuttingDown):
            await model.infer(InferenceRequest(rows_of(2.0)))
        HeldModel.release.set()
        assert await draining
        assert (await accepted).outputs["y"].tolist() == [[4.0, 4.0]]
        await server.stop()

    asyncio.run(main())


def test_with_nothing_accepted_a_drain_is_over_as_soon_as_it_begins(tmp_path: Path) -> None:
    """A second signal may follow the first at once: then the exit code says that nothing is lost."""

    async def main() -> None:
        server = await started(Server(settings(tmp_path)))
        assert not server.engine.drained
        server.engine.begin_drain()
        assert server.engine.drained
        await server.stop()

    asyncio.run(main())


def test_a_drain_that_takes_too_long_is_given_up_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        HeldModel.release.clear()
        server = await started(Server(settings(tmp_path, "held", drain_timeout_s=0.01)))
        accepted = asyncio.create_task(server.repository.resolve("m").infer(InferenceRequest(rows_of(2.0))))
        await asyncio.sleep(0)
        assert not await server.drain()
        assert "Not drained after 0.01 s" in caplog.text
        assert not await server.drain()  # `stop` asks again; the time is not waited for twice
        assert caplog.text.count("Not drained") == 1
        HeldModel.release.set()
        await accepted
        await server.stop()

    asyncio.run(main())


def test_stopping_before_the_start_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path))
        await server.stop()
        await server.start()
        await server.stop()
        assert server.unready()[0] == "The server is draining"

    asyncio.run(main())


def test_stopping_does_not_wait_for_a_load_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.engine._UNLOAD_TIMEOUT_S", 0.01)
    HeldLoadRuntime.release.clear()

    async def main() -> None:
        server = await started(Server(settings(tmp_path, "held_load", poll_interval_s=0.01)))
        (tmp_path / "m" / "2").mkdir()
        (tmp_path / "m" / "2" / "saved_model.pb").touch()
        await until(lambda: server.repository.statuses("m")[0].state == "LOADING")
        await server.stop()
        HeldLoadRuntime.release.set()

    asyncio.run(main())


def test_batching_is_changed_while_the_server_runs(tmp_path: Path) -> None:
    async def main() -> None:
        server = await started(Server(settings(tmp_path, model_weights={"m": 3.0})))
        engine = server.engine
        assert engine.batching_options("m") == BatchingOptions(weight=3.0)
        engine.tune("m", engine.batching_options("m").changed({"max_batch_size": 2, "target_p99_ms": 20}))
        assert engine.batching_options("m").as_dict() == {
            "max_batch_size": 2, "max_batch_delay_ms": 0.0, "target_p99_ms": 20,
            "weight": 3.0,
        }  # fmt: skip
        requests = [InferenceRequest(rows_of(float(value))) for value in range(4)]
        responses = await asyncio.gather(*map(server.repository.resolve("m").infer, requests))
        assert [response.timing.rows for response in responses] == [2, 2, 2, 2]
        with pytest.raises(InvalidRequest, match="max_batch_size is 5, but should be at most 4"):
            engine.tune("m", BatchingOptions(max_batch_size=5))
        with pytest.raises(ModelNotFound):
            engine.tune("n", BatchingOptions())
        engine.tune("m", BatchingOptions(max_batch_size=1))
        responses = await asyncio.gather(*map(server.repository.resolve("m").infer, requests))
        assert [response.timing.rows for response in responses] == [1, 1, 1, 1]
        assert engine.batching_options("m") == BatchingOptions(max_batch_size=1)
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    "path", ["/tensorflow.serving.PredictionService/Predict", "/inference.GRPCInferenceService/ModelInfer"]
)
def test_all_protocols_share_one_memory_for_clients(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path, memory_budget_mb=4))
        await started(server)
        assert server.memory.take_body(2 * 1024**2)  # the half that is not the queue's
        assert HttpApp(server).fast_path.memory is server.memory
        page = (await server.metrics()).body
        assert b'ferry_memory_bytes{held_for="bodies"} 2.097152e+06' in page
        assert b"ferry_memory_budget_bytes 4.194304e+06" in page
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            call = channel.unary_unary(path)(bytes(100_000))
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert "take 2,097,152 of 2,097,152 bytes" in await call.details()
        await server.stop()

    asyncio.run(main())
