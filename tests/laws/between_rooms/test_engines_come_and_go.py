"""Engines come and go under a frontend: what one said goes with it, and the next one is told what the last one knew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ServingError
from app.frontends.frontend import remote_engine
from app.frontends.frontend.frontend_server import FrontendServer
from app.frontends.frontend.remote_engine import RemoteEngine
from app.server.server import Server
from tests.laws.between_rooms.test_frontends_equal_one_process import _is_back, play
from tests.support.waiting import HANG_S, until


async def lose(frontend: FrontendServer) -> object:
    """The connection that was lost."""
    connection: Any = frontend.engine._connection
    connection._transport.abort()
    await connection.closed
    return connection


def test_what_an_engine_said_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Server, frontend: FrontendServer) -> None:
        monkeypatch.setattr(remote_engine, "_RECONNECT_AFTER_S", HANG_S)  # until the end of the test
        said = {"dead": "it is stuck", "unready": "it loads", "problems": "m is broken"}
        with monkeypatch.context() as patch:
            for what, text in said.items():
                patch.setattr(server, what, lambda text=text: [text])
            await server.repository.mirrored()
            await until(lambda: all(getattr(frontend, what)() == [text] for what, text in said.items()))
        await lose(frontend)
        await until(lambda: not frontend.engine.is_connected)
        assert frontend.dead() == frontend.problems() == []
        assert frontend.unready() == ["The engine is starting"]
        assert frontend.repository.names() == frontend.repository.known_names() == []
        with pytest.raises(ServingError):
            frontend.repository.resolve("m")

    play(tmp_path, scenario, monkeypatch)


def test_a_new_engine_is_told_that_its_frontend_drains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would wait for more of its requests until the time for that is over."""

    async def scenario(server: Server, frontend: FrontendServer) -> None:
        listener: Any = server.pages.counted.__self__  # type: ignore[union-attr]  # that of its frontends
        frontend.engine.begin_drain()
        await until(lambda: [each.draining for each in listener.connections] == [True])
        lost = await lose(frontend)
        await until(lambda: _is_back(frontend, lost))
        await until(lambda: [each.draining for each in listener.connections] == [True])
        await listener.drained(HANG_S)

    play(tmp_path, scenario, monkeypatch)


def test_what_changes_the_models_may_take_any_time_and_what_shows_them_may_not() -> None:
    """A load takes minutes; its caller is told how it ended."""
    limits: dict[str, float] = {}

    class Connection:
        async def query(self, name: str, *_: Any, timeout_s: float) -> Any:
            limits[name] = timeout_s

    async def main() -> None:
        engine = RemoteEngine(Path("engine"), inf)
        engine._connection = Connection()  # type: ignore[assignment]  # as much as is used
        engine.on_health((), (), ())
        changes: list[Callable[[], Awaitable[Any]]] = [
            lambda: engine.repository.load("m"),
            lambda: engine.repository.unload("m"),
            lambda: engine.reload([]),
        ]
        for change in changes:
            await change()
        assert list(limits.values()) == [inf] * len(changes)
        for name in ("metrics", "summary", "statistics", "explain batching", "tune batching", "config"):
            await engine.query(name)
            assert limits[name] < inf

    asyncio.run(main())
