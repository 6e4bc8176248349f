"""Local copies of versions whose storage is slow at every read, in the temporary folder (TMPDIR), to load from there.

1. A process that can be given up makes the copy. Links are followed; a folder that two links name is copied once.
2. A loaded version is in memory, but for assets, which a model may read at every call: they stay until it is unloaded.
3. Each process has a folder of its own, and locks it; an unlocked folder is left over, and deleted at start.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING

from app.repository.disk.disk_layout import walk
from app.repository.disk.examination import read
from app.repository.disk.storage import StorageProcesses
from app.repository.disk.storage_process import at

if TYPE_CHECKING:
    from app.model import Model
    from app.pipelines.pipeline_model import PipelineModel

logger = logging.getLogger(__name__)

_PREFIX = "ferry-copies-"

#: Copies may take this share of the free bytes: others write to the temporary folder, too. Chosen.
_SHARE = 0.9


class NoRoom(OSError):
    """A copy does not fit into the temporary folder. The text says how much is missing."""


class LocalCopies:
    """The copies of this process. Methods are called on the event loop, and do not raise unless they say so.

    Args:
        base: the folder to make them in; None is the system's temporary folder.
    """

    def __init__(self, storage: StorageProcesses, base: Path | None = None) -> None:
        self._storage = storage
        self._base = base
        self._folder: _OwnFolder | None = None
        self._beginning = asyncio.Lock()  # models are copied side by side
        self._names = count()
        self._made: dict[Path, Path] = {}  # by version, until it is loaded
        self._assets: dict[Model | PipelineModel, Path] = {}

    async def delete_leftovers(self) -> None:
        """Delete the copies of processes that have ended."""
        with suppress(OSError):  # there is no temporary folder: `make` reports it
            await asyncio.to_thread(delete_leftovers, self._base_folder())

    async def forget(self, version: Path) -> None:
        """Delete the copy that no load has taken: the files of the version changed, or have gone."""
        await self._delete(self._made.pop(version, None))

    async def make(self, version: Path) -> None:
        """Copy a version, which has no copy, for its next load.

        Raises OSError: the storage failed; NoRoom.
        """
        async with self._beginning:
            if self._folder is None:
                self._folder = await asyncio.to_thread(_OwnFolder, self._base_folder())
        copy = self._folder.path / str(next(self._names)) / version.parent.name / version.name
        try:
            await self._storage.call(copy_version, version, copy)
        except BaseException:
            await self._delete(copy)
            raise
        self._made[version] = copy

    def take(self, version: Path) -> Path | None:
        """The copy to load a version from; None if it has none. The caller calls `loaded` at the end of the load."""
        return self._made.pop(version, None)

    async def loaded(self, copy: Path, model: Model | PipelineModel | None) -> None:
        """Keep the assets of a loaded version, and delete the rest of the copy. `model`: None if the load failed."""
        if model is not None and await asyncio.to_thread(_keeps_assets, copy):
            self._assets[model] = copy
        else:
            await self._delete(copy)

    async def unloaded(self, model: Model | PipelineModel) -> None:
        await self._delete(self._assets.pop(model, None))

    async def close(self) -> None:
        """Delete all copies."""
        if self._folder is not None:
            await asyncio.to_thread(self._folder.delete)

    def _base_folder(self) -> Path:
        return self._base or Path(tempfile.gettempdir())

    async def _delete(self, copy: Path | None) -> None:
        if copy is not None:
            await asyncio.to_thread(shutil.rmtree, copy.parents[1], ignore_errors=True)

    def __repr__(self) -> str:
        return f"<LocalCopies {len(self._made)} made, {len(self._assets)} with assets in use>"


class _OwnFolder:
    """A locked folder, which the interpreter deletes at its end, unless `delete` did before; blocking."""

    def __init__(self, base: Path) -> None:
        while True:
            self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=base, ignore_cleanup_errors=True)
            self.path = Path(self._folder.name)
            with suppress(FileNotFoundError):  # another process took it for a leftover before it was locked
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.path.exists():
                    return

    def delete(self) -> None:
        self._folder.cleanup()
        os.close(self._lock)


def delete_leftovers(base: Path) -> None:
    """Delete the folders that ended processes of this user left over. Blocking."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # locked, another user's, or gone
            if path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                logger.info("%s is deleted: copies of models that an earlier process left over", path)
            finally:
                os.close(lock)


def copy_version(version: Path, copy: Path) -> None:
    """Copy the folder of a version to the new folder `copy`. Blocking, in a process that can be given up.

    Raises OSError: a file cannot be read or written; NoRoom.
    """
    at(version)
    copy.parent.mkdir(parents=True)
    found = list(walk(version))
    needed, free = sum(stat.st_size for _, stat in found), shutil.disk_usage(copy.parent).free
    if needed > _SHARE * free:
        raise NoRoom(f"no room for a local copy: it needs {needed:,} bytes; of {free:,} that are free it may take 90 %")
    folders: dict[tuple[int, int], Path] = {}
    for path, stat in found:
        target = copy / path.relative_to(version)
        if not S_ISDIR(stat.st_mode):
            with target.open("wb", buffering=0) as file:
                read(path, file)
        elif (first := folders.setdefault((stat.st_dev, stat.st_ino), target)) is target:
            target.mkdir()
        else:
            target.symlink_to(first)


def _keeps_assets(copy: Path) -> bool:
    """The result of `keep_assets`; if that fails, True: all of the copy stays until the model is unloaded."""
    try:
        return keep_assets(copy)
    except OSError as error:
        logger.warning("%s stays until its model is unloaded, because it could not be made smaller: %s", copy, error)
        return True


def keep_assets(copy: Path) -> bool:
    """Delete the parts of a copy that are in memory after a load, all but assets; False if there are none. Blocking."""
    assets = copy / "assets"
    if assets.is_symlink() or not assets.is_dir() or not any(assets.iterdir()):
        return assets.is_symlink()  # the link leads to another folder of the copy, so all of the copy stays
    for path in set(copy.iterdir()) - {assets}:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    return True
