"""Whoever looks is told what holds a version: why, and whether something is served meanwhile; once in the log, and as
long as it holds. What the settings and the rooms beside say of it arrives: labels, pipelines that wait, the grace.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequest, OutOfMemory
from app.core.versions import ProblemKind, VersionState
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.repository.repository import ModelRepository
from app.repository.version_policy import All
from app.server.server import Server
from tests.every_protocol.live import frontends_of, settings
from tests.every_protocol.suite import runtime_in_place
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, HeldLoader, add, repository
from tests.support.waiting import HANG_S, until

__all__ = ["runtime_in_place"]  # a fixture


PIPELINE = """
steps:
  first: {model: m, inputs: {features: features}}
outputs: {doubled: first.doubled}
"""


def told(models: ModelRepository) -> list[tuple[int, ProblemKind, str]]:
    return [(each.version, each.kind, each.text) for each in models.problems()]


# --- versions that are held, and what changed ---

NOT_THERE = "assets/vocabulary is not there"
HELD = f"Model m version 2 is not loaded: {NOT_THERE}"
CHANGED = f"Model m version 1 changed on disk and is not loaded anew: {NOT_THERE}"


def missing_part(folder: Path) -> str:
    return "" if (folder / "vocabulary").exists() else NOT_THERE


def test_what_is_held_is_told_while_it_is_and_logged_once_with_what_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        models = repository(tmp_path, FakeLoader(), missing_part=missing_part)
        add(tmp_path, "m", 2)
        for _ in range(3):
            await models.poll_once()
            assert told(models) == [(2, ProblemKind.INCOMPLETE, HELD)]
        assert caplog.messages == [f"{HELD}; no version is served"]
        caplog.clear()

        # Another one serves; the reason is the same, and is no news.
        (add(tmp_path, "m", 1) / "vocabulary").touch()
        await models.poll_once()
        assert models.resolve("m").version == 1
        assert told(models) == [(2, ProblemKind.INCOMPLETE, HELD)]
        assert HELD not in caplog.text

        # The files of what serves change, and are not whole: it serves on, and both are told.
        (tmp_path / "m" / "1" / "vocabulary").unlink()
        for _ in range(2):
            await models.poll_once()
            assert sorted(told(models)) == [
                (1, ProblemKind.INCOMPLETE, CHANGED),
                (2, ProblemKind.INCOMPLETE, HELD),
            ]
        assert [each for each in caplog.messages if CHANGED in each] == [f"{CHANGED}; version 1 keeps serving"]

        # It is whole again.
        for version in (1, 2):
            (tmp_path / "m" / str(version) / "vocabulary").touch()
        await models.poll_once()
        assert told(models) == []
        assert models.resolve("m").version == 2
        caplog.clear()

        # A reason that comes back is news.
        add(tmp_path, "m", 3)
        await models.poll_once()
        text = f"Model m version 3 is not loaded: {NOT_THERE}"
        assert [each for each in caplog.messages if text in each] == [f"{text}; version 2 keeps serving"]
        await models.close()

    caplog.set_level(logging.WARNING)
    asyncio.run(main())


def test_what_failed_as_it_changed_is_told_until_it_loads_and_is_not_tried_at_every_look(tmp_path: Path) -> None:
    now = [0.0]

    async def main() -> None:
        load = FakeLoader()
        models = repository(tmp_path, load, clock=lambda: now[0])
        add(tmp_path, "m", 1)
        await models.poll_once()
        old: Any = models.resolve("m")
        add(tmp_path, "m", 1, BROKEN)
        text = "Model m version 1 changed on disk and is not loaded anew: 1 holds no model"
        for tried in (2, 2):
            await models.poll_once()
            assert len(load.calls) == tried
            assert told(models) == [(1, ProblemKind.FAILED, text)]
            assert models.resolve("m") is old

        # Other bad files are tried at once, and are told likewise.
        add(tmp_path, "m", 1, BROKEN + b".")
        await models.poll_once()
        assert (len(load.calls), told(models)) == (3, [(1, ProblemKind.FAILED, text)])

        # At last it loads, once.
        add(tmp_path, "m", 1, b"mended")
        await models.poll_once()
        assert (len(load.calls), told(models), old.closed) == (4, [], 1)
        await models.poll_once()
        assert len(load.calls) == 4
        await models.close()

    asyncio.run(main())


def test_what_lacked_memory_as_it_changed_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    now, fails = [0.0], [False]
    good = FakeLoader()

    def load(name: str, version: int, path: Path) -> FakeModel:
        model = good(name, version, path)
        if fails[0]:
            raise OutOfMemory("no memory is left")
        return model

    async def main() -> None:
        models = repository(tmp_path, load, clock=lambda: now[0])
        add(tmp_path, "m", 1)
        await models.poll_once()
        old: Any = models.resolve("m")
        fails[0] = True
        add(tmp_path, "m", 1, b"larger")
        for at_s, tries in ((0.0, 2), (0.5, 2), (1.5, 3), (2.5, 3), (4.0, 4)):  # pauses of 1 s and 2 s
            now[0] = at_s
            await models.poll_once()
            assert (len(good.calls), models.resolve("m")) == (tries, old)
            assert [(each.kind, each.text.rpartition(": ")[2]) for each in models.problems()] == [
                (ProblemKind.FAILED, "no memory is left")
            ]
        fails[0], now[0] = False, 10.0
        await models.poll_once()
        assert (told(models), old.closed) == ([], 1)
        await models.close()

    asyncio.run(main())


def test_a_version_whose_files_have_gone_serves_on_and_is_not_loaded_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder is there. What is missing is told by whoever read the disk, once."""

    async def main() -> None:
        load = FakeLoader()
        models = repository(tmp_path, load)
        add(tmp_path, "m", 1)
        await models.poll_once()
        (tmp_path / "m" / "1" / "saved_model.pb").unlink()
        (tmp_path / "m" / "2").mkdir()
        for _ in range(2):
            await models.poll_once()
            assert (models.resolve("m").version, load.calls) == (1, [("m", 1)])
        lines = [each for each in caplog.messages if "version 2" in each or "/m/2" in each or "m/2" in each]
        assert len(lines) == len(set(lines)) <= 1, lines
        await models.close()

    caplog.set_level(logging.INFO)
    asyncio.run(main())


def test_a_server_that_stops_tells_nothing_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it did not load any more is not held."""

    async def main() -> None:
        load = HeldLoader("b")
        models = repository(tmp_path, load, missing_part=missing_part)
        (add(tmp_path, "b", 1) / "vocabulary").touch()
        add(tmp_path, "b", 2)
        looking = asyncio.create_task(models.poll_once())
        assert await asyncio.to_thread(load.entered.wait, HANG_S)
        closing = asyncio.create_task(models.close())
        await asyncio.sleep(0)
        load.gate.set()
        await closing
        await asyncio.wait([looking])
        assert "is not loaded" not in caplog.text

    asyncio.run(main())


# --- what is passed on ---


async def started(server: Server) -> None:
    await server.start()
    assert server._starting is not None
    await server._starting


def test_a_pipeline_whose_model_is_not_there_waits_and_is_not_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is wrong with it: its load has not failed."""
    caplog.set_level(logging.INFO)
    (tmp_path / "p" / "1").mkdir(parents=True)
    text = 'steps: {s: {model: "later", inputs: {features: x}}}\noutputs: {y: s.sum}\n'
    (tmp_path / "p" / "1" / "pipeline.yaml").write_text(text)

    async def main() -> None:
        server = Server(settings(tmp_path))
        await started(server)
        await server.repository.poll_once()
        found = {each.model: (each.kind, each.text) for each in server.repository.problems()}
        why = "Model p version 1 is not loaded: it waits for the model later (not there)"
        assert found["p"] == (ProblemKind.WAITING, why)
        (status,) = server.repository.statuses("p")
        assert status.state is VersionState.START
        (line,) = [each for each in caplog.records if why in each.getMessage()]
        assert (line.levelno, line.getMessage()) == (logging.INFO, f"{why}; no version is served")
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("anywhere", [False, True])
def test_labels_go_anywhere_where_the_list_says_so(tmp_path: Path, *, anywhere: bool) -> None:
    async def main() -> None:
        chosen = settings(tmp_path)

        def listed(**labels: int) -> list[ModelConfig]:
            return [ModelConfig("m", tmp_path / "m", All(), labels)]

        server = Server(chosen, WatchedModels(listed(), labels_anywhere=anywhere))
        await started(server)
        rejected = nullcontext() if anywhere else pytest.raises(InvalidRequest, match="label next to version 9")
        with rejected:
            await server.repository.reload(listed(next=9))
        await server.stop()

    asyncio.run(main())


def test_a_frontend_serves_on_for_the_grace_where_something_is_served_and_no_signal_says_otherwise(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        server = Server(settings(tmp_path, frontends=1, drain_grace_s=7.5))
        await started(server)
        async with frontends_of(server) as (frontend,):
            assert (server.grace_s, frontend.grace_s) == (7.5, 7.5)
            frontend.skip_grace()
            assert frontend.grace_s == 0
        async with frontends_of(server) as (frontend,):
            await server.repository.unload("m")
            await until(lambda: not frontend.repository.serves)
            assert (server.grace_s, frontend.grace_s) == (0, 0), "nothing is served"
        await server.stop()

    asyncio.run(main())


def test_a_pipeline_whose_model_has_gone_is_told_alike_by_states_and_metrics(tmp_path: Path) -> None:
    folder = tmp_path / "models"

    async def main() -> None:
        server = Server(settings(folder))
        (folder / "p" / "1").mkdir(parents=True)
        (folder / "p" / "1" / "pipeline.yaml").write_text(PIPELINE)
        await server.start()
        assert server._starting is not None
        await server._starting
        # Another form is another page: the same one may be half a second old.
        for state, form in (VersionState.AVAILABLE, ""), (VersionState.START, "application/openmetrics-text"):
            assert [each.state for each in server.repository.statuses("p")] == [state]
            page = (await server.metrics(form, None)).body.decode()
            assert f'ferry_model_state{{model="p",state="{state}",version="1"}} 1.0' in page
            await server.repository.unload("m")
        await server.stop()

    asyncio.run(main())
