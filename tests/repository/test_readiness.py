"""Who is ready, and what is told of models that do not work."""

import asyncio
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.core.versions import ProblemKind
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelList
from app.repository.repository import ModelRepository
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, HeldLoader, add, repository, repository_of
from tests.support.waiting import HANG_S, until


def play(folder: Path, steps: Callable[[ModelRepository], Awaitable[None]], **options: object) -> None:
    async def run() -> None:
        models = repository(folder, FakeLoader(), **options)
        await models.poll_once()
        await steps(models)
        await models.close()

    asyncio.run(run())


def texts(models: ModelRepository) -> list[str]:
    return [problem.text for problem in models.problems()]


def test_one_broken_model_does_not_make_the_others_unavailable(tmp_path: Path) -> None:
    add(tmp_path, "bad", 1, BROKEN)
    add(tmp_path, "good", 1)
    (tmp_path / "half" / "1").mkdir(parents=True)

    async def steps(models: ModelRepository) -> None:
        assert models.unready_reasons() == []
        assert texts(models) == [
            "Model bad version 1 failed to load: 1 holds no model",
            "Model half version 1 is not loaded: it holds no saved_model.pb, model.tflite or pipeline.yaml",
        ]
        assert [problem[:3] for problem in models.problems()] == [
            ("bad", 1, ProblemKind.FAILED),
            ("half", 1, ProblemKind.MISSING),
        ]

    play(tmp_path, steps)


def test_names_of_files_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    """Pages are UTF-8, and a name may be any bytes: a page of metrics or of health must not fail for it."""
    version = add(tmp_path, "m", 1)
    with socket.socket(socket.AF_UNIX) as odd:
        odd.bind(os.fsencode(version) + b"/\xff")

        async def steps(models: ModelRepository) -> None:
            (status,) = models.statuses("m")
            for text in (*texts(models), status.error_message):
                assert text.encode().decode() == r"Model m version 1 is not loaded: \udcff is no regular file"

        play(tmp_path, steps)


def test_an_error_of_a_load_that_is_no_text_can_be_printed(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    def load(_: str, __: int, path: Path) -> FakeModel:
        raise FileNotFoundError(str(path / "\udcff"))

    async def run() -> None:
        models = repository(tmp_path, load)
        await models.poll_once()
        assert texts(models)[0].encode().endswith(rb"\udcff")
        await models.close()

    asyncio.run(run())


def test_where_all_are_broken_the_reasons_name_each(tmp_path: Path) -> None:
    add(tmp_path, "bad", 1, BROKEN)
    add(tmp_path, "worse", 3, BROKEN)

    async def steps(models: ModelRepository) -> None:
        assert models.unready_reasons() == [
            "Model bad version 1 failed to load: 1 holds no model",
            "Model worse version 3 failed to load: 3 holds no model",
        ]

    play(tmp_path, steps)


def test_a_failed_version_beside_one_that_serves_is_told(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(models: ModelRepository) -> None:
        add(tmp_path, "m", 2, BROKEN)
        await models.poll_once()
        assert models.unready_reasons() == []
        assert texts(models) == ["Model m version 2 failed to load: 2 holds no model"]
        add(tmp_path, "m", 2, b"mended")
        await models.poll_once()
        assert texts(models) == []

    play(tmp_path, steps)


def test_a_pipeline_that_waits_for_a_model_again_is_told_and_the_others_serve(tmp_path: Path) -> None:
    add(tmp_path, "good", 1)
    add(tmp_path, "pipeline", 1)
    load = FakeLoader()

    async def run() -> None:
        models = repository(tmp_path, load)
        await models.poll_once()
        (pipeline,) = [each for each in load.made if each.name == "pipeline"]
        pipeline.missing = "waits for the model small (not there)"
        text = "Model pipeline version 1 answers no requests: it waits for the model small (not there)"
        assert models.problems() == [("pipeline", 1, ProblemKind.WAITING, text)]
        assert models.unready_reasons() == []
        pipeline.missing = ""
        assert models.problems() == []
        await models.close()

    asyncio.run(run())


def test_a_problem_goes_with_its_files(tmp_path: Path) -> None:
    add(tmp_path, "good", 1)
    add(tmp_path, "bad", 1, BROKEN)

    async def steps(models: ModelRepository) -> None:
        shutil.rmtree(tmp_path / "bad")
        await models.poll_once()
        assert models.problems() == []

    play(tmp_path, steps)


def test_a_listed_model_without_a_folder_is_told_and_the_others_serve(tmp_path: Path) -> None:
    add(tmp_path, "good", 1)

    async def run() -> None:
        source = ModelList([ModelConfig("good", tmp_path / "good"), ModelConfig("gone", tmp_path / "gone")])
        models = repository_of(source, FakeLoader())
        await models.poll_once()
        assert models.unready_reasons() == []
        assert [problem[:3] for problem in models.problems()] == [("gone", None, ProblemKind.UNREADABLE)]
        assert texts(models) == [f"Model gone has no complete version folder in {tmp_path}/gone"]
        await models.close()

    asyncio.run(run())


def test_ready_waits_for_the_first_try_of_every_model(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    load = HeldLoader("b")

    async def run() -> None:
        models = repository(tmp_path, load)
        poll = asyncio.create_task(models.poll_once())
        await asyncio.to_thread(load.entered.wait, HANG_S)
        await until(lambda: bool(models.catalog.available("a")))
        assert models.unready_reasons() == ["Model b is still loading"]
        load.gate.set()
        await poll
        assert models.unready_reasons() == []
        await models.close()

    asyncio.run(run())


def test_a_model_whose_files_changed_at_the_first_look_is_not_tried_yet(tmp_path: Path) -> None:
    """It was seen: one model was served, one that began to load half a second later was not, and the server ready."""
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    load, now = HeldLoader("a"), [0.0]

    async def run() -> None:
        models = repository(tmp_path, load, settle_s=0.01, clock=lambda: now[0])
        await models.look()
        now[0] = 1.0
        add(tmp_path, "a", 1, b"good and longer")
        start = asyncio.create_task(models.start())
        await until(lambda: bool(models.catalog.available("b")))
        assert models.unready_reasons() == ["Model a version 1 is not loaded: its files are still changing"]
        now[0] = 2.0
        await asyncio.to_thread(load.entered.wait, HANG_S)
        assert models.unready_reasons() == ["Model a is still loading"]
        load.gate.set()
        await start
        assert models.unready_reasons() == []
        await models.close()

    asyncio.run(run())


def test_a_model_whose_files_never_rest_does_not_keep_the_others_from_being_ready(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    now = [0.0]

    async def run() -> None:
        models = repository(tmp_path, FakeLoader(), settle_s=0.01, clock=lambda: now[0])
        await models.look()
        now[0] = 1.0
        add(tmp_path, "a", 1, b"good and longer")
        await models.start()
        assert models.unready_reasons() == []
        assert texts(models) == ["Model a version 1 is not loaded: its files are still changing"]
        await models.close()

    asyncio.run(run())
