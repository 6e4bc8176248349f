"""A models folder to play with, and a loader that needs no runtime."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from app.core.errors import InferenceFailed
from app.core.events import Event, ModelStateChanged
from app.repository.model_sources import ModelList, ModelsFolder
from app.repository.repository import ModelRepository
from app.repository.version_policy import NEWEST, VersionPolicy
from tests.support.waiting import HANG_S

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

BROKEN = b"broken"


@dataclass(eq=False)
class FakeModel:
    name: str
    version: int
    path: Path
    closed: int = 0
    fail_to_close: bool = False
    leased: bool = False
    missing: str = ""
    note: str = ""
    #: What it accepted is answered when this is set.
    answered: asyncio.Event | None = None

    async def close(self) -> None:
        if self.answered is not None:
            await self.answered.wait()
        self.closed += 1
        if self.fail_to_close:
            raise RuntimeError("stuck")


@dataclass
class FakeLoader:
    """Loads any version whose file does not say that it is broken; remembers every model it made."""

    made: list[FakeModel] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def __call__(self, name: str, version: int, path: Path) -> FakeModel:
        self.calls.append((name, version))
        self.threads.add(threading.current_thread().name)
        if (path / "saved_model.pb").read_bytes().startswith(BROKEN):
            raise InferenceFailed(f"{path.name} holds no model")
        model = FakeModel(name, version, path)
        self.made.append(model)
        return model


class HeldLoader(FakeLoader):
    """Its loads of models whose name begins so wait until `gate` is set; `entered` says that one waits."""

    def __init__(self, names: str = "") -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()
        self._names = names

    def __call__(self, name: str, version: int, path: Path) -> FakeModel:
        if name.startswith(self._names):
            self.entered.set()
            assert self.gate.wait(HANG_S)
        return super().__call__(name, version, path)


@dataclass
class Recorder:
    """A listener that keeps what it hears."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def states(self, model: str) -> list[tuple[int, str]]:
        return [(e.version, e.state) for e in self.events if isinstance(e, ModelStateChanged) and e.model == model]


def add(folder: Path, name: str, version: int | str, content: bytes = b"good") -> Path:
    """At once: a watch must not find the file half written."""
    path = folder / name / str(version)
    path.mkdir(parents=True, exist_ok=True)
    (path / "new").write_bytes(content)
    (path / "new").replace(path / "saved_model.pb")
    return path


def remove(folder: Path, name: str, version: int | str) -> None:
    shutil.rmtree(folder / name / str(version))


def repository(
    folder: Path, load: Callable[[str, int, Path], FakeModel], policy: VersionPolicy = NEWEST, **options: Any
) -> ModelRepository:
    return repository_of(ModelsFolder(folder, policy), load, **options)


class StorageThread:
    """The disk, read on a thread of this process: storage that always answers. It stands for StorageProcesses."""

    async def call(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        return await asyncio.to_thread(function, *args)

    def close(self) -> None: ...


def repository_of(
    source: ModelsFolder | ModelList, load: Callable[[str, int, Path], FakeModel], **options: Any
) -> ModelRepository:
    loads: Any = load  # a FakeModel has what the repository uses of a model
    return ModelRepository(source, loads, **{"storage": StorageThread(), **options})
