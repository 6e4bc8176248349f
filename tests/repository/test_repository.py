import asyncio
import logging
import shutil
import threading
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequest, ModelNotFound, ModelNotReady
from app.core.events import Event, ignore
from app.core.versions import VersionState, VersionStatus
from app.repository.disk.disk_layout import DiskLayout
from app.repository.model_sources import ModelsFolder
from app.repository.repository import ModelRepository
from app.repository.servable import Servable
from app.repository.version_policy import All
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, Recorder, add, remove, repository, repository_of
from tests.support.waiting import HANG_S


def play(
    folder: Path, steps: Callable[[ModelRepository, FakeLoader], Awaitable[None]], **options: object
) -> FakeLoader:
    """Runs `steps` with a repository that was looked after once, and closes it."""
    load = FakeLoader()

    async def run() -> None:
        models = repository(folder, load, **options)
        await models.poll_once()
        await steps(models, load)
        await models.close()

    asyncio.run(run())
    assert all(model.closed == 1 for model in load.made)
    return load


async def poll(models: ModelRepository) -> None:
    await models.poll_once()
    await asyncio.sleep(0)  # the unloads it started
    await asyncio.sleep(0)


def test_every_model_is_served_at_its_newest_version(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "a", 10)
    add(tmp_path, "b", "0007")

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.names() == ["a", "b"]
        assert models.resolve("a").version == 10
        assert models.resolve("a", 10) is models.resolve("a")
        assert models.resolve("b").version == 7
        assert models.statuses("a") == [VersionStatus(10, VersionState.AVAILABLE)]
        assert models.statuses("a", 10) == models.statuses("a")
        assert not models.unready_reasons()
        assert all(thread.startswith("loader_") for thread in load.threads)

    assert sorted(play(tmp_path, steps).calls) == [("a", 10), ("b", 7)]


def test_unknown_names_versions_and_labels_are_rejected_in_tensorflow_servings_words(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        with pytest.raises(ModelNotFound, match=r"^Servable not found for request: Latest\(x\)$"):
            models.resolve("x")
        with pytest.raises(ModelNotFound, match=r"^Servable not found for request: Specific\(m, 50\)$"):
            models.resolve("m", 50)
        with pytest.raises(InvalidRequest, match=r"^Unrecognized servable version label: stable$"):
            models.resolve("m", label="stable")
        with pytest.raises(ModelNotFound, match=r"^Could not find any versions of model x$"):
            models.statuses("x")
        with pytest.raises(ModelNotFound, match=r"^Could not find version 50 of model m$"):
            models.statuses("m", 50)

    play(tmp_path, steps)


def test_a_newer_version_takes_over_and_the_old_one_is_unloaded(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    told = Recorder()

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        old = models.resolve("m")
        add(tmp_path, "m", 2)
        await poll(models)
        assert models.resolve("m").version == 2
        assert old.closed == 1
        assert [status.state for status in models.statuses("m")] == [VersionState.AVAILABLE, VersionState.END]
        with pytest.raises(ModelNotFound, match="Specific"):
            models.resolve("m", 1)

    play(tmp_path, steps, listener=told)
    assert told.states("m") == [
        (1, "START"),
        (1, "LOADING"),
        (1, "AVAILABLE"),
        (2, "START"),
        (2, "LOADING"),
        (2, "AVAILABLE"),
        (1, "UNLOADING"),
        (1, "END"),
        (2, "UNLOADING"),
        (2, "END"),
    ]


def test_while_a_version_loads_the_old_one_answers_and_others_are_told_to_wait(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    gate, loading = threading.Event(), threading.Semaphore(0)

    def slow(name: str, version: int, path: Path) -> FakeModel:
        if version == 2 or name == "new":
            loading.release()
            assert gate.wait(HANG_S)
        return FakeModel(name, version, path)

    async def run() -> None:
        models = repository(tmp_path, slow)
        await models.poll_once()
        add(tmp_path, "m", 2)
        add(tmp_path, "new", 1)
        round_ = asyncio.create_task(models.poll_once())
        for _ in ("m", "new"):  # before it loads, a version is read, and says so
            assert await asyncio.to_thread(loading.acquire, timeout=HANG_S)
        assert models.resolve("m").version == 1
        assert [s.state for s in models.statuses("m")][1:] == [VersionState.AVAILABLE]
        assert {models.statuses(name)[0].state for name in ("m", "new")} <= {VersionState.START, VersionState.LOADING}
        with pytest.raises(ModelNotReady, match=r"^Model new is still loading$"):
            models.resolve("new")
        assert not models.unready_reasons(), "a model that arrives later does not take the others out of rotation"
        gate.set()
        await round_
        assert models.resolve("m").version == 2
        await models.close()

    asyncio.run(run())


def test_a_failed_version_leaves_the_old_one_serving_and_is_tried_again_when_it_changes(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        add(tmp_path, "m", 2, BROKEN)
        await poll(models)
        await poll(models)
        assert load.calls == [("m", 1), ("m", 2)], "not at every look"
        assert models.resolve("m").version == 1
        assert models.statuses("m", 2) == [VersionStatus(2, VersionState.END, "2 holds no model")]
        with pytest.raises(ModelNotReady, match=r"^Model m version 2 failed to load: 2 holds no model$"):
            models.resolve("m", 2)
        assert not models.unready_reasons()
        add(tmp_path, "m", 2, b"mended")
        await poll(models)
        assert models.resolve("m").version == 2

    play(tmp_path, steps)


def test_a_failed_version_is_tried_again_when_it_was_away(tmp_path: Path) -> None:
    path = add(tmp_path, "m", 1, BROKEN)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        path.rename(tmp_path / "aside")
        await poll(models)
        assert models.names() == []
        with pytest.raises(ModelNotFound):
            models.resolve("m")
        (tmp_path / "aside").rename(path)
        await poll(models)
        assert load.calls == [("m", 1)] * 2

    play(tmp_path, steps)


def test_when_the_newest_fails_the_next_is_served(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    add(tmp_path, "m", 2, BROKEN)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.resolve("m").version == 1

    assert play(tmp_path, steps).calls == [("m", 2), ("m", 1)]


def test_a_deleted_version_gives_way_to_an_older_one(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    add(tmp_path, "m", 2)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        remove(tmp_path, "m", 2)
        await poll(models)
        assert models.resolve("m").version == 1

    play(tmp_path, steps)


def test_a_deleted_version_stays_while_its_replacement_is_bad_or_incomplete(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        remove(tmp_path, "m", 1)
        (tmp_path / "m" / "2").mkdir()
        await poll(models)
        assert models.resolve("m").version == 1
        add(tmp_path, "m", 2, BROKEN)
        await poll(models)
        assert models.resolve("m").version == 1
        add(tmp_path, "m", 2)
        await poll(models)
        assert models.resolve("m").version == 2

    play(tmp_path, steps)


def test_a_model_without_version_folders_is_unloaded_and_the_others_stay(tmp_path: Path) -> None:
    add(tmp_path, "emptied", 1)
    add(tmp_path, "gone", 1)
    add(tmp_path, "stays", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        remove(tmp_path, "emptied", 1)
        shutil.rmtree(tmp_path / "gone")
        await poll(models)
        assert models.names() == ["stays"]
        for name in ("emptied", "gone"):
            with pytest.raises(ModelNotFound):
                models.resolve(name)
            assert models.statuses(name) == [VersionStatus(1, VersionState.END)]
        assert not models.unready_reasons()
        shutil.rmtree(tmp_path / "stays")
        await poll(models)
        assert models.unready_reasons() == [f"No model is served from {tmp_path}"]

    play(tmp_path, steps)


def test_new_content_under_the_same_number_is_loaded_beside_the_old_and_replaces_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "m", 1)
    told = Recorder()

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        old: Any = models.resolve("m")
        old.answered = asyncio.Event()
        add(tmp_path, "m", 1, b"other content")
        await poll(models)
        assert models.resolve("m") is load.made[1], "the new one answers while the old one still does"
        assert load.made[0].closed == 0
        old.answered.set()
        await poll(models)
        assert [model.closed for model in load.made] == [1, 0]
        await poll(models)

    with caplog.at_level(logging.INFO):
        assert play(tmp_path, steps, listener=told).calls == [("m", 1), ("m", 1)], "once"
    assert "version 1 of model m changed on disk and was loaded anew" in caplog.text
    assert [state for _, state in told.states("m")][:4] == ["START", "LOADING", "AVAILABLE", "AVAILABLE"]


def test_new_content_that_cannot_be_loaded_leaves_the_old_one_serving(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        old = models.resolve("m")
        add(tmp_path, "m", 1, BROKEN)
        await poll(models)
        await poll(models)
        assert models.resolve("m") is old
        assert load.calls == [("m", 1)] * 2, "not at every look"
        assert models.unready_reasons() == []
        assert [problem.text for problem in models.problems()] == [
            "Model m version 1 changed on disk and is not loaded anew: 1 holds no model"
        ]
        add(tmp_path, "m", 1, b"mended")
        await poll(models)
        assert models.resolve("m") is not old
        assert models.problems() == []

    play(tmp_path, steps)


def test_a_models_folder_that_vanishes_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "models"
    add(folder, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        folder.rename(tmp_path / "aside")
        with caplog.at_level(logging.WARNING):
            await poll(models)
            await poll(models)
        assert models.resolve("m").version == 1
        assert not models.unready_reasons()
        assert [r.getMessage() for r in caplog.records] == [
            f"{folder} is ignored: the models folder cannot be read: No such file or directory; "
            "it is tried again, and what is served stays"
        ]
        (tmp_path / "aside").rename(folder)
        await poll(models)
        assert load.calls == [("m", 1)]

    play(folder, steps)


def test_a_server_without_models_waits_for_them(tmp_path: Path) -> None:
    folder = tmp_path / "models"

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.unready_reasons() == [
            f"Changes of models are not seen: {folder}: the models folder cannot be read: No such file or directory"
        ]
        with pytest.raises(ModelNotReady, match="No model is loaded yet"):
            models.default_name()
        add(folder, "m", 1)
        await poll(models)
        assert not models.unready_reasons()
        assert models.default_name() == "m"

    play(folder, steps)


def test_a_model_that_cannot_be_read_keeps_what_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "a", 1)

    def refuse_a(_: ModelsFolder, silent: Collection[Path]) -> DiskLayout:
        return DiskLayout(unreadable=frozenset({"a"}))

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        monkeypatch.setattr(ModelsFolder, "scan", refuse_a)
        await poll(models)
        assert models.resolve("a").version == 1

    play(tmp_path, steps)


def test_what_is_ignored_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "m", 1)
    for name in ("m/v2", "m/__pycache__", "__pycache__", "lost+found", ".git", "m/.tmp"):
        (tmp_path / name).mkdir()

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        await poll(models)

    with caplog.at_level(logging.WARNING):
        play(tmp_path, steps)
    assert [r.getMessage() for r in caplog.records] == [
        f"{tmp_path}/m/v2 is ignored: its name is not a version: a whole number from 0 to 2^63-1"
    ]


def test_with_strict_readiness_a_server_is_not_ready_until_all_it_found_first_is_served(tmp_path: Path) -> None:
    add(tmp_path, "bad", 1, BROKEN)
    add(tmp_path, "good", 1)
    (tmp_path / "half" / "1").mkdir(parents=True)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.resolve("good").version == 1, "a bad model does not stop the others"
        assert models.unready_reasons() == [
            "Model bad version 1 failed to load: 1 holds no model",
            "Model half version 1 is not loaded: it holds no saved_model.pb, model.tflite or pipeline.yaml",
        ]
        add(tmp_path, "bad", 1)
        shutil.rmtree(tmp_path / "half")
        await poll(models)
        assert not models.unready_reasons()
        add(tmp_path, "late", 1, BROKEN)
        await poll(models)
        assert not models.unready_reasons()
        shutil.rmtree(tmp_path / "bad")
        await poll(models)
        add(tmp_path, "bad", 1, BROKEN)
        await poll(models)
        assert not models.unready_reasons()
        assert models.names() == ["bad", "good", "late"]

    play(tmp_path, steps, strict_readiness=True)


def test_before_the_first_look_models_are_loading(tmp_path: Path) -> None:
    models = repository(tmp_path, FakeLoader())
    assert models.unready_reasons() == ["Models are still loading"]
    assert models.alive()


def test_the_default_model_is_the_set_or_the_only_one(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def several(models: ModelRepository, load: FakeLoader) -> None:
        with pytest.raises(InvalidRequest, match=r"^Several models are served: a, b\. Name one, or set default_model$"):
            models.default_name()

    async def chosen(models: ModelRepository, load: FakeLoader) -> None:
        assert models.default_name() == "b"

    play(tmp_path, several)
    play(tmp_path, chosen, default_model="b")


def test_a_policy_may_want_several_versions(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        add(tmp_path, "m", version)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.resolve("m").version == 3
        assert models.resolve("m", 1).version == 1

    assert play(tmp_path, steps, policy=All()).calls == [("m", 3), ("m", 2), ("m", 1)]


def test_only_the_newest_endings_are_remembered(tmp_path: Path) -> None:
    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        for version in range(12):
            add(tmp_path, "m", version)
            await poll(models)
        await poll(models)
        assert [status.version for status in models.statuses("m")] == list(range(11, 2, -1))

    play(tmp_path, steps)


def test_of_models_that_come_and_go_only_the_last_ones_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.repository.catalog._ENDED_KEPT", 3)
    add(tmp_path, "stays", 1)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        for number in range(8):
            version = add(tmp_path, f"m{number}", 1)
            await poll(models)
            assert models.resolve(f"m{number}").version == 1
            shutil.rmtree(version.parent)
            await poll(models)
        await poll(models)
        assert models.names() == ["stays"]
        assert sorted(models.catalog.models) == ["m5", "m6", "m7", "stays"]
        assert [status.state for status in models.statuses("m7")] == [VersionState.END]
        with pytest.raises(ModelNotFound):
            models.statuses("m4")
        async with models._poll_lock:
            tasks = await models._poll()
        assert list(tasks) == ["stays"]
        await asyncio.wait(tasks.values())
        assert list(models._intake._seen) == [tmp_path / "stays" / "1"]

    play(tmp_path, steps)


def test_a_version_comes_back_only_after_its_earlier_life_ended(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    drained = asyncio.Event()

    class Draining(FakeModel):
        async def close(self) -> None:
            await drained.wait()
            await super().close()

    def load(name: str, version: int, path: Path) -> FakeModel:
        return Draining(name, version, path)

    async def run() -> None:
        models = repository(tmp_path, load)
        await models.poll_once()
        first = models.resolve("m")
        shutil.rmtree(tmp_path / "m")
        await poll(models)
        add(tmp_path, "m", 1)
        await poll(models)
        assert models.statuses("m") == [VersionStatus(1, VersionState.UNLOADING)]
        with pytest.raises(ModelNotFound):
            models.resolve("m")
        drained.set()
        await poll(models)
        await poll(models)
        assert models.resolve("m") is not first
        await models.close()

    asyncio.run(run())


def test_a_version_that_pipelines_keep_comes_back_beside_itself(tmp_path: Path) -> None:
    """Its earlier life ends when it is there again: pipelines that do not fit the later version wait for it."""
    load, told = FakeLoader(), Recorder()
    for version in (1, 2):
        add(tmp_path, "m", version)

    async def run() -> None:
        models = repository(tmp_path, load, listener=told)
        await models.poll_once()
        kept = load.made[0]
        kept.leased, kept.answered = True, asyncio.Event()
        add(tmp_path, "m", 3)
        await poll(models)
        assert [each.state for each in models.statuses("m", 2)] == [VersionState.UNLOADING]
        remove(tmp_path, "m", 3)
        await poll(models)
        again = models.resolve("m")
        assert again.version == 2
        assert again is not kept
        assert ("m", 1) not in load.calls
        kept.answered.set()  # the pipelines have got it anew
        await poll(models)
        assert kept.closed == 1
        assert [each.state for each in models.statuses("m", 2)] == [VersionState.AVAILABLE]
        assert [state for version, state in told.states("m") if version == 2][3:] == [
            "UNLOADING",
            "LOADING",
            "AVAILABLE",
        ]
        await models.close()

    asyncio.run(run())


def test_start_loads_then_watches_until_close(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    told = Recorder()
    taken_over = asyncio.Event()

    def listen(event: Event) -> None:
        told(event)
        if (2, "AVAILABLE") in told.states("m"):
            taken_over.set()

    async def run() -> None:
        models = repository(tmp_path, FakeLoader(), listener=listen, poll_interval_s=0.001)
        await models.start()
        assert models.resolve("m").version == 1
        add(tmp_path, "m", 2)
        async with asyncio.timeout(HANG_S):
            await taken_over.wait()
        assert models.alive()
        await models.close()
        assert models.alive(), "a watch that was ended on purpose is not dead"

    asyncio.run(run())
    assert told.states("m")[-1] == (2, "END")


def test_a_default_model_that_is_not_there_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def run() -> None:
        for chosen in ("b", "c"):
            models = repository(tmp_path, FakeLoader(), default_model=chosen)
            await models.start()
            await models.close()

    asyncio.run(run())
    assert [r.getMessage() for r in caplog.records] == [
        "default_model is c, but no model has this name, so the short routes find none; models: a, b"
    ]


def test_polling_goes_on_after_an_unexpected_error_that_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "m", 1)
    looks = 0
    recovered = asyncio.Event()

    scan = ModelsFolder.scan

    def faulty(source: ModelsFolder, silent: Collection[Path]) -> DiskLayout:
        nonlocal looks
        looks += 1
        if looks <= 3:
            raise RuntimeError("a bug")
        return scan(source)

    def listen(event: object) -> None:
        recovered.set()

    monkeypatch.setattr(ModelsFolder, "scan", faulty)

    async def run() -> None:
        models = repository(tmp_path, FakeLoader(), listener=listen, poll_interval_s=0.001)
        await models.start()
        async with asyncio.timeout(HANG_S):
            await recovered.wait()
        assert models.alive()
        await models.close()

    asyncio.run(run())
    assert caplog.text.count("Looking for changes of models failed") == 1


def test_a_fault_with_one_model_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 5)

    def faulty(available: Collection[int]) -> set[int]:
        if 1 in available:
            raise RuntimeError("a bug in the policy")
        return set(available)

    async def steps(models: ModelRepository, load: FakeLoader) -> None:
        assert models.resolve("b").version == 5

    play(tmp_path, steps, policy=faulty)
    assert "a bug in the policy" in caplog.text


def test_a_watch_that_died_is_seen(tmp_path: Path) -> None:
    async def run() -> None:
        models = repository(tmp_path, FakeLoader())
        await models.start()
        watch = next(task for task in asyncio.all_tasks() if task.get_name() == "watch models")
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert not models.alive()
        await models.close()

    asyncio.run(run())


def test_the_state_of_models_can_be_printed(tmp_path: Path) -> None:
    async def main() -> None:
        repository = repository_of(ModelsFolder(tmp_path), FakeLoader(), poll_interval_s=0)
        repository.catalog.models = {"m": {1: Servable("m", 1, ignore)}}
        assert repr(repository.catalog) == "<Catalog, incomplete: [<Servable m 1, START>]>"

    asyncio.run(main())
