import asyncio
import socket
from functools import partial
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.core.errors import ModelNotReady, Unsupported
from app.core.events import RequestFinished, RequestsFinished
from app.frontends.frontend import remote_engine
from app.frontends.frontend.frontend_server import FrontendServer
from app.frontends.frontend.remote_engine import RemoteEngine
from tests.instrumentation.pages import document_of
from tests.support.waiting import until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_engine_that_falls_silent_is_dead() -> None:
    clock = Clock()
    engine = RemoteEngine(Path("nowhere"), 60.0, clock)
    clock.now += 1000  # it never was there: that is a matter of readiness
    assert engine.dead() == []
    assert engine.unready() == ["The engine is starting"]
    engine.on_health([], [], [])
    assert (engine.dead(), engine.unready()) == ([], [])
    clock.now += 2.5
    assert (engine.dead(), engine.unready()) == ([], ["The engine has sent nothing for 2 s"])
    assert not engine.answers
    clock.now += 58.5
    assert engine.dead() == ["The engine has sent nothing for 61 s"]
    engine.on_health(["stuck"], ["The server is draining"], ["m is broken"])
    engine.begin_drain()
    assert (engine.dead(), engine.unready()) == (["stuck"], ["The server is draining"])
    assert engine.problems() == ["m is broken"]


def test_what_is_counted_while_the_engine_is_away_is_limited(monkeypatch) -> None:
    monkeypatch.setattr(remote_engine, "_MOST_COUNTED", 3)

    async def main() -> None:
        engine = RemoteEngine(Path("nowhere"), 60.0)
        for n in range(5):
            engine.count(RequestFinished("rest", "503", "", 0, "", float(n)))
        engine.count(RequestsFinished("rest", "503", "", 0, "", [5.0]))
        engine.count(RequestsFinished("rest", "200", "m", 1, "s", [6.0, 7.0]))
        engine.count(RequestsFinished("rest", "200", "m", 1, "s", [8.0, 9.0]))
        assert list(engine._counted.values()) == [[0.0, 1.0, 2.0], [6.0, 7.0, 8.0]]
        await engine.close()

    asyncio.run(main())


def test_a_frontend_without_an_engine_starts_says_so_and_stops(tmp_path: Path, caplog) -> None:
    async def main() -> None:
        frontend = FrontendServer(Settings(frontends=1), tmp_path / "engine")
        await frontend.start()
        await until(lambda: "The engine cannot be reached" in caplog.text)
        assert document_of(await frontend.summary()) == {"status": "not ready", "reasons": ["The engine is starting"]}
        assert frontend.repository.names() == frontend.repository.known_names() == []
        await frontend.stop()
        assert frontend.stopped

    asyncio.run(main())


def test_a_frontend_tells_why_it_has_no_shared_memory_and_what_to_use(tmp_path: Path) -> None:
    async def main() -> None:
        served = FrontendServer(Settings(frontends=1), tmp_path / "engine").open_inference
        calls = [
            partial(served.register_region, "r", "ferry_r", 0, 8, ("127.0.0.1", 1), permit=None),
            partial(served.unregister_region, "", ("127.0.0.1", 1), permit=None),
        ]
        for call in calls:
            with pytest.raises(
                Unsupported, match=r"known to one process only, .* \(setting frontends\)\. Send tensors in"
            ):
                await call()

    asyncio.run(main())


def test_a_query_does_not_wait_for_an_engine_that_does_not_run(tmp_path: Path) -> None:
    """The supervisor's socket takes the frontend's connection while the engine restarts; nothing answers there."""

    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as supervisor:
            supervisor.bind(str(tmp_path / "engine"))
            supervisor.listen(1)
            frontend = FrontendServer(Settings(frontends=1), tmp_path / "engine")
            await frontend.start()
            await until(lambda: "EngineConnection open" in repr(frontend.engine))
            with pytest.raises(ModelNotReady, match="The engine is restarting"):
                await frontend.metrics()
            await frontend.stop()

    asyncio.run(main())


def test_a_drain_ends_the_wait_for_the_models(tmp_path: Path) -> None:
    async def main() -> None:
        frontend = FrontendServer(Settings(frontends=1, wait_for_models=True), tmp_path / "engine")
        starting = asyncio.create_task(frontend.start())
        await asyncio.sleep(0)
        assert not starting.done()
        assert await frontend.drain()
        await starting
        await frontend.stop()

    asyncio.run(main())


def test_an_engine_prints_its_state() -> None:
    engine = RemoteEngine(Path("nowhere"), 60.0, Clock())
    assert repr(engine) == "<RemoteEngine waiting for the engine, None>"
    engine.on_health([], [], [])
    assert repr(engine) == "<RemoteEngine ready, None>"
    engine.begin_drain()
    assert repr(engine) == "<RemoteEngine draining, None>"
