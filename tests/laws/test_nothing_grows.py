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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.core.errors import ServingError
from app.core.events import RequestFinished
from app.core.inference import InferenceRequest
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.frontend.frontend_server import FrontendServer
from app.server.server import Server
from tests.every_protocol.driver import rows
from tests.every_protocol.live import settings
from tests.every_protocol.models import FAILED, REJECTED, ContractModel, ContractRuntime
from tests.repository.fakes import add
from tests.support.composed import places
from tests.support.waiting import HANG_S, until

#: Versions whose counts are kept after their end (app/instrumentation/counts.py) have come and gone in a round.
CYCLES = 6

PIPELINE = """
steps:
  first: {model: m, inputs: {features: features}}
outputs: {doubled: first.doubled}
"""

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

    def sizes(self) -> dict[str, int]:
        gc.collect()
        roots: dict[str, object] = {"server": self.server, "listener": self.listener, "listened": self.server.listener}
        found = places(roots | {f"frontend {n}": each for n, each in enumerate(self.frontends)})
        return {place: values.total() for place, values in found.items()}


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
            after = world.sizes()
            grown = {place: now - before.get(place, 0) for place, now in after.items()}
            grown = {place: by for place, by in grown.items() if by >= CYCLES}  # a leak grows in each of them
            assert not grown
            assert len(os.listdir("/proc/self/fd")) == files
            assert not [each() for each in loaded if each() is not None], "a model is in memory after its end"

    asyncio.run(main())
