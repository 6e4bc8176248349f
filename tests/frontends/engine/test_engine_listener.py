"""Two frontends before a real server, all in one process: what they see of its models, and when."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from app import runtime
from app.core.errors import Forbidden, InvalidRequest, ModelNotFound, ModelNotReady, ServingError, ShuttingDown
from app.core.events import ConnectionsRejected, RequestFinished, RequestsRefused
from app.core.inference import BatchTiming, InferenceRequest
from app.core.reply import Answer
from app.frontends.engine import engine_listener
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.frontend.frontend_server import FrontendServer
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.repository.version_policy import NEWEST, All, Latest, Specific
from app.server.server import Server
from tests.every_protocol.drivers.driver import rows
from tests.every_protocol.live import RUNTIME, frontends_of, settings
from tests.instrumentation.pages import document_of
from tests.repository.fakes import add
from tests.support.waiting import HANG_S, until

Scenario = Callable[[Server, Sequence[FrontendServer]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)


def play(folder: Path, scenario: Scenario, models: WatchedModels | None = None, **more: Any) -> None:
    async def main() -> None:
        server = Server(settings(folder, frontends=2, **more), models)
        await server.start()
        assert server._starting is not None
        await server._starting
        async with asyncio.timeout(HANG_S), frontends_of(server) as frontends:
            await scenario(server, frontends)
        await server.stop()

    asyncio.run(main())


def transport_of(frontend: FrontendServer) -> asyncio.Transport:
    """Of its connection to the engine."""
    connection: Any = frontend.engine._connection
    return cast(asyncio.Transport, connection._transport)


async def ask(frontend: FrontendServer, value: float, name: str = "m", version: int | None = None) -> float:
    """What the model gives for the value: its double."""
    model = frontend.repository.resolve(name, version)
    response = await model.infer(InferenceRequest({"features": rows(value)}))
    return float(response.outputs["doubled"][0, 0])


def test_frontends_see_what_the_server_sees(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        ours = server.repository
        for frontend in frontends:
            theirs = frontend.repository
            assert (theirs.names(), theirs.known_names(), theirs.default_name()) == (
                ours.names(), ours.known_names(), ours.default_name(),
            )  # fmt: skip
            assert [theirs.statuses(name) for name in theirs.names()] == [ours.statuses(name) for name in ours.names()]
            assert theirs.resolve("m").signatures == ours.resolve("m").signatures
            assert theirs.resolve("m").sizes == ours.resolve("m").sizes
            assert (theirs.resolve("m").name, theirs.resolve("m").version) == ("m", 1)
            for name, error in {"broken": ModelNotReady, "nope": ModelNotFound}.items():
                with pytest.raises(error) as here:
                    theirs.resolve(name)
                with pytest.raises(error) as there:
                    ours.resolve(name)
                assert str(here.value) == str(there.value)
            assert await ask(frontend, 3.0) == 6.0

    play(tmp_path, scenario)


def test_frontends_know_the_labels_of_classes(tmp_path: Path) -> None:
    labels = tmp_path / "m" / "1" / "assets.extra" / "labels.txt"
    labels.parent.mkdir(parents=True)
    labels.write_text("cat\ndog\n")

    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        theirs = [frontend.repository.resolve("m").signatures for frontend in frontends]
        ours = server.repository.resolve("m").signatures
        assert "cat" in str(ours)
        assert theirs == [ours, ours]

    play(tmp_path, scenario)


def test_a_model_that_is_unloaded_is_so_for_all_when_that_is_said(tmp_path: Path) -> None:
    async def scenario(_: Server, frontends: Sequence[FrontendServer]) -> None:
        first, second = (frontend.repository for frontend in frontends)
        before = second.resolve("m")
        await first.unload("m")
        for repository in (first, second):
            with pytest.raises(ModelNotFound):
                repository.resolve("m")
        with pytest.raises(ModelNotReady):
            await before.infer(InferenceRequest({"features": rows(1.0)}))
        await second.load("m")
        assert first.resolve("m") is not before
        assert [await ask(frontend, 4.0) for frontend in frontends] == [8.0, 8.0]
        with pytest.raises(ModelNotFound, match="nope"):
            await first.load("nope")

    play(tmp_path, scenario)


def test_a_load_by_a_frontend_overrides_what_its_configuration_says(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        served = [frontend.open_inference for frontend in frontends]
        here = server.settings.max_batch_size
        for config, largest in (('{"max_batch_size": 2}', 2), ("{}", here)):
            await served[0].load_model("m", {"config": config})
            for each in served:
                assert (await each.model_config("m"))["max_batch_size"] == largest
            assert {frontend.repository.resolve("m").sizes.largest for frontend in frontends} == {largest}
            assert await ask(frontends[1], 3.0) == 6.0

    play(tmp_path, scenario)


def test_statistics_count_what_frontends_answered_until_then(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        asked = [frontends[1].open_inference, server.open_inference]
        for answered, served in enumerate(asked, start=1):
            frontends[0].engine.count(RequestFinished("open_inference_rest", "200", "m", 1, "serving_default", 0.5))
            (told,) = document_of(await served.model_statistics("m"))["model_stats"]
            assert told["inference_stats"]["success"] == {"count": answered, "ns": answered * 500_000_000}

    play(tmp_path, scenario)


def test_connections_and_requests_that_frontends_rejected_are_on_the_page_of_metrics(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        page = (await server.metrics()).body
        assert b'ferry_rejected_connections_total{reason="full"} 0.0' in page
        for frontend in frontends:
            frontend.listener(ConnectionsRejected("full", 2))
            frontend.listener(RequestsRefused("late", 3))
            frontend.engine._dropped_lines = lambda: 5
        await asyncio.gather(
            *[
                server.open_inference.model_statistics("m"),
                frontends[0].open_inference.model_statistics("m"),
            ]
        )
        page = (await server.metrics()).body
        assert b'ferry_rejected_connections_total{reason="full"} 4.0' in page
        assert b'ferry_refused_requests_total{cause="late"} 6.0' in page
        assert b"ferry_dropped_log_lines_total 10.0" in page

    play(tmp_path, scenario)


def test_what_a_frontend_had_resolved_is_answered_by_the_version_that_leaves(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        old = frontends[0].repository.resolve("m")
        add(tmp_path, "m", 2)
        await server.repository.poll_once()
        await until(lambda: server.repository.statuses("m", 1)[0].state == "UNLOADING")
        assert frontends[0].repository.resolve("m") is old, "it has not seen the new version yet"
        response = await old.infer(InferenceRequest({"features": rows(3.0)}))
        assert (response.version, response.outputs["doubled"].tolist()) == (1, [[6.0, 6.0]])
        await until(lambda: server.repository.statuses("m", 1)[0].state == "END")
        assert [frontend.repository.resolve("m").version for frontend in frontends] == [2, 2]
        assert [await ask(frontend, 4.0) for frontend in frontends] == [8.0, 8.0]

    play(tmp_path, scenario)


def test_where_each_request_runs_alone_none_travel_together(tmp_path: Path) -> None:
    async def scenario(_: Server, frontends: Sequence[FrontendServer]) -> None:
        models = [frontend.repository.resolve("m") for frontend in frontends]

        def join() -> list[int]:
            for model in models:  # quick, as it may be not while others keep this machine busy
                model.response(InferenceRequest({}), Answer({}, BatchTiming(0.0, 1e-5, 1)))
            return [model.coalescable_rows("serving_default") for model in models]

        assert all(join())
        await frontends[0].tune_batching("m", {"max_batch_size": 1})
        assert join() == [0, 0]
        await frontends[1].tune_batching("m", {"max_batch_size": 0})
        assert all(join())

    play(tmp_path, scenario)


def test_frontends_know_which_signatures_are_padded(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        model, theirs = server.repository.resolve("m"), frontends[0].repository.resolve("m")
        assert not theirs.pads("serving_default")
        model.pads = lambda signature: signature == "serving_default"  # type: ignore[method-assign]  # as after a probe
        add(tmp_path, "other", 1)
        await server.repository.load("other")
        await until(lambda: theirs.pads("serving_default"))
        assert not theirs.pads("other")

    play(tmp_path, scenario)


def test_a_model_that_stays_is_the_same_object(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        stays = frontends[1].repository.resolve("m")
        add(tmp_path, "other", 1)
        await server.repository.load("other")
        assert await ask(frontends[1], 2.0, "other") == 4.0
        assert frontends[1].repository.resolve("m") is stays

    play(tmp_path, scenario)


def test_labels_are_seen(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    config = ModelConfig("m", tmp_path / "m", NEWEST, {"stable": 1})

    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        assert frontends[0].repository.resolve("m", label="stable").version == 1
        await server.repository.reload([ModelConfig("m", tmp_path / "m", NEWEST, {"canary": 1})])
        assert frontends[1].repository.resolve("m", label="canary").version == 1
        with pytest.raises(InvalidRequest, match="stable"):
            frontends[1].repository.resolve("m", label="stable")

    play(tmp_path, scenario, WatchedModels([config]))


def test_a_caller_of_one_frontend_changes_the_list_for_all(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        add(tmp_path, "m", version)
        add(tmp_path, "n", version)
    few = ModelConfig("m", tmp_path / "m", Specific(frozenset({1, 3})), {"stable": 3})
    lists = [[few], [few, ModelConfig("n", tmp_path / "n", All())], [ModelConfig("n", tmp_path / "n", Latest(2))]]
    served = [{"m": [1, 3]}, {"m": [1, 3], "n": [1, 2, 3]}, {"n": [2, 3]}]

    async def scenario(_: Server, frontends: Sequence[FrontendServer]) -> None:
        theirs = frontends[1].engine.repository
        for configs, versions in zip(lists, served, strict=True):
            await frontends[0].engine.reload(configs)
            assert {name: sorted(found) for name in "mn" if (found := theirs.available(name))} == versions
        with pytest.raises(Forbidden):
            await frontends[0].engine.reload([ModelConfig("m", Path("/etc"))])

    play(tmp_path, scenario, WatchedModels([ModelConfig("m", tmp_path / "m")]))


def test_requests_of_all_frontends_share_batches_and_leave_the_queue_with_their_frontend(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        model: Any = server.repository.resolve("m")
        loaded = model._placement.loaded
        loaded.calls.clear()  # whether rows may share calls was tried
        loaded.hold()
        first = asyncio.ensure_future(ask(frontends[0], 1.0))
        assert await asyncio.to_thread(loaded.waits.wait, HANG_S)
        waiting = [asyncio.ensure_future(ask(frontends[n % 2], 2.0 + n)) for n in range(6)]
        await until(lambda: server.engine.queue_rows() == 6)
        transport_of(frontends[1]).abort()
        await until(lambda: server.engine.queue_rows() == 3)
        loaded.release()
        assert await first == 2.0
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert answers[::2] == [4.0, 8.0, 12.0]
        assert [type(answer) for answer in answers[1::2]] == [ModelNotReady] * 3
        assert loaded.calls == [[1.0], [2.0, 4.0, 6.0, 2.0]], "one batch, and a row of padding"
        await until(lambda: frontends[1].engine.is_connected)
        assert await ask(frontends[1], 9.0) == 18.0

    play(tmp_path, scenario)


def test_large_tensors_come_and_go_by_shared_memory(tmp_path: Path) -> None:
    async def scenario(_: Server, frontends: Sequence[FrontendServer]) -> None:
        features = np.arange(2 * 20_000, dtype=np.float32).reshape(-1, 2) + 100
        model = frontends[0].repository.resolve("m")
        for _ in range(3):
            response = await model.infer(InferenceRequest({"features": features}))
            np.testing.assert_array_equal(response.outputs["doubled"], features * 2)

    play(tmp_path, scenario, max_queue_size=20_000)


def test_health_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        assert frontends[0].dead() == []
        assert frontends[0].unready() == [], "one broken model does not make the others unavailable"
        assert frontends[0].problems() == ["Model broken version 1 failed to load: broken/1 holds no graph"]
        assert document_of(await frontends[0].summary())["models"]["m"][0]["state"] == "AVAILABLE"
        monkeypatch.setattr(server, "failure", "it is broken")
        await until(lambda: frontends[0].dead() == frontends[1].dead() == ["it is broken"])
        server.engine.begin_drain()
        await until(lambda: frontends[0].unready() == ["The server is draining"])

    play(tmp_path, scenario)


def test_an_engine_rejects_nothing_before_each_frontend_does(tmp_path: Path) -> None:
    async def scenario(server: Server, frontends: Sequence[FrontendServer]) -> None:
        first, second = frontends
        drained = asyncio.create_task(cast(Any, server.repository.mirrored).__self__.drained(HANG_S))
        first.begin_grace()
        assert (first.unready(), second.unready()) == (["The server was told to end"], [])
        assert await ask(first, 3.0) == 6.0

        first.engine.begin_drain()
        with pytest.raises(ShuttingDown):
            await ask(first, 3.0)
        assert await ask(second, 3.0) == 6.0  # the engine has read what the first one said
        assert not drained.done()

        second.engine.begin_drain()
        await drained

    play(tmp_path, scenario)


def test_a_frontend_that_takes_nothing_in_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_listener, "_SYNC_WITHIN_S", 0.05)

    async def scenario(_: Server, frontends: Sequence[FrontendServer]) -> None:
        transport_of(frontends[0]).pause_reading()
        await frontends[1].repository.unload("m")
        transport_of(frontends[0]).resume_reading()

    play(tmp_path, scenario)


def test_a_connection_without_a_hello_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path))
        accepting = EngineListener(server)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/engine")
            listener.listen()
            accepting.open(listener)
            for greeting in (b"", b"?"):
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(stranger, f"{folder}/engine")
                    stranger.send(greeting)
                    stranger.shutdown(socket.SHUT_WR)
                    assert await asyncio.get_running_loop().sock_recv(stranger, 1) == b""
            await accepting.close(0)
        with suppress(ServingError):
            await server.stop()
        assert caplog.text.count("A connection to the engine was closed: it did not begin as a frontend does") == 2

    asyncio.run(main())
