"""Versions whose storage is slow at every read are loaded from copies."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import namedtuple
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.versions import ProblemKind
from app.repository.disk import examination
from app.repository.disk.local_copies import LocalCopies, NoRoom, copy_version, delete_leftovers
from app.repository.disk.storage import StorageProcesses
from app.repository.memory.load_room import LoadRoom
from app.repository.repository import ModelRepository
from tests.repository.disk.test_retries import Time
from tests.repository.fakes import BROKEN, FakeLoader, StorageThread, add, repository
from tests.support.waiting import HANG_S, until

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read waits."""
    monkeypatch.setattr(examination, "seconds_waiting", lambda _: 0.1)


class Loader(FakeLoader):
    """Notes what it finds in the folders that it loads from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Path, set[str]]] = []

    def __call__(self, name: str, version: int, path: Path) -> Any:
        self.found.append((path, set(os.listdir(path))))
        return super().__call__(name, version, path)


def play(tmp_path: Path, steps: Callable[[ModelRepository, Loader, Time], Awaitable[None]], *, leaves: int = 0) -> None:
    """Steps with a repository of tmp_path/models that copies to tmp_path/temporary; after it nothing is left there."""

    async def run() -> None:
        load, clock, storage = Loader(), Time(), StorageThread()
        copies = LocalCopies(storage, tmp_path / "temporary")
        models = repository(tmp_path / "models", load, clock=clock, storage=storage, copies=copies)
        await steps(models, load, clock)
        await models.close()

    asyncio.run(run())
    assert list((tmp_path / "temporary").iterdir()) == []


def copied(base: Path) -> set[str]:
    """What is in the copies, beginning with the model's name. `walk` passes over a folder that is deleted meanwhile."""
    files = (Path(folder, name) for folder, _, names in os.walk(base) for name in names)
    return {"/".join(path.relative_to(base).parts[2:]) for path in files}


# --- what is loaded from where ---


def test_a_version_is_loaded_from_its_copy_which_is_deleted_then(
    tmp_path: Path, base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    version = add(tmp_path / "models", "m", 1)

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        assert models.resolve("m").version == 1
        ((path, files),) = load.found
        assert path.parts[-2:] == version.parts[-2:], "logs and errors name the model"
        assert path.is_relative_to(base)
        assert files == {"saved_model.pb"}
        assert copied(base) == set()
        assert caplog.messages == [
            "Model m version 1 is copied to a local folder, to be loaded from there: "
            "a second read of saved_model.pb took 100 ms"
        ]

    play(tmp_path, steps)


def test_a_copy_of_earlier_files_is_not_loaded(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first load found no memory, so its copy waited; then the files changed, and the storage became quick."""
    left = [0.0]

    async def run() -> None:
        load, clock, storage = Loader(), Time(), StorageThread()
        models = repository(
            tmp_path / "models",
            load,
            clock=clock,
            storage=storage,
            copies=LocalCopies(storage, base),
            room=LoadRoom(1, lambda: left[0], lambda: 512.0 * 2**20),
        )
        version = add(tmp_path / "models", "m", 1)
        await models.poll_once()
        assert load.calls == []
        assert copied(base) == {"m/1/saved_model.pb"}

        monkeypatch.setattr(examination, "seconds_waiting", lambda _: 0.0)
        left[0] = 1e9
        add(tmp_path / "models", "m", 1, b"changed")
        await models.poll_once()
        clock.now_s += 60.0
        await models.poll_once()
        assert [path for path, _ in load.found] == [version]
        assert copied(base) == set()
        await models.close()

    asyncio.run(run())


def test_a_copy_whose_assets_are_in_use_is_there_until_its_model_has_closed(tmp_path: Path, base: Path) -> None:
    """What it accepted before the server ends may read them to the last."""
    version = add(tmp_path / "models", "m", 1)
    (version / "assets").mkdir()
    (version / "assets" / "words").write_text("a")

    there: list[set[str]] = []

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        (model,) = load.made
        close = model.close

        async def watched() -> None:
            for _ in range(1000):  # turns in which a thread could delete it
                await asyncio.sleep(0)
            there.append(copied(base))
            await close()

        model.close = watched  # type: ignore[method-assign]  # watched, and as before

    play(tmp_path, steps)
    assert there == [{"m/1/assets/words"}]


def test_while_it_is_copied_its_status_says_so(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path / "models", "m", 1)

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        told = []
        make = LocalCopies.make

        async def telling(copies: LocalCopies, version: Path) -> None:
            told.extend(status.error_message for status in models.statuses("m"))
            assert models.problems() == [], "it is under way"
            await make(copies, version)

        monkeypatch.setattr(LocalCopies, "make", telling)
        await models.poll_once()
        assert told == [
            "Model m version 1 is copied to a local folder, to be loaded from there: "
            "a second read of saved_model.pb took 100 ms"
        ]

    play(tmp_path, steps)


def test_assets_stay_until_the_model_is_unloaded(tmp_path: Path, base: Path) -> None:
    """A model may read them at every call."""
    version = add(tmp_path / "models", "m", 1)
    (version / "variables").mkdir()
    (version / "variables" / "variables.index").write_bytes(b"index")
    (version / "assets").mkdir()
    (version / "assets" / "vocabulary").write_text("a\n")

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        assert copied(base) == {"m/1/assets/vocabulary"}
        (version / "assets" / "vocabulary").write_text("a\nb\n")
        await models.poll_once()
        first, second = load.made
        assert models.resolve("m") is second
        await until(lambda: first.closed and not first.path.exists())
        assert (second.path / "assets" / "vocabulary").read_text() == "a\nb\n"
        await models.unload("m")
        await until(lambda: second.closed and not second.path.exists())

    play(tmp_path, steps)


def test_a_model_whose_copy_cannot_be_made_smaller_is_served(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(copy: Path) -> bool:  # something else tidies the temporary folder meanwhile
        raise FileNotFoundError(2, "No such file or directory", str(copy / "saved_model.pb"))

    add(tmp_path / "models", "m", 1)
    monkeypatch.setattr("app.repository.disk.local_copies.keep_assets", broken)

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        assert models.resolve("m") is load.made[0]
        assert "stays until its model is unloaded" in caplog.text
        await models.unload("m")
        await until(lambda: not copied(base))
        assert [model.closed for model in load.made] == [1]

    play(tmp_path, steps)


def test_a_model_that_nobody_gets_after_its_load_is_closed(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: LocalCopies, copy: Path, model: object) -> None:
        raise ZeroDivisionError

    add(tmp_path / "models", "m", 1)
    monkeypatch.setattr(LocalCopies, "loaded", broken)

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        await until(lambda: [model.closed for model in load.made] == [1])
        assert "failed to load" in models.catalog.why_unavailable("m")

    play(tmp_path, steps)


def test_a_load_that_fails_leaves_no_copy(tmp_path: Path, base: Path) -> None:
    add(tmp_path / "models", "m", 1, BROKEN)

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        assert len(load.found) == 1
        assert copied(base) == set()

    play(tmp_path, steps)


def test_a_copy_without_room_is_told_and_tried_again(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path / "models", "m", 1, b"x" * 1000)
    free = [1000]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free[0]))

    async def steps(models: ModelRepository, load: Loader, clock: Time) -> None:
        await models.poll_once()
        ((_, _, kind, text),) = models.problems()
        assert kind is ProblemKind.NO_ROOM
        assert text.startswith("Model m version 1 is not loaded: no room for a local copy: it needs ")
        assert copied(base) == set()
        free[0] = 10**9
        await models.poll_once()
        assert load.found == [], "not before the pause is over"
        clock.now_s = 1.0
        await models.poll_once()
        assert models.resolve("m").version == 1

    play(tmp_path, steps)


# --- how a copy is made ---


def test_links_become_what_they_lead_to_and_loops_end(tmp_path: Path, base: Path) -> None:
    version, elsewhere = add(tmp_path, "m", 1), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "words").write_text("a\n")
    for name in ("assets", "more"):
        (version / name).symlink_to(elsewhere)
    (version / "again").symlink_to(version)
    (version / "graph").symlink_to(version / "saved_model.pb")
    copy = base / "0" / "m" / "1"
    copy_version(version, copy)
    shutil.rmtree(version)
    shutil.rmtree(elsewhere)
    assert {name: (copy / name).read_bytes() for name in ("saved_model.pb", "graph", "assets/words", "more/words")} == {
        "saved_model.pb": b"good",
        "graph": b"good",
        "assets/words": b"a\n",
        "more/words": b"a\n",
    }
    assert (copy / "again").samefile(copy)


def test_a_process_that_can_be_given_up_copies_and_tells_that_there_is_no_room(tmp_path: Path, base: Path) -> None:
    small, large = add(tmp_path, "m", 1), add(tmp_path, "m", 2)
    os.truncate(large / "saved_model.pb", 8 << 40)  # takes no room itself

    async def run() -> None:
        storage = StorageProcesses(HANG_S)
        copies = LocalCopies(storage, base)
        await copies.make(small)
        with pytest.raises(
            NoRoom, match=r"it needs 8,796,\d{3},\d{3},\d{3} bytes; of [\d,]+ that are free it may take 90 %"
        ):
            await copies.make(large)
        assert copied(base) == {"m/1/saved_model.pb"}
        assert repr(copies) == "<LocalCopies 1 made, 0 with assets in use>"
        storage.close()
        await copies.close()

    asyncio.run(run())
    assert list(base.iterdir()) == []


def test_models_that_are_copied_side_by_side_share_the_folder(tmp_path: Path, base: Path) -> None:
    versions = [add(tmp_path, name, 1) for name in "abcd"]

    async def run() -> None:
        copies = LocalCopies(StorageThread(), base)
        await asyncio.gather(*map(copies.make, versions))
        assert copied(base) == {f"{name}/1/saved_model.pb" for name in "abcd"}
        assert len(os.listdir(base)) == 1
        await copies.close()

    asyncio.run(run())


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, base: Path) -> None:
    version = add(tmp_path, "m", 1)
    (version / "unreadable").symlink_to("/proc/self/mem")

    async def run() -> None:
        copies = LocalCopies(StorageThread(), base)
        with pytest.raises(OSError, match="Input/output error"):
            await copies.make(version)
        assert copied(base) == set()
        assert copies.take(version) is None
        await copies.close()

    asyncio.run(run())


def test_what_an_ended_process_left_over_is_deleted_and_nothing_else(tmp_path: Path, base: Path) -> None:
    version = add(tmp_path, "m", 1)
    (base / "ferry-copies-left").mkdir()
    (base / "ferry-copies-left" / "file").touch()
    (base / "ferry-copies-link").symlink_to(version)
    (base / "others").mkdir()

    async def run() -> None:
        living, starting = LocalCopies(StorageThread(), base), LocalCopies(StorageThread(), base)
        await living.make(version)
        await starting.delete_leftovers()
        copy = living.take(version)
        assert copy is not None
        assert copy.exists()
        assert not (base / "ferry-copies-left").exists()
        await living.close()

    asyncio.run(run())
    delete_leftovers(base)
    assert sorted(path.name for path in base.iterdir()) == ["ferry-copies-link", "others"]
    assert version.exists()
