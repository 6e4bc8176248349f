"""Folders whose storage does not answer, or is gone for a while."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ModelNotFound, ModelNotReady
from app.core.interfaces import LoadOverrides
from app.core.versions import ModelProblem, ProblemKind
from app.repository.disk.storage import StorageSilent
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelList, ModelsFolder
from app.repository.repository import ModelRepository
from tests.repository.disk.test_retries import Time
from tests.repository.fakes import FakeLoader, HeldLoader, StorageThread, add, repository_of
from tests.support.waiting import HANG_S, until


@dataclass
class Storage(StorageThread):
    """Hangs at these folders, unless it is told to leave them out."""

    hanging: set[Path] = field(default_factory=set)
    hung: int = 0

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "scan":
            for folder in sorted(self.hanging.difference(args[0])):
                self.hung += 1
                raise StorageSilent(str(folder), 5.0)
        return function(*args, **kwargs)


def play(
    source: ModelsFolder | ModelList,
    steps: Callable[[ModelRepository, Time], Awaitable[None]],
    storage: StorageThread | None = None,
) -> None:
    async def run() -> None:
        clock = Time()
        models = repository_of(source, FakeLoader(), storage=storage or Storage(), empty_grace_s=60.0, clock=clock)
        await models.poll_once()
        await steps(models, clock)
        await models.close()

    asyncio.run(run())


async def poll(models: ModelRepository) -> None:
    await models.poll_once()
    for _ in range(3):
        await asyncio.sleep(0)  # the unloads it started


def test_a_model_on_storage_that_does_not_answer_stops_nobody_else(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        storage.hanging = {tmp_path / "a"}
        add(tmp_path, "b", 2)
        await poll(models)
        await poll(models)
        assert (models.resolve("a").version, models.resolve("b").version) == (1, 2)
        assert models.unready_reasons() == []
        assert [(problem.kind, problem.text) for problem in models.problems()] == [
            (
                ProblemKind.UNREADABLE,
                f"Changes of model a are not seen, and it serves on: {tmp_path}/a its storage does not answer",
            )
        ]
        assert storage.hung == 1, "not at every look"
        storage.hanging = set()
        add(tmp_path, "a", 2)
        clock.now_s = 1.0
        await poll(models)
        assert models.resolve("a").version == 2
        assert models.problems() == []

    play(ModelsFolder(tmp_path), steps, storage)


def test_a_models_folder_that_does_not_answer_is_told_and_the_models_serve_on(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        storage.hanging = {tmp_path}
        for second in range(4):
            clock.now_s = float(second)
            await poll(models)
        assert storage.hung == 3, "after 0, 1 and 3 s"
        assert models.resolve("a").version == 1
        assert models.unready_reasons() == []
        assert [problem.kind for problem in models.problems()] == [ProblemKind.UNREADABLE]
        assert "the storage does not answer" in models.problems()[0].text
        assert models.alive(), "a restart is no cure"

    play(ModelsFolder(tmp_path), steps, storage)


def test_a_model_is_unloaded_and_stays_so_while_its_storage_does_not_answer(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        storage.hanging = {tmp_path}
        await models.unload("a")
        assert storage.hung == 0, "nothing on disk decides about it"
        for now_s in (0.0, 100.0):
            clock.now_s = now_s
            with pytest.raises(ModelNotFound):
                models.resolve("a")
            assert models.resolve("b").version == 1
            await poll(models)
        with pytest.raises(ModelNotReady, match="the storage does not answer"):
            await models.unload("c")
        storage.hanging = set()
        clock.now_s = 200.0
        await poll(models)
        with pytest.raises(ModelNotFound):
            models.resolve("a")
        with pytest.raises(ModelNotFound, match="Model c is not in the repository"):
            await models.unload("c")

    play(ModelsFolder(tmp_path), steps, storage)


def test_an_unload_does_not_wait_for_a_look_at_storage_that_hangs(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)

    @dataclass
    class Hanging(StorageThread):
        answers: asyncio.Event | None = None

        async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.answers is not None:
                await self.answers.wait()
            return function(*args, **kwargs)

    storage = Hanging()

    async def steps(models: ModelRepository, _: Time) -> None:
        storage.answers = asyncio.Event()
        look = asyncio.create_task(models.poll_once())
        await asyncio.sleep(0)
        await models.unload("a")
        with pytest.raises(ModelNotFound):
            models.resolve("a")
        assert not look.done()
        storage.answers.set()
        await look
        with pytest.raises(ModelNotFound):
            models.resolve("a")

    play(ModelsFolder(tmp_path), steps, storage)


def test_a_load_tells_that_its_model_was_unloaded_meanwhile(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)

    async def steps(models: ModelRepository, _: Time) -> None:
        await models.unload("a")
        load = asyncio.create_task(models.load("a"))
        await asyncio.sleep(0)
        await models.unload("a")
        with pytest.raises(ModelNotReady, match=r"^Model a was unloaded meanwhile$"):
            await load

    play(ModelsFolder(tmp_path), steps, StorageThread())


def test_a_load_tells_that_the_storage_does_not_answer(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        await models.unload("a")
        storage.hanging = {tmp_path}
        with pytest.raises(ModelNotReady, match="the storage does not answer"):
            await models.load("a")
        before = models.resolve("b")
        with pytest.raises(ModelNotReady, match=r"^Model b serves on as it was: .*the storage does not answer"):
            await models.load("b", LoadOverrides((1, 2), 5.0))
        assert models.overrides == {}
        storage.hanging = set()
        clock.now_s = 100.0
        await poll(models)
        assert models.resolve("a").version == 1, "as it was asked for"
        assert models.resolve("b") is before

    play(ModelsFolder(tmp_path), steps, storage)


def test_a_load_tells_that_the_storage_of_one_listed_model_does_not_answer(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        storage.hanging = {tmp_path / "a"}
        with pytest.raises(ModelNotReady, match=r"^Model a serves on as it was: .* its storage does not answer$"):
            await models.load("a", LoadOverrides((1, 2), 5.0))
        await models.unload("a")
        with pytest.raises(ModelNotFound):
            models.resolve("a")
        with pytest.raises(ModelNotFound, match=r"its storage does not answer$"):
            await models.load("a")

    play(ModelList([ModelConfig(name, tmp_path / name) for name in "ab"]), steps, storage)


def test_an_empty_models_folder_unloads_nothing_for_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "models"
    add(folder, "a", 1)
    add(folder, "b", 1)

    async def steps(models: ModelRepository, clock: Time) -> None:
        (folder / "a").rename(tmp_path / "a")
        (folder / "b").rename(tmp_path / "b")
        for second in (0, 30, 59):
            clock.now_s = float(second)
            await poll(models)
            assert models.resolve("a").version == models.resolve("b").version == 1
            assert models.unready_reasons() == []
        assert [problem.model for problem in models.problems()] == ["a", "b"]
        assert len(caplog.messages) == 2, "one for each model, once"
        (tmp_path / "a").rename(folder / "a")
        await poll(models)
        with pytest.raises(ModelNotFound):
            models.resolve("b")
        (folder / "a").rename(tmp_path / "a")
        clock.now_s = 100.0
        await poll(models)
        assert models.resolve("a").version == 1, "the time begins anew"
        clock.now_s = 160.0
        await poll(models)
        with pytest.raises(ModelNotFound):
            models.resolve("a")

    play(ModelsFolder(folder), steps)


def test_an_empty_folder_of_one_model_unloads_nothing_for_a_while(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    lists = ModelList([ModelConfig(name, tmp_path / name) for name in "ab"])
    for source in (ModelsFolder(tmp_path), lists):
        add(tmp_path, "a", 1)

        async def steps(models: ModelRepository, clock: Time) -> None:
            shutil.rmtree(tmp_path / "a" / "1")
            await poll(models)
            assert models.resolve("a").version == 1
            clock.now_s = 60.0
            await poll(models)
            with pytest.raises(ModelNotFound):
                models.resolve("a")

        play(source, steps)


def test_a_model_that_is_deleted_while_others_remain_is_unloaded_at_once(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def steps(models: ModelRepository, clock: Time) -> None:
        shutil.rmtree(tmp_path / "a")
        await poll(models)
        with pytest.raises(ModelNotFound):
            models.resolve("a")

    play(ModelsFolder(tmp_path), steps)


def test_what_is_unloaded_on_purpose_is_not_spared(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)

    async def steps(models: ModelRepository, clock: Time) -> None:
        shutil.rmtree(tmp_path / "a")
        await models.unload("a")
        with pytest.raises(ModelNotFound):
            models.resolve("a")

    play(ModelsFolder(tmp_path), steps)


@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_that_goes_away_while_a_version_of_it_loads_unloads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    monkeypatch.setattr("app.repository.reconciler._MOST_LOADS", 2)
    add(tmp_path, "a", 1)
    load, storage = HeldLoader("a"), Storage()
    load.gate.set()

    async def run() -> None:
        source = ModelsFolder(tmp_path)
        models = repository_of(source, load, storage=storage, empty_grace_s=60.0, clock=Time())
        await models.poll_once()
        load.gate.clear()
        load.entered.clear()
        add(tmp_path, "a", 2)
        polls = [asyncio.create_task(models.poll_once())]
        assert await asyncio.to_thread(load.entered.wait, HANG_S)
        add(tmp_path, "b", 1)
        polls.append(asyncio.create_task(models.poll_once()))  # a is to be looked at again when its load has ended
        await until(lambda: bool(models.catalog.available("b")))

        if empty:
            (tmp_path / "a").rename(tmp_path / ".a")
            (tmp_path / "a").mkdir()
        else:
            storage.hanging = {tmp_path / "a"}
        await models.poll_once()
        assert [problem.kind for problem in models.problems() if problem.version is None] == [ProblemKind.UNREADABLE]
        load.gate.set()
        await asyncio.gather(*polls)
        assert models.catalog.available("a")
        await models.close()

    asyncio.run(run())


def test_a_pipeline_that_waits_in_a_folder_that_cannot_be_read_serves_on(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    storage = Storage()

    async def steps(models: ModelRepository, clock: Time) -> None:
        models.catalog.held["a"] = {2: ModelProblem("a", 2, ProblemKind.WAITING, "waits for the model b")}
        storage.hanging = {tmp_path / "a"}
        await poll(models)
        add(tmp_path, "b", 1)
        await poll(models)
        assert models.resolve("b").version == 1
        assert models.resolve("a").version == 1

    play(ModelsFolder(tmp_path), steps, storage)
