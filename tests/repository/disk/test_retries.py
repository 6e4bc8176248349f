"""A failure that may pass is tried again after a pause that grows; another one when its files change."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.core.errors import FilesUnreadable, InferenceFailed
from app.repository.disk.retries import Retries
from app.repository.repository import ModelRepository
from tests.repository.fakes import FakeModel, add, repository


@dataclass
class Time:
    """A clock that is set by hand."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Faulty:
    """Fails the first loads with these errors, then loads."""

    errors: list[Exception]
    calls: list[tuple[float, int]] = field(default_factory=list)
    clock: Time = field(default_factory=Time)

    def __call__(self, name: str, version: int, path: Path) -> FakeModel:
        self.calls.append((self.clock.now_s, version))
        if self.errors:
            raise self.errors.pop(0)
        return FakeModel(name, version, path)


def play(folder: Path, load: Faulty, steps: Callable[[ModelRepository], Awaitable[None]]) -> None:
    async def run() -> None:
        models = repository(folder, load, clock=load.clock)
        await steps(models)
        await models.close()

    asyncio.run(run())


@pytest.mark.parametrize("error", [FilesUnreadable("m/1 cannot be loaded: stale"), OSError(5, "Input/output error")])
def test_a_load_that_could_not_read_is_tried_again_with_back_off(tmp_path: Path, error: Exception) -> None:
    add(tmp_path, "m", 1)
    load = Faulty([error] * 4)

    async def steps(models: ModelRepository) -> None:
        for second in range(20):
            load.clock.now_s = float(second)
            await models.poll_once()
        assert models.resolve("m").version == 1
        assert models.problems() == []

    play(tmp_path, load, steps)
    assert [at_s for at_s, _ in load.calls] == [0, 1, 3, 7, 15]


@pytest.mark.parametrize(
    "error", [InferenceFailed("it holds no model"), FileNotFoundError(2, "No such file"), ValueError()]
)
def test_a_load_that_failed_for_another_reason_waits_for_its_files(tmp_path: Path, error: Exception) -> None:
    add(tmp_path, "m", 1)
    load = Faulty([error])

    async def steps(models: ModelRepository) -> None:
        for second in range(0, 1000, 100):
            load.clock.now_s = float(second)
            await models.poll_once()
        assert len(load.calls) == 1
        add(tmp_path, "m", 1, b"mended")
        await models.poll_once()
        assert models.resolve("m").version == 1

    play(tmp_path, load, steps)


def test_changed_files_are_tried_at_once_and_the_pauses_begin_anew(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    load = Faulty([OSError(5, "Input/output error")] * 4)

    async def steps(models: ModelRepository) -> None:
        for at_s in (0.0, 1.0, 3.0):
            load.clock.now_s = at_s
            await models.poll_once()
        load.clock.now_s = 3.5
        add(tmp_path, "m", 1, b"other content")
        await models.poll_once()
        load.clock.now_s = 4.5
        await models.poll_once()
        assert models.resolve("m").version == 1

    play(tmp_path, load, steps)
    assert [at_s for at_s, _ in load.calls] == [0, 1, 3, 3.5, 4.5]


def test_a_version_that_is_replaced_leaves_no_tries_behind(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    load = Faulty([])

    async def steps(models: ModelRepository) -> None:
        await models.poll_once()
        load.errors = [OSError(5, "Input/output error")]
        add(tmp_path, "m", 1, b"other content")
        await models.poll_once()
        assert models.problems() != []
        add(tmp_path, "m", 2)
        await models.poll_once()
        assert models.resolve("m").version == 2
        assert repr(models._reconciler._retries) == "<Retries {}>"

    play(tmp_path, load, steps)


def test_the_pause_has_a_bound() -> None:
    retries = Retries(Time())
    assert [retries.failed("m") for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert not any([retries.due("m"), retries.due("other")])
    retries.forget("m")
    assert retries.failed("m") == 1
