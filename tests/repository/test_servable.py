import asyncio
import logging
from pathlib import Path

import pytest

from app.core.events import ReloadFailed
from app.core.versions import VersionState, VersionStatus
from app.repository.repository import _no_mirror
from app.repository.servable import Servable
from tests.repository.fakes import FakeModel, Recorder

FILES = frozenset({("saved_model.pb", 1, 1)})


async def _made(model: FakeModel) -> FakeModel:
    return model


async def _fails(error: Exception) -> FakeModel:
    raise error


def test_every_step_of_a_life_is_told() -> None:
    told = Recorder()
    model = FakeModel("m", 1, Path())

    async def live() -> None:
        servable = Servable("m", 1, told)
        assert servable.loading
        await servable.load(_made(model), FILES)
        assert servable.model is model
        assert not servable.ended
        await servable.unload(_no_mirror)
        assert servable.model is None
        assert servable.ended
        await servable.unload(_no_mirror)

    asyncio.run(live())
    assert told.states("m") == [(1, "START"), (1, "LOADING"), (1, "AVAILABLE"), (1, "UNLOADING"), (1, "END")]
    assert model.closed == 1


def test_a_failed_load_ends_with_the_error_and_what_it_failed_on() -> None:
    servable = Servable("m", 1, Recorder())
    asyncio.run(servable.load(_fails(RuntimeError()), FILES))
    assert servable.status == VersionStatus(1, VersionState.END, "RuntimeError")
    assert servable.failed_on == FILES
    assert not servable.ended


def test_a_failed_load_anew_is_told_and_the_version_serves_on() -> None:
    told = Recorder()
    model = FakeModel("m", 1, Path())

    async def live() -> None:
        servable = Servable("m", 1, told)
        await servable.load(_made(model), FILES)
        assert await servable.load_anew(_fails(RuntimeError("no graph")), frozenset()) is None
        assert servable.model is model
        assert servable.status == VersionStatus(1, VersionState.AVAILABLE)

    asyncio.run(live())
    assert told.events[-1] == ReloadFailed("m", 1, "no graph")


def test_a_failed_unload_still_ends(caplog: pytest.LogCaptureFixture) -> None:
    servable = Servable("m", 1, Recorder())

    async def live() -> None:
        await servable.load(_made(FakeModel("m", 1, Path(), fail_to_close=True)), FILES)
        with caplog.at_level(logging.ERROR):
            await servable.unload(_no_mirror)

    asyncio.run(live())
    assert servable.status == VersionStatus(1, VersionState.END, "stuck")
    assert "version 1 of model m failed to unload" in caplog.text
