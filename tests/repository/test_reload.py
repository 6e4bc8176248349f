"""Lists of models: version policies, labels, and changes while serving."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import (
    FilesUnreadable,
    InferenceFailed,
    InvalidRequest,
    ModelNotFound,
    ModelNotReady,
    PreconditionFailed,
    ServingError,
)
from app.core.events import LabelsChanged
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.core.versions import VersionState
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelList
from app.repository.repository import ModelRepository
from app.repository.version_policy import NEWEST, All, Specific, VersionPolicy
from tests.repository.fakes import (
    BROKEN,
    FakeLoader,
    FakeModel,
    HeldLoader,
    Recorder,
    StorageThread,
    add,
    remove,
    repository,
    repository_of,
)
from tests.support.waiting import HANG_S

Steps = Callable[[ModelRepository], Awaitable[None]]


def play(source: list[ModelConfig] | Path, steps: Steps, **options: Any) -> FakeLoader:
    """Runs `steps` with a repository that was started, and closes it. It looks at the disk only when it is told to."""
    load = FakeLoader()

    async def run() -> None:
        options["poll_interval_s"] = 0
        if isinstance(source, Path):
            models = repository(source, load, **options)
        else:
            models = repository_of(ModelList(source), load, **options)
        await models.start()
        try:
            await steps(models)
        finally:
            await models.close()

    asyncio.run(run())
    assert all(model.closed == 1 for model in load.made)
    return load


def model(folder: Path, name: str = "m", policy: VersionPolicy = NEWEST, **labels: int) -> ModelConfig:
    return ModelConfig(name, folder / name, policy, labels)


def versions(*numbers: int) -> Specific:
    return Specific(frozenset(numbers))


def served(models: ModelRepository, name: str) -> set[int]:
    return {status.version for status in models.statuses(name) if status.state is VersionState.AVAILABLE}


# --- policies and labels ---


def test_each_model_has_its_own_policy(tmp_path: Path) -> None:
    for name in ("newest", "two", "all"):
        for version in (1, 2, 3):
            add(tmp_path, name, version)

    async def steps(models: ModelRepository) -> None:
        assert served(models, "newest") == {3}
        assert served(models, "two") == {1, 2}
        assert served(models, "all") == {1, 2, 3}
        assert models.resolve("two").version == 2

    play([model(tmp_path, "newest"), model(tmp_path, "two", versions(1, 2)), model(tmp_path, "all", All())], steps)


def test_a_label_names_a_version(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    add(tmp_path, "m", 2)

    async def steps(models: ModelRepository) -> None:
        assert models.resolve("m", label="stable").version == 1
        assert models.resolve("m", label="canary").version == 2
        with pytest.raises(InvalidRequest, match=r"^Unrecognized servable version label: beta$"):
            models.resolve("m", label="beta")
        with pytest.raises(InvalidRequest, match=r"^Unrecognized servable version label: stable$"):
            models.resolve("other", label="stable")
        remove(tmp_path, "m", 1)
        await models.poll_once()
        with pytest.raises(ModelNotFound, match=r"^Servable not found for request: Specific\(m, 1\)$"):
            models.resolve("m", label="stable")

    play([model(tmp_path, policy=All(), stable=1, canary=2)], steps)


def test_a_label_moves_with_the_next_list(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    add(tmp_path, "m", 2)

    async def steps(models: ModelRepository) -> None:
        await models.reload([model(tmp_path, policy=All(), stable=2)])
        assert models.resolve("m", label="stable").version == 2

    assert play([model(tmp_path, policy=All(), stable=1)], steps).calls == [("m", 2), ("m", 1)], "nothing is reloaded"


def test_a_label_of_a_version_that_is_not_served_is_rejected_and_nothing_changes(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    add(tmp_path, "m", 2)
    text = "Request to assign label stable to version 2 of model m, which is not currently available for inference"

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(PreconditionFailed, match=f"^{text}$"):
            await models.reload([model(tmp_path, policy=All(), stable=2), model(tmp_path, "other")])
        assert served(models, "m") == {1}
        assert models.resolve("m", label="stable").version == 1
        assert models.known_names() == ["m"]

    play([model(tmp_path, policy=versions(1), stable=1)], steps)


def test_a_flag_lets_new_labels_go_anywhere_but_not_old_ones(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(ModelNotFound):
            models.resolve("m", label="later")
        await models.reload([model(tmp_path, stable=1, later=9, never=10)])
        with pytest.raises(InvalidRequest, match="label stable to version 9"):
            await models.reload([model(tmp_path, stable=9)])
        add(tmp_path, "m", 9)
        await models.poll_once()
        assert models.resolve("m", label="later").version == 9

    play([model(tmp_path, stable=1, later=9)], steps, labels_anywhere=True)


def test_a_start_with_a_label_of_nothing_is_rejected(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None: ...

    with pytest.raises(InvalidRequest, match="label stable to version 2 of model m"):
        play([model(tmp_path, stable=2)], steps)


# --- wrong lists ---


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ([ModelConfig("", Path("/m"))], "A model in the list has no name"),
        ([ModelConfig("m", Path("/m"))] * 2, "Illegal to list model m multiple times in config list"),
        ([ModelConfig("m", Path("m"))], "Expected model m to have an absolute local base_path, not 'm'"),
        ([ModelConfig("n", Path("/n"), platform="x")], "Model n has platform 'x'; expected 'tensorflow'"),
        (
            [ModelConfig("m", Path("/m"), platform="x")],
            "Illegal to change a model's platform. For model m platform was tensorflow and is now x",
        ),
    ],
)
def test_a_wrong_list_is_rejected_and_nothing_changes(configs: list[ModelConfig], text: str, tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(InvalidRequest) as rejected:
            await models.reload(configs)
        assert str(rejected.value) == text
        assert models.resolve("m").version == 1

    play([model(tmp_path)], steps)


# --- reload ---


def test_the_new_list_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for name in ("stays", "goes", "comes"):
        add(tmp_path, name, 1)

    async def steps(models: ModelRepository) -> None:
        stays = models.resolve("stays")
        await models.reload([model(tmp_path, "stays"), model(tmp_path, "comes")])
        assert models.resolve("stays") is stays
        assert models.resolve("comes").version == 1
        with pytest.raises(ModelNotFound):
            models.resolve("goes")
        await models.reload([])
        assert models.known_names() == []

    play([model(tmp_path, "stays"), model(tmp_path, "goes")], steps)


def test_a_folder_gives_way_to_a_list(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def steps(models: ModelRepository) -> None:
        await models.reload([model(tmp_path, "b")])
        await models.poll_once()
        assert models.names() == ["b"]

    play(tmp_path, steps)


def test_a_new_model_that_fails_is_an_error_and_the_others_are_served(tmp_path: Path) -> None:
    add(tmp_path, "bad", 1, BROKEN)
    add(tmp_path, "good", 1)

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(ModelNotReady, match=r"^Model bad version 1 failed to load: 1 holds no model$"):
            await models.reload([model(tmp_path, "bad"), model(tmp_path, "good")])
        assert models.resolve("good").version == 1
        add(tmp_path, "bad", 2)
        await models.poll_once()
        assert models.resolve("bad").version == 2

    play([], steps)


def test_a_new_model_without_a_version_is_an_error_and_served_when_it_gets_one(tmp_path: Path) -> None:
    async def steps(models: ModelRepository) -> None:
        folder = tmp_path / "m"
        missing = f"^Model m has no complete version folder in {folder}: {folder} cannot be read: No such file"
        with pytest.raises(ModelNotFound, match=missing):
            await models.reload([model(tmp_path)])
        add(tmp_path, "m", 1)
        await models.poll_once()
        assert models.resolve("m").version == 1

    play([], steps)


def test_one_missing_base_path_disturbs_no_other_model_and_unloads_nothing(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def steps(models: ModelRepository) -> None:
        (tmp_path / "a").rename(tmp_path / "aside")
        add(tmp_path, "b", 2)
        await models.poll_once()
        assert models.resolve("a").version == 1
        assert models.resolve("b").version == 2

    play([model(tmp_path, "a"), model(tmp_path, "b"), model(tmp_path, "missing")], steps)


def test_a_listed_model_whose_versions_are_all_deleted_is_unloaded(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        remove(tmp_path, "m", 1)
        await models.poll_once()
        with pytest.raises(ModelNotFound):
            models.resolve("m")
        assert models.unready_reasons() == [f"Model m has no complete version folder in {tmp_path}/m"]
        assert models.known_names() == ["m"]

    play([model(tmp_path)], steps)


# --- start ---


def test_before_the_first_poll_ended_nothing_is_unknown(tmp_path: Path) -> None:
    models = repository(tmp_path, FakeLoader())
    for call in (models.resolve, models.statuses, lambda name: models.resolve(name, label="x")):
        with pytest.raises(ModelNotReady, match=r"^Models are still loading$"):
            call("m")


def test_waiting_ends_when_every_model_is_there(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)

    async def steps(models: ModelRepository) -> None:
        waiting = asyncio.create_task(models.wait_until_available())
        await models.poll_once()
        assert not waiting.done()
        add(tmp_path, "late", 1)
        await models.poll_once()
        await waiting

    play([model(tmp_path, "a"), model(tmp_path, "late")], steps)


def test_waiting_fails_with_the_model_that_fails(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "bad", 1, BROKEN)

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(ModelNotReady, match=r"^Model bad version 1 failed to load: 1 holds no model$"):
            await models.wait_until_available()

    play([model(tmp_path, "a"), model(tmp_path, "bad"), model(tmp_path, "missing")], steps)


def test_a_list_changes_nothing_while_the_disk_cannot_be_read(tmp_path: Path) -> None:
    """Such as when the process that reads it ended."""
    add(tmp_path, "m", 1)

    class Storage(StorageThread):
        fails = False

        async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.fails:
                raise OSError("the process that reads the storage ended")
            return function(*args, **kwargs)

    storage = Storage()

    async def steps(models: ModelRepository) -> None:
        storage.fails = True
        with pytest.raises(FilesUnreadable, match=r"^The list of models stays as it is, .*reads the storage ended$"):
            await models.reload([])
        storage.fails = False
        await models.poll_once()
        assert models.resolve("m").version == 1
        await models.reload([])
        with pytest.raises(ModelNotFound):
            models.resolve("m")

    play([model(tmp_path)], steps, storage=storage)


def test_a_base_path_that_no_file_can_have_is_rejected(tmp_path: Path) -> None:
    async def steps(models: ModelRepository) -> None:
        with pytest.raises(InvalidRequest, match="Model m has a base_path with a NUL character"):
            await models.reload([ModelConfig("m", tmp_path / "a\0b")])

    play([], steps)


# --- load and unload ---


def test_an_unloaded_model_stays_out_of_service_until_it_is_loaded(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    async def steps(models: ModelRepository) -> None:
        await models.unload("a")
        await models.unload("a")
        await models.poll_once()
        with pytest.raises(ModelNotFound):
            models.resolve("a")
        assert not models.unready_reasons(), "what was taken out on purpose is not missing"
        assert models.known_names() == ["a", "b"]
        await models.load("a")
        assert models.resolve("a").version == 1
        await models.load("a")

    assert sorted(play(tmp_path, steps).calls) == [("a", 1), ("a", 1), ("b", 1)]


def test_loading_waits_for_the_end_of_the_model_s_earlier_life(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    configs = [model(tmp_path)]

    async def taken_out_and_put_back(
        models: ModelRepository, out: Callable[[], Awaitable[None]], back: Callable[[], Awaitable[None]]
    ) -> None:
        old: Any = models.resolve("m")
        old.answered = asyncio.Event()
        await out()
        returning = asyncio.ensure_future(back())
        for _ in range(5):
            await models.poll_once()
        early = returning.done()
        assert served(models, "m") == set()
        old.answered.set()
        await returning
        assert not early
        assert served(models, "m") == {1}
        assert models.resolve("m") is not old

    async def steps(models: ModelRepository) -> None:
        await taken_out_and_put_back(models, lambda: models.unload("m"), lambda: models.load("m"))
        await taken_out_and_put_back(models, lambda: models.reload([]), lambda: models.reload(configs))

    play(configs, steps)


def test_loading_tells_that_the_files_went_away_while_it_waited(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        old: Any = models.resolve("m")
        old.answered = asyncio.Event()
        await models.unload("m")
        loading = asyncio.ensure_future(models.load("m"))
        await models.poll_once()
        remove(tmp_path, "m", 1)
        old.answered.set()
        with pytest.raises(ModelNotFound, match="no complete version folder"):
            await loading

    play([model(tmp_path)], steps)


@pytest.mark.parametrize("later", range(6))
def test_a_load_finds_a_version_whose_unload_ends_while_it_looks(tmp_path: Path, later: int) -> None:
    """Its look left the version out, and by the time it asks, nothing is being unloaded any more."""
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        old = cast(FakeModel, models.resolve("m"))
        old.answered = asyncio.Event()
        await models.unload("m")
        loading = asyncio.ensure_future(models.load("m"))
        while "m" not in models._tasks.under_way:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        for _ in range(later):
            await asyncio.sleep(0)
        old.answered.set()
        await loading
        assert models.resolve("m") is not old

    play([model(tmp_path)], steps)


def test_loading_tries_a_failed_model_again_and_says_why_it_fails(tmp_path: Path) -> None:
    add(tmp_path, "bad", 1, BROKEN)

    async def steps(models: ModelRepository) -> None:
        with pytest.raises(ModelNotReady, match="failed to load"):
            await models.load("bad")

    assert play(tmp_path, steps).calls == [("bad", 1)] * 2


def test_loading_finds_a_model_that_is_new(tmp_path: Path) -> None:
    async def steps(models: ModelRepository) -> None:
        add(tmp_path, "new", 1)
        await models.load("new")
        assert models.resolve("new").version == 1

    play(tmp_path, steps)


def test_what_is_not_there_can_be_neither_loaded_nor_unloaded(tmp_path: Path) -> None:
    async def steps(models: ModelRepository) -> None:
        for change in (models.load, models.unload):
            with pytest.raises(ModelNotFound, match=r"^Model x is not in the repository$"):
                await change("x")

    play(tmp_path, steps)


def test_a_new_list_brings_unloaded_models_back(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        await models.unload("m")
        await models.reload([model(tmp_path)])
        assert models.resolve("m").version == 1

    play([model(tmp_path)], steps)


# --- overrides ---

WANTED = LoadOverrides((1, 2), 5.0)


def test_other_overrides_load_a_served_model_anew(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        first = models.resolve("m")
        for overrides in (WANTED, WANTED, NO_OVERRIDES, NO_OVERRIDES):
            before = models.resolve("m")
            anew = models.overrides.get("m", NO_OVERRIDES) != overrides
            await models.load("m", overrides)
            assert models.overrides == ({} if overrides == NO_OVERRIDES else {"m": overrides})
            assert (models.resolve("m") is not before) == anew
        assert models.overrides == {}
        assert models.resolve("m") is not first

    assert len(play(tmp_path, steps).made) == 3


def test_a_new_version_has_the_overrides_of_the_last_load(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        await models.load("m", WANTED)
        add(tmp_path, "m", 2)
        await models.poll_once()
        assert models.resolve("m").version == 2
        assert models.overrides == {"m": WANTED}

    play(tmp_path, steps)


@pytest.mark.parametrize(("error", "told"), [(InferenceFailed, ModelNotReady), (InvalidRequest, InvalidRequest)])
def test_overrides_that_do_not_load_leave_the_model_as_it_was(
    tmp_path: Path, error: type[ServingError], told: type[ServingError]
) -> None:
    """The caller is told whose fault it was."""
    add(tmp_path, "m", 1)
    loader = FakeLoader()

    def load(name: str, version: int, path: Path) -> FakeModel:
        if models.overrides:
            raise error("it is too large")
        return loader(name, version, path)

    models = repository(tmp_path, load, poll_interval_s=0)

    async def run() -> None:
        await models.start()
        before = models.resolve("m")
        with pytest.raises(told, match=r"^Model m serves on as it was: it is too large$"):
            await models.load("m", WANTED)
        await models.poll_once()
        assert models.resolve("m") is before
        assert models.overrides == {}
        assert models.problems() == []
        await models.close()

    asyncio.run(run())


def test_of_two_loads_at_once_with_overrides_that_fail_none_is_in_effect(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    loader, tried = FakeLoader(), list[LoadOverrides]()

    def load(name: str, version: int, path: Path) -> FakeModel:
        if overrides := models.overrides.get(name):
            tried.append(overrides)
            raise InferenceFailed("it is too large")
        return loader(name, version, path)

    models = repository(tmp_path, load, poll_interval_s=0)

    async def run() -> None:
        await models.start()
        before, others = models.resolve("m"), LoadOverrides((1, 4), 5.0)
        loads = await asyncio.gather(models.load("m", WANTED), models.load("m", others), return_exceptions=True)
        assert [type(each) for each in loads] == [ModelNotReady, ModelNotReady]
        assert tried == [WANTED, others]
        assert models.overrides == {}
        await models.poll_once()
        assert tried == [WANTED, others]
        assert models.resolve("m") is before
        await models.close()

    asyncio.run(run())


# --- callers that go away ---


def test_a_change_is_finished_when_its_caller_goes_away(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    load = HeldLoader()

    async def run() -> None:
        models = repository_of(ModelList([]), load, poll_interval_s=0)
        await models.start()
        caller = asyncio.create_task(models.reload([model(tmp_path)]))
        await asyncio.to_thread(load.entered.wait, HANG_S)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        load.gate.set()
        await models.poll_once()
        assert models.resolve("m") is load.made[0]
        await models.close()

    asyncio.run(run())
    assert [made.closed for made in load.made] == [1]


def test_a_failure_that_no_caller_waits_for_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(models: ModelRepository) -> None:
        caller = asyncio.create_task(models.load("x"))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        await models.poll_once()
        gc.collect()
        assert "never retrieved" not in caplog.text

    play(tmp_path, steps)


labels_of_models = st.fixed_dictionaries(
    {"a": st.sampled_from([{}, {"stable": 1}, {"stable": 2}, {"stable": 1, "canary": 2}])},
    optional={"b": st.sampled_from([{}, {"stable": 1}])},
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=st.lists(labels_of_models, min_size=1, max_size=4))
def test_whoever_follows_labels_is_told_of_each_that_changes_or_goes_and_of_no_other(
    schedule: list[dict[str, dict[str, int]]], tmp_path: Path
) -> None:
    """A pipeline that names a version by its label goes on with the next one, or waits."""
    for name, version in product("ab", (1, 2)):
        add(tmp_path, name, version)
    heard = Recorder()
    first: dict[str, dict[str, int]] = {"a": {}, "b": {"stable": 1}}

    def configs(labels: dict[str, dict[str, int]]) -> list[ModelConfig]:
        return [model(tmp_path, name, All(), **own) for name, own in labels.items()]

    async def steps(models: ModelRepository) -> None:
        before = first
        for labels in schedule:
            heard.events.clear()
            await models.reload(configs(labels))
            changed = {each for each in "ab" if before.get(each, {}) != labels.get(each, {})}
            told = [each.model for each in heard.events if isinstance(each, LabelsChanged)]
            assert sorted(told) == sorted(changed)
            before = labels

    play(configs(first), steps, listener=heard, labels_anywhere=True)
