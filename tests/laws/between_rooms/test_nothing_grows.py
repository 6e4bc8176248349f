"""What is forgotten is forgotten everywhere: after as many models, versions, callers and frontends, nothing has grown.

The law looks at every object that can be reached from a server, its listener of frontends, and a frontend.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.core.errors import Forbidden, ServingError
from app.core.events import RequestFinished
from app.core.inference import InferenceRequest
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.frontend.frontend_server import FrontendServer
from app.instrumentation.counts import BatchCounts
from app.instrumentation.histogram import Histogram
from app.repository.disk.local_copies import LocalCopies
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.repository.version_policy import NEWEST
from app.server.server import Server
from tests.every_protocol.drivers.driver import rows
from tests.every_protocol.live import settings
from tests.every_protocol.models import FAILED, REJECTED, ContractModel, ContractRuntime
from tests.laws.between_rooms.composed import places
from tests.repository.fakes import FakeModel, StorageThread, add
from tests.support.waiting import HANG_S, until

#: Versions whose counts are kept after their end (app/instrumentation/counts.py) have come and gone in a round.
CYCLES = 6
#: Until what has ended must be let go. Chosen.
LETS_GO_S = 10.0

PIPELINE = """
steps:
  first: {model: m, inputs: {features: features}}
outputs: {doubled: first.doubled}
"""

#: Numbers that count what has been, name versions or states, and do not tell what is there.
ONLY_COUNTED = (
    "BatchCounts.", "Catalog.models", "CatalogSnapshot.", "Counts.", "EngineListener._last_id",
    "EngineConnection._last_id", "Histogram.", "LoadCounts.",
    "ModelStatistics._counts", "RemoteRepository.models",
    "Servable.version", "VersionFiles.", "VersionLives.", "_KeptLines.numbers",
)  # fmt: skip

loaded: list[weakref.ref[ContractModel]] = []


class NotedRuntime(ContractRuntime):
    """Its models say that they were loaded in an unusual way."""

    def load(self, path: Path) -> ContractModel:  # type: ignore[override]  # no model in fakes.py
        model = super().load(path)
        model.note = f"version {path.name} runs in a session"  # type: ignore[attr-defined]  # see note_of
        loaded.append(weakref.ref(model))
        return model


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "every_protocol", f"{__name__}:NotedRuntime")
    monkeypatch.setattr(f"{__name__}.loaded", [])
    monkeypatch.setattr("app.repository.reconciler._ENDED_KEPT", 2)
    monkeypatch.setattr("app.frontends.engine.engine_listener._SYNC_WITHIN_S", 0.5)
    monkeypatch.setattr("app.frontends.frontend.remote_engine._RECONNECT_AFTER_S", 0.0)


class World:
    """A server, and the frontends before it if there are any: `faces` are what callers ask."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.listener: EngineListener | None = None
        self.frontends: list[FrontendServer] = []
        self.version = 1

    @property
    def faces(self) -> Sequence[Any]:
        return self.frontends or [self.server]

    async def cycle(self) -> None:
        """Versions of a model and of a pipeline come, are asked in every way, and go."""
        # 1. A new version in place of the last one.
        self.version += 1
        add(self.folder, "m", self.version)
        pipeline = self.folder / "p" / str(self.version)
        pipeline.mkdir(parents=True)
        (pipeline / "pipeline.yaml").write_text(PIPELINE)
        repository = self.faces[-1].repository
        for name in ("m", "p"):
            await repository.load(name)

        # 2. All kinds of ends of a request.
        for face in self.faces:
            for name in ("m", "p"):
                model = face.repository.resolve(name)
                for value in (1.0, REJECTED, FAILED):
                    with suppress(ServingError):
                        await model.infer(InferenceRequest({"features": rows(value)}))
                left = asyncio.create_task(model.infer(InferenceRequest({"features": rows(2.0)})))
                await asyncio.sleep(0)
                left.cancel()
                await asyncio.wait([left])
                face.listener(RequestFinished("rest", "200", name, self.version, "serving_default", 0.01))
            await face.metrics()
            await face.summary()
            await face.open_inference.model_statistics()

        # 3. They are unloaded, and their files go.
        for name in ("p", "m"):
            await repository.unload(name)
            shutil.rmtree(self.folder / name)
        add(self.folder, "m", self.version + 1)
        self.version += 1
        with suppress(ServingError):
            await repository.load("no such model")

    async def reconnect(self) -> None:
        """A frontend loses its connection, as if one of both had been started anew."""
        for frontend in self.frontends:
            connection: Any = frontend.engine._connection
            connection._transport.abort()
            await connection.closed
            await until(partial(_is_back, frontend, connection))

    def sizes(self) -> dict[str, float]:
        """By place, how many values it has, and as `place, sum` what they come to, if they are whole numbers."""
        gc.collect()
        roots: dict[str, object] = {"server": self.server, "listener": self.listener, "listened": self.server.listener}
        found = places(roots | {f"frontend {n}": each for n, each in enumerate(self.frontends)})
        sizes: dict[str, float] = {place: values.total() for place, values in found.items()}
        for place, values in found.items():
            numbers = [int(value) * times for value, times in values.items() if value.removeprefix("-").isdecimal()]
            if numbers and not place.startswith(ONLY_COUNTED):
                sizes[f"{place}, sum"] = abs(sum(numbers))
        return sizes


def _is_back(frontend: FrontendServer, lost: object) -> bool:
    return frontend.engine._connection is not lost and frontend.engine.is_connected


@asynccontextmanager
async def world_of(folder: Path, frontends: int) -> AsyncIterator[World]:
    models = folder / "models"
    server = Server(settings(models, frontends=frontends, row_independence={"*": "assume"}))
    shutil.rmtree(models / "broken")
    await server.start()
    assert server._starting is not None
    await server._starting
    world = World(models, server)
    with socket.socket(socket.AF_UNIX) as listening:
        if frontends:
            listening.bind(f"{folder}/engine")
            listening.listen()
            world.listener = EngineListener(server)
            world.listener.open(listening)
            world.frontends = [FrontendServer(server.settings, folder / "engine") for _ in range(frontends)]
            for each in world.frontends:
                each.engine.start()
                await each.engine.wait_until_connected()
        try:
            async with asyncio.timeout(HANG_S):
                yield world
        finally:
            for each in world.frontends:
                await each.stop()
            if world.listener is not None:
                await world.listener.close(HANG_S)
            await server.stop()


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
def test_what_came_and_went_leaves_nothing_behind(frontends: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with world_of(tmp_path, frontends) as world:
            for _ in range(CYCLES):
                await world.cycle()
                await world.reconnect()
            before, files = world.sizes(), len(os.listdir("/proc/self/fd"))
            for _ in range(CYCLES):
                await world.cycle()
                await world.reconnect()
            grown = {"all": inf}

            def is_as_before() -> bool:
                grown.clear()
                now = {place: size - before.get(place, 0) for place, size in world.sizes().items()}
                grown.update({place: by for place, by in now.items() if by >= CYCLES})  # a leak grows in each of them
                return not grown

            # Files of ended versions are looked after in the background.
            with suppress(TimeoutError):
                async with asyncio.timeout(LETS_GO_S):
                    await until(is_as_before)
            assert not grown
            assert len(os.listdir("/proc/self/fd")) == files
            assert not [each() for each in loaded if each() is not None], "a model is in memory after its end"

    asyncio.run(main())


def test_what_is_counted_of_versions_that_end_goes_on_being_counted() -> None:
    """A counter of Prometheus never falls: what an ended version's counts hold is added to those of its model."""
    ended = BatchCounts()
    for number, name in enumerate(vars(ended), 1):
        value = getattr(ended, name)
        if isinstance(value, Counter):
            value["one"] += number
        elif isinstance(value, Histogram):
            value.observe(float(number))
        else:
            setattr(ended, name, float(number))
    past = BatchCounts()
    for _ in range(2):
        past = past + ended
    for name, value in vars(ended).items():
        found = getattr(past, name)
        if isinstance(value, Counter):
            assert found == value + value, name
        elif isinstance(value, Histogram):
            assert (sum(found.counts), found.total) == (2 * sum(value.counts), 2 * value.total), name
        else:
            assert found == 2 * value, name


def test_copies_on_disk_leave_with_their_versions(tmp_path: Path) -> None:
    """Whether they were loaded, have assets that stay in use, failed to load, or were never taken."""

    async def main() -> None:
        copies = LocalCopies(StorageThread(), tmp_path / "temporary")
        for cycle in range(2 * CYCLES):
            if cycle == CYCLES:
                before = _entries(copies)
            for name in ("plain", "assets", "fails", "again"):
                version = add(tmp_path / "models", name, cycle)
                if name == "assets":
                    (version / "assets").mkdir()
                    (version / "assets" / "words").write_text("a")
                await copies.make(version)
                if name == "again":
                    await copies.make(version)
                copy = copies.take(version)
                assert copy is not None
                model: Any = None if name == "fails" else FakeModel(name, cycle, version)
                await copies.loaded(copy, model)
                assert copy.exists() == (name == "assets")
                if model is not None:
                    await copies.unloaded(model)
                assert not copy.exists()
        assert _entries(copies) == before
        await copies.close()

    (tmp_path / "temporary").mkdir()
    asyncio.run(main())


def _entries(copies: LocalCopies) -> dict[str, int]:
    gc.collect()
    found = places({"copies": copies})
    return {place: values.total() for place, values in found.items() if place.startswith("LocalCopies.")}


def test_folders_that_the_operator_adds_are_roots_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller may load what lies below any folder that the operator has listed, now or before, and nothing else."""

    async def main() -> None:
        listed = [ModelConfig("m", tmp_path / "first" / "m", NEWEST)]
        server = Server(settings(tmp_path / "models"), WatchedModels(listed, None))
        for number, folder in enumerate(("first", "second", "third")):
            config = ModelConfig("m", tmp_path / folder / "m", NEWEST)
            add(tmp_path / folder, "m", 1)
            if number:
                with pytest.raises(Forbidden):
                    server.engine._roots.check([config])
                monkeypatch.setattr(server.engine.repository, "reload", _accept)
                await server.engine._reload_listed([config])
            server.engine._roots.check([config])
        await server.engine.close(drained=False)

    asyncio.run(main())


async def _accept(configs: Sequence[ModelConfig]) -> None:
    """The repository has tests of its own."""
