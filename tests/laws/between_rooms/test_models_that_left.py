"""What is forgotten is forgotten everywhere: of a model that has left the disk the repository knows nothing.

A model of the same name that comes later is another one: what was learnt of the first one, or refused it, is not its.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import FilesUnreadable
from app.core.interfaces import LoadOverrides
from app.repository.disk import examination
from app.repository.memory.load_room import LoadRoom
from app.repository.repository import ModelRepository
from tests.laws.between_rooms.composed import places
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, add, repository

#: What becomes of each model while it is there, by its name. "unload" is asked for, and stays unloaded until it is not.
NAMES = ("serves", "changes", "fails", "cannot be read", "is incomplete", "is too large", "has overrides")

#: What the models are loaded by, what is on disk, and the last states of those that left, for people to read.
OF_THE_TEST = ("Loader.", "FakeModel.", "DiskLayout.", "Catalog.models.keys", "Servable.")

_MB = 2**20


class Loader(FakeLoader):
    def __call__(self, name: str, version: int, path: Path) -> FakeModel:
        if name == "cannot be read":
            self.calls.append((name, version))
            raise FilesUnreadable("its storage failed")
        return super().__call__(name, version, path)


def missing_part(version: Path) -> str:
    return "assets are not there" if version.parent.name == "is incomplete" else ""


def put(folder: Path, version: int) -> None:
    for name in NAMES:
        path = add(folder, name, version, BROKEN if name == "fails" else b"good")
        if name == "is too large":
            with (path / "variables").open("wb") as file:
                file.truncate(200 * _MB)


def known(models: ModelRepository, names: Collection[str]) -> dict[str, list[str]]:
    """The places that name one of these models."""
    parts: dict[str, Any] = {name: value for name, value in vars(models).items() if name != "_source"}
    return {
        place: sorted(values)
        for place, values in places(parts).items()
        if not place.startswith(OF_THE_TEST) and any(name in text for text in values for name in names)
    }


@pytest.mark.parametrize("waiting_s", [0.0, 0.1], ids=["fast storage", "slow storage"])
def test_of_models_that_have_left_nothing_is_known(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, waiting_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage is slow to read again: versions are copied, and the copy of one that finds no memory stays for a time."""
    monkeypatch.setattr(examination, "seconds_waiting", lambda _: waiting_s)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary := tmp_path_factory.mktemp("temporary")))

    async def main() -> None:
        room = LoadRoom(4, lambda: 100.0 * _MB, lambda: 512.0 * _MB)
        models = repository(tmp_path, Loader(), room=room, missing_part=missing_part)
        add(tmp_path, "stays", 1)
        for version in (1, 2):
            put(tmp_path, version)
            await models.poll_once()
            add(tmp_path, "changes", version, b"good, and changed")
            await models.load("has overrides", LoadOverrides((1, version), None))
            models._reconciler._estimates.note("serves", (), 64.0 * _MB)  # as a load that was measured
            await models.poll_once()
        assert {name for name in NAMES if known(models, [name])} == {*NAMES}

        for name in NAMES:
            shutil.rmtree(tmp_path / name)
        for _ in range(2):
            await models.poll_once()
            await asyncio.gather(*models._reconciler._unloading)
        assert known(models, NAMES) == {}
        assert models.names() == ["stays"]
        assert [path for path in temporary.glob("*/*/*/*") if path.is_dir()] == [], "copies"
        await models.close()

    asyncio.run(main())
