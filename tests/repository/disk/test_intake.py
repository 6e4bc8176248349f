"""Which versions may be loaded: at rest, whole, and read to the end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ModelNotReady
from app.core.versions import ProblemKind, VersionState
from app.repository.disk.disk_layout import DiskLayout, version_files
from app.repository.disk.examination import examine, nothing_missing
from app.repository.disk.intake import Held, Intake
from app.repository.disk.storage import StorageSilent
from app.repository.model_sources import ModelsFolder
from app.repository.repository import ModelRepository
from tests.repository.disk.test_retries import Time
from tests.repository.fakes import FakeLoader, StorageThread, add, repository
from tests.support.waiting import HANG_S

A_MINUTE_NS = 60 * 10**9


@dataclass
class Storage(StorageThread):
    """Answers, or fails as it is told to; counts the examinations."""

    errors: list[OSError] = field(default_factory=list)
    calls: int = 0

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function is examine:
            self.calls += 1
            if self.errors:
                raise self.errors.pop(0)
        return function(*args, **kwargs)


def lacks_its_vocabulary(version: Path) -> str:
    return "" if (version / "vocabulary").exists() else "assets/vocabulary is not there"


def play(folder: Path, steps: Callable[[ModelRepository, FakeLoader, Time], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        load, clock = FakeLoader(), Time()
        models = repository(folder, load, clock=clock, **{"storage": Storage(), **options})
        await steps(models, load, clock)
        await models.close()

    asyncio.run(run())


def kinds(models: ModelRepository) -> list[ProblemKind]:
    return [problem.kind for problem in models.problems()]


# --- at rest ---


def held(intake: Intake, folder: Path) -> Held | None:
    return asyncio.run(intake.held(folder, version_files(folder)))


def test_young_files_have_to_rest_and_every_change_begins_anew(tmp_path: Path) -> None:
    version, clock = add(tmp_path, "m", 1), Time()
    intake = Intake(StorageThread(), nothing_missing, 2.0, clock)
    for at_s, content in ((0.0, b"1"), (1.9, b"12"), (3.8, b"123")):
        clock.now_s = at_s
        add(tmp_path, "m", 1, content)
        assert held(intake, version) == Held(ProblemKind.CHANGING, "its files are still changing")
    clock.now_s = 5.7
    assert held(intake, version) is not None
    clock.now_s = 5.8
    assert held(intake, version) is None


def test_old_files_are_at_rest_at_once(tmp_path: Path) -> None:
    version = add(tmp_path, "m", 1)
    newest_ns = version_files(version).newest_ns
    for age_ns, rests in ((A_MINUTE_NS, False), (A_MINUTE_NS + 3 * 10**9, True), (-A_MINUTE_NS, False)):
        intake = Intake(StorageThread(), nothing_missing, 2.0, Time(), lambda age_ns=age_ns: newest_ns + age_ns)
        assert (held(intake, version) is None) == rests, "a clock that is wrong by a minute deceives nobody"


def test_times_that_a_copy_keeps_do_not_make_files_old(tmp_path: Path) -> None:
    version = add(tmp_path, "m", 1)
    os.utime(version / "saved_model.pb", ns=(0, 0))
    intake = Intake(StorageThread(), nothing_missing, 2.0, Time())
    assert held(intake, version) is not None


def test_the_first_poll_waits_once_for_young_files(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def run() -> None:
        models = repository(tmp_path, FakeLoader(), settle_s=0.01)
        await models.poll_once()
        assert models.resolve("m").version == 1
        await models.close()

    asyncio.run(run())


def test_files_that_were_seen_while_the_runtime_started_need_no_more_rest(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.look()
        clock.now_s = 1.0
        await models.poll_once()
        assert models.resolve("m").version == 1

    play(tmp_path, steps, settle_s=1.0)


def test_a_load_by_name_does_not_wait_for_the_files_of_other_models(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.look()
        clock.now_s = 3600.0
        await models.poll_once()
        add(tmp_path, "young", 1)
        async with asyncio.timeout(HANG_S):
            await models.load("m")
        assert [(each.model, each.kind) for each in models.problems()] == [("young", ProblemKind.CHANGING)]

    play(tmp_path, steps, settle_s=3600.0)


# --- whole ---


def test_an_incomplete_version_is_told_and_never_replaces_the_one_that_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (add(tmp_path, "m", 1) / "vocabulary").touch()

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.poll_once()
        version = add(tmp_path, "m", 2)
        await models.poll_once()
        await models.poll_once()
        assert models.resolve("m").version == 1
        assert load.calls == [("m", 1)]
        text = "Model m version 2 is not loaded: assets/vocabulary is not there"
        assert [(problem.kind, problem.text) for problem in models.problems()] == [(ProblemKind.INCOMPLETE, text)]
        assert [(status.version, status.state, status.error_message) for status in models.statuses("m")] == [
            (2, VersionState.START, text),
            (1, VersionState.AVAILABLE, ""),
        ]
        with pytest.raises(ModelNotReady, match="assets/vocabulary is not there"):
            models.resolve("m", 2)
        assert caplog.messages == [f"{text}; version 1 keeps serving"], "logged once"
        (version / "vocabulary").touch()
        await models.poll_once()
        assert models.resolve("m").version == 2
        assert models.problems() == []

    play(tmp_path, steps, missing_part=lacks_its_vocabulary)


def test_a_model_whose_only_version_is_incomplete_is_known_and_not_ready(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.poll_once()
        assert models.names() == ["m"]
        with pytest.raises(ModelNotReady, match="Model m version 1 is not loaded: assets/vocabulary is not there"):
            models.resolve("m")

    play(tmp_path, steps, missing_part=lacks_its_vocabulary)


def test_a_file_that_is_completed_later_is_loaded_anew(tmp_path: Path) -> None:
    """Nobody can see that 2 of 5 lines of a vocabulary are too few; but they change."""
    version = add(tmp_path, "m", 1)
    (version / "vocabulary").write_text("a\nb\n")

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.poll_once()
        clock.now_s = 1.0
        await models.poll_once()
        first = models.resolve("m")
        (version / "vocabulary").write_text("a\nb\nc\nd\ne\n")
        await models.poll_once()
        assert models.resolve("m") is first, "it has to rest"
        assert kinds(models) == [ProblemKind.CHANGING]
        clock.now_s = 2.0
        await models.poll_once()
        assert models.resolve("m") is not first
        assert models.problems() == []

    play(tmp_path, steps, missing_part=lacks_its_vocabulary, settle_s=1.0)


def test_a_version_in_memory_whose_files_become_incomplete_serves_on(tmp_path: Path) -> None:
    (add(tmp_path, "m", 1) / "vocabulary").touch()
    version = add(tmp_path, "m", 2)
    (version / "vocabulary").touch()

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.poll_once()
        (version / "vocabulary").unlink()
        await models.poll_once()
        assert models.resolve("m").version == 2
        assert load.calls == [("m", 2)]
        assert [problem.text for problem in models.problems()] == [
            "Model m version 2 changed on disk and is not loaded anew: assets/vocabulary is not there"
        ]

    play(tmp_path, steps, missing_part=lacks_its_vocabulary)


# --- readable ---


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    version = add(tmp_path, "m", 1)
    assert examine(version, nothing_missing).missing == ""
    (version / "null").symlink_to("/dev/null")
    assert examine(version, nothing_missing).missing == "null is no regular file"


def test_links_to_folders_are_followed_and_loops_end(tmp_path: Path) -> None:
    version, elsewhere = add(tmp_path, "m", 1), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (version / "assets").symlink_to(elsewhere)
    (version / "loop").symlink_to(version)
    before = version_files(version).fingerprint
    (elsewhere / "vocabulary").write_text("a\n")
    assert version_files(version).fingerprint != before
    (elsewhere / "null").symlink_to("/dev/null")
    assert examine(version, nothing_missing).missing == "assets/null is no regular file"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(StorageSilent("/m/1/x", 5.0), ProblemKind.SILENT), (OSError(5, "Input/output error"), ProblemKind.UNREADABLE)],
)
def test_storage_that_fails_is_told_and_tried_again_with_back_off(
    tmp_path: Path, error: OSError, kind: ProblemKind
) -> None:
    add(tmp_path, "m", 1)
    storage = Storage(errors=[error] * 3)

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        for second in range(7):
            clock.now_s = float(second)
            await models.poll_once()
            assert kinds(models) == [kind]
        assert storage.calls == 3, "after 0, 1 and 3 s"
        clock.now_s = 7.0
        await models.poll_once()
        assert models.resolve("m").version == 1
        assert models.problems() == []

    play(tmp_path, steps, storage=storage)


def test_what_was_found_of_a_model_holds_while_its_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known then: what rests goes on resting, and what was examined is not read again."""
    add(tmp_path, "m", 1)
    scan, hidden = ModelsFolder.scan, set[str]()

    def without_hidden(source: ModelsFolder, silent: Collection[Path]) -> DiskLayout:
        found = scan(source, silent)
        seen = {name: versions for name, versions in found.models.items() if name not in hidden}
        return replace(found, models=seen, unreadable=frozenset(hidden))

    monkeypatch.setattr(ModelsFolder, "scan", without_hidden)
    storage = Storage()

    async def steps(models: ModelRepository, load: FakeLoader, clock: Time) -> None:
        await models.poll_once()
        assert (kinds(models), storage.calls) == ([ProblemKind.INCOMPLETE], 1)
        for _ in range(2):
            for hidden_now in ({"m"}, set[str]()):
                hidden.clear()
                hidden.update(hidden_now)
                await models.poll_once()
        assert (kinds(models), storage.calls) == ([ProblemKind.INCOMPLETE], 1)

    play(tmp_path, steps, storage=storage, missing_part=lacks_its_vocabulary)
