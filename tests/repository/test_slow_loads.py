"""A load that takes long, and what goes on meanwhile."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.errors import ModelNotFound
from app.core.versions import VersionState
from tests.repository.fakes import HeldLoader, add, repository
from tests.support.waiting import HANG_S, until


def test_close_waits_for_the_load_under_way_and_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.repository.reconciler._MOST_LOADS", 1)
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    load = HeldLoader()

    async def run() -> None:
        models = repository(tmp_path, load)
        starting = asyncio.create_task(models.start())
        await asyncio.to_thread(load.entered.wait, HANG_S)
        closing = asyncio.create_task(models.close())
        await asyncio.sleep(0)
        assert not closing.done()
        load.gate.set()
        await closing
        await starting

    asyncio.run(run())
    assert len(load.calls) == 1
    assert [model.closed for model in load.made] == [1]


@pytest.fixture
def held() -> Iterator[HeldLoader]:
    """Models that are named slow wait."""
    load = HeldLoader("slow")
    yield load
    load.gate.set()


def test_unloading_and_reloading_one_model_does_not_wait_for_the_load_of_another(
    tmp_path: Path, held: HeldLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.repository.reconciler._MOST_LOADS", 2)
    add(tmp_path, "quick", 1)

    async def run() -> None:
        models = repository(tmp_path, held)
        await models.poll_once()
        add(tmp_path, "slow", 1)
        loading = asyncio.create_task(models.poll_once())
        await asyncio.to_thread(held.entered.wait, HANG_S)

        await models.unload("quick")
        with pytest.raises(ModelNotFound):
            models.resolve("quick")
        await models.load("quick")
        assert models.resolve("quick").version == 1
        assert not loading.done()

        held.gate.set()
        await loading
        assert models.resolve("slow").version == 1
        await models.close()

    asyncio.run(run())


def test_new_versions_of_other_models_are_found_while_one_loads(
    tmp_path: Path, held: HeldLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.repository.reconciler._MOST_LOADS", 2)
    add(tmp_path, "quick", 1)

    async def run() -> None:
        models = repository(tmp_path, held, poll_interval_s=0.01)
        await models.start()
        add(tmp_path, "slow", 1)
        await asyncio.to_thread(held.entered.wait, HANG_S)
        add(tmp_path, "quick", 2)
        await until(lambda: models.resolve("quick").version == 2)
        assert [status.state for status in models.statuses("slow")] == [VersionState.LOADING]
        held.gate.set()
        await until(lambda: bool(models.catalog.available("slow")))
        await models.close()

    asyncio.run(run())


def test_a_model_that_is_unloaded_while_it_loads_is_gone_afterwards(tmp_path: Path, held: HeldLoader) -> None:
    add(tmp_path, "slow", 1)

    async def run() -> None:
        models = repository(tmp_path, held)
        loading = asyncio.create_task(models.poll_once())
        await asyncio.to_thread(held.entered.wait, HANG_S)
        unloading = asyncio.create_task(models.unload("slow"))
        await asyncio.sleep(0)
        held.gate.set()
        await unloading
        await loading
        with pytest.raises(ModelNotFound):
            models.resolve("slow")
        await models.close()

    asyncio.run(run())
