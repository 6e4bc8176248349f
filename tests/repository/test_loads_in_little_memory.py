"""A version that does not fit into memory is not loaded, is told, and is loaded when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import ModelNotReady, OutOfMemory
from app.core.versions import ProblemKind, VersionState
from app.repository.memory.load_markers import LoadMarkers
from app.repository.memory.load_room import LoadRoom
from app.repository.repository import ModelRepository
from tests.repository.fakes import FakeLoader, FakeModel, add, remove, repository

MB = 2**20


class Memory:
    """So much is left."""

    def __init__(self, left_mb: float) -> None:
        self.left = left_mb * MB

    def room(self) -> LoadRoom:
        return LoadRoom(4, lambda: self.left, lambda: 512.0 * MB)


def large(folder: Path, name: str, mb: int, version: int = 1) -> Path:
    path = add(folder, name, version)
    with (path / "variables").open("wb") as file:
        file.truncate(mb * MB)
    return path


def run(
    folder: Path, memory: Memory, scenario: Callable[[ModelRepository, FakeLoader], object], **more: object
) -> FakeLoader:
    load = FakeLoader()

    async def main() -> None:
        models = repository(folder, load, room=memory.room(), poll_interval_s=0, **more)
        await models.poll_once()
        result = scenario(models, load)
        if asyncio.iscoroutine(result):
            await result
        await models.close()

    asyncio.run(main())
    return load


def test_what_does_not_fit_is_held_and_tells_why_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "small", 1)
    large(tmp_path, "large", 200)

    async def scenario(models: ModelRepository, load: FakeLoader) -> None:
        for _ in range(3):
            await models.poll_once()
        assert models.resolve("small")
        assert load.calls == [("small", 1)]
        (status,) = models.statuses("large")
        assert status.state is VersionState.START
        assert "216 MB of memory, and 68 MB of 512 MB are left" in status.error_message
        assert [each.kind for each in models.problems()] == [ProblemKind.NO_MEMORY]
        assert models.unready_reasons() == []
        with pytest.raises(ModelNotReady, match="216 MB of memory"):
            models.resolve("large")
        with pytest.raises(ModelNotReady, match="216 MB of memory"):
            await models.load("large")

    run(tmp_path, Memory(100), scenario)
    assert sum("216 MB" in each.message for each in caplog.records) == 1


def test_it_is_loaded_when_another_model_has_left(tmp_path: Path) -> None:
    memory = Memory(100)
    add(tmp_path, "a", 1)
    large(tmp_path, "large", 200)

    async def scenario(models: ModelRepository, _: FakeLoader) -> None:
        memory.left = 400 * MB  # as soon as the other one is unloaded
        remove(tmp_path, "a", 1)
        await models.poll_once()
        await models.poll_once()
        assert models.resolve("large")
        assert models.problems() == []

    run(tmp_path, memory, scenario)


def test_the_older_version_serves_beside_a_newer_one_that_does_not_fit(tmp_path: Path) -> None:
    memory = Memory(100)
    add(tmp_path, "m", 1)

    async def scenario(models: ModelRepository, _: FakeLoader) -> None:
        large(tmp_path, "m", 200, 2)
        await models.poll_once()
        assert models.resolve("m").version == 1
        large(tmp_path, "m", 10, 2)
        await models.poll_once()
        assert models.resolve("m").version == 2

    run(tmp_path, memory, scenario)


def test_changed_files_that_do_not_fit_leave_what_serves(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def scenario(models: ModelRepository, load: FakeLoader) -> None:
        large(tmp_path, "m", 200)
        await models.poll_once()
        assert models.resolve("m")
        assert load.calls == [("m", 1)]
        assert "not loaded anew" in models.problems()[0].text

    run(tmp_path, Memory(100), scenario)


def test_who_waits_for_all_models_does_not_wait_for_one_that_lacks_memory(tmp_path: Path) -> None:
    add(tmp_path, "small", 1)
    large(tmp_path, "large", 200)
    run(tmp_path, Memory(100), lambda models, _: models.wait_until_available())


def test_a_load_that_ran_out_of_memory_may_pass(tmp_path: Path) -> None:
    now = [0.0]

    class Growing(FakeLoader):
        def __call__(self, name: str, version: int, path: Path) -> FakeModel:
            model = super().__call__(name, version, path)
            if len(self.calls) == 1:
                raise OutOfMemory("it took more memory than expected")
            return model

    async def main() -> None:
        add(tmp_path, "m", 1)
        models = repository(tmp_path, Growing(), room=Memory(100).room(), poll_interval_s=0, clock=lambda: now[0])
        await models.poll_once()
        assert "more memory than expected" in models.statuses("m")[0].error_message
        now[0] += 1.0
        await models.poll_once()
        assert models.resolve("m")
        await models.close()

    asyncio.run(main())


def test_what_a_killed_server_was_loading_is_left_out_until_it_is_asked_for(tmp_path: Path) -> None:
    folder, marks = tmp_path / "models", tmp_path / "marks"
    add(folder, "good", 1)
    add(folder, "bad", 1)

    class Killed(FakeLoader):
        """Its server ends in the load: nothing is tidied up."""

        def __call__(self, name: str, version: int, path: Path) -> FakeModel:
            if name == "bad":
                for mark in marks.iterdir():
                    (marks / f"left.{mark.name}").write_bytes(mark.read_bytes())
            return super().__call__(name, version, path)

    def markers() -> LoadMarkers:
        return LoadMarkers(marks, lambda: 512.0 * MB, "pod")

    async def first() -> None:
        models = repository(folder, Killed(), room=LoadRoom(1, lambda: 64 * MB, lambda: 64 * MB), markers=markers())
        await models.poll_once()
        await models.close()

    async def second(models: ModelRepository, load: FakeLoader) -> None:
        assert load.calls == [("good", 1)]
        assert "killed while it loaded" in models.statuses("bad")[0].error_message
        await models.load("bad")
        assert models.resolve("bad")
        assert [each for each in marks.iterdir() if not each.name.startswith("left.")] == []

    asyncio.run(first())
    run(folder, Memory(400), second, markers=markers())
