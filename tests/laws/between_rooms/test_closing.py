"""What closes, closes once, last, in order: a version after all that know it have let it go, its files after it.

A server closes what answers callers before what executes for them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import runtime
from app.frontends.engine import engine_listener
from app.frontends.frontend.frontend_server import FrontendServer
from app.repository.repository import ModelRepository
from app.repository.version_policy import All
from app.server.server import Server
from tests.every_protocol.live import RUNTIME, frontends_of
from tests.every_protocol.live import settings as live_settings
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, add, remove, repository
from tests.support.waiting import HANG_S, until

# --- versions ---


class Frontends:
    """What frontends know: the models of the last catalog that they were sent. Each model checks it when it closes."""

    def __init__(self, folder: Path) -> None:
        self.known: set[object] = set()
        self.sent = 0
        self.loader = FakeLoader()
        self.repository: ModelRepository = repository(folder, self._load, All())
        self.repository.mirrored = self.mirrored

    def present(self) -> set[object]:
        """Those that requests find."""
        catalog = self.repository.catalog
        return {catalog.models[name][version].model for name in catalog.models for version in catalog.available(name)}

    async def mirrored(self) -> None:
        present = self.present()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.known = present
        self.sent += 1

    def publish(self) -> None:
        """As the engine does several times a second."""
        self.known = self.present()

    def _load(self, name: str, version: int, path: Path) -> FakeModel:
        model = self.loader(name, version, path)
        close = model.close

        async def watched() -> None:
            assert model not in self.known, f"version {version} closes while frontends send requests to it"
            assert model not in self.present(), f"version {version} closes while requests find it"
            await close()

        model.close = watched  # type: ignore[method-assign]  # watched, and as before
        return model


changes = st.tuples(
    st.sampled_from(["put", "put", "put", "break", "remove", "remove model", "unload", "load"]),
    st.sampled_from(["a", "b"]),
    st.integers(1, 3),
)


@settings(max_examples=40, deadline=None)
@given(schedule=st.lists(changes, min_size=2, max_size=12))
def test_a_version_closes_once_after_every_frontend_knows(
    schedule: list[tuple[str, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def main() -> None:
        world = Frontends(tmp_path_factory.mktemp("models"))
        folder, models = world.repository._source.folder, world.repository  # type: ignore[union-attr]  # a ModelsFolder
        await models.poll_once()
        for number, (what, name, version) in enumerate(schedule):
            await play(models, folder, number, what, name, version)
            world.publish()
            await models.poll_once()
            world.publish()
        await models.close()
        assert [each for each in world.loader.made if each.closed != 1] == []

    asyncio.run(main())


async def play(models: ModelRepository, folder: Path, number: int, what: str, name: str, version: int) -> None:  # noqa: PLR0917 - a step
    path = folder / name / str(version)
    if what in {"put", "break"}:
        add(folder, name, version, (BROKEN if what == "break" else b"good") + b"." * number)
    elif what == "remove" and path.exists():
        remove(folder, name, version)
    elif what == "remove model" and path.parent.exists():
        for each in path.parent.iterdir():
            remove(folder, name, each.name)
        path.parent.rmdir()
    elif what == "unload" and name in models.names():
        await models.unload(name)
    elif what == "load" and name in models.known_names() and path.exists():
        await asyncio.wait([asyncio.ensure_future(models.load(name))])


@pytest.mark.parametrize("number", [1, 2], ids=["the same number", "a newer number"])
def test_files_that_change_close_the_old_model_after_every_frontend_knows(number: int, tmp_path: Path) -> None:
    async def main() -> None:
        world = Frontends(tmp_path)
        add(tmp_path, "m", 1)
        await world.repository.poll_once()
        world.publish()
        add(tmp_path, "m", number, b"good and new")
        await world.repository.poll_once()
        (old, *new) = world.loader.made
        if number == 1:
            await until(lambda: old.closed == 1)
        assert [each.closed for each in new] == [0]
        await world.repository.close()
        assert [each.closed for each in world.loader.made] == [1, 1]

    asyncio.run(main())


def test_who_unloads_is_told_when_every_frontend_knows_whatever_there_was_to_unload(tmp_path: Path) -> None:
    """A version that serves, one that failed to load, and one that was unloaded before."""

    async def main() -> None:
        world = Frontends(tmp_path)
        add(tmp_path, "serves", 1)
        add(tmp_path, "fails", 1, BROKEN)
        await world.repository.poll_once()
        for name in ("serves", "fails"):
            sent = world.sent
            await world.repository.unload(name)
            assert world.sent > sent, f"frontends do not know that {name} is unloaded"
            assert not [each for each in world.known if isinstance(each, FakeModel) and each.name == name]
        await world.repository.close()

    asyncio.run(main())


# --- servers ---

#: In which order the parts of a server close.
ORDER = ["answers of long bodies", "gRPC", "access", "the engine"]


def watch(parts: dict[str, tuple[Any, str]], patch: pytest.MonkeyPatch) -> list[str]:
    """The names of the parts, as their methods begin, and again as they end."""
    closed: list[str] = []

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def close(*arguments: Any) -> Any:
            closed.append(name)
            found = method(*arguments)
            return found if not isinstance(found, Awaitable) else after(found)

        async def after(found: Awaitable[Any]) -> Any:
            result = await found
            closed.append(f"{name} has closed")
            return result

        return close

    for name, (part, method) in parts.items():
        patch.setattr(part, method, watched(name, getattr(part, method)))
    return closed


@pytest.mark.parametrize("frontend", [False, True], ids=["one process", "a frontend"])
def test_a_server_closes_each_part_once_and_the_engine_behind_all_that_need_it(
    frontend: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    access = tmp_path / "access.json"
    key = {"name": "k", "sha256": "0" * 64, "models": ["*"], "permissions": ["infer"]}
    access.write_text(json.dumps({"keys": [key]}))

    async def main() -> None:
        values = live_settings(tmp_path / "models", access_file=str(access), frontends=int(frontend))
        server = Server(values.model_copy(update={"frontends": 0}))
        await server.start()
        assert server._starting is not None
        await server._starting
        engine = Server(values) if frontend else server
        if frontend:
            await engine.start()
            assert engine._starting is not None
            await engine._starting
            async with frontends_of(engine) as (face,):
                watched = watched_parts(face, face._audit)
                await face.stop()
                closed = list(watched)  # the end of the block stops it again
            await engine.stop()
        else:
            closed = watched_parts(server, server._subscribers)
        await server.stop()
        once = [each for each in closed if not each.endswith(" has closed")]
        assert [each for each in once if each != "listeners"] == ORDER
        assert once.count("listeners") == 1
        assert closed.index("gRPC has closed") < closed.index("listeners"), "the last calls are heard"
        assert closed.index("gRPC has closed") < closed.index("the engine")

    def watched_parts(face: Any, listeners: Any) -> list[str]:
        return watch(
            {
                "answers of long bodies": (face.readers, "close"),
                "gRPC": (face.grpc, "stop"),
                "access": (face._access_control, "close"),
                "the engine": (face.engine, "close"),
                "listeners": (listeners, "close"),
            },
            monkeypatch,
        )

    asyncio.run(main())


def test_nobody_waits_for_a_frontend_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits until all of them know is told at once when one of them has gone."""
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    monkeypatch.setattr(engine_listener, "_SYNC_WITHIN_S", HANG_S)

    async def main() -> None:
        server = Server(live_settings(tmp_path, frontends=2))
        await server.start()
        assert server._starting is not None
        await server._starting
        async with frontends_of(server) as faces:
            stopped: FrontendServer = faces[0]
            connection: Any = stopped.engine._connection
            connection._transport.pause_reading()  # it is busy
            waiting = [asyncio.ensure_future(server.repository.mirrored()) for _ in range(3)]
            await asyncio.sleep(0)
            assert not any(each.done() for each in waiting)
            connection._transport.abort()
            async with asyncio.timeout(HANG_S / 2):
                await asyncio.gather(*waiting)
        await server.stop()

    asyncio.run(main())
