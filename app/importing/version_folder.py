"""The folder of the version that an import writes: where it goes, and how it gets there at once or not at all.

Rules
- A staging folder lies beside the destination, on the same storage. Its name begins with a dot, so that a server that
  watches the folder ignores it. It holds the version, and the child's temporary files.
- The importing process holds a lock on its staging folder. A folder without a lock is left of a process that was
  killed: the next import beside it removes it.
- The version is synced, then renamed. Whatever ends an import before that leaves neither files nor folders.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.importing.order import CannotImport
from app.repository.disk.disk_layout import version_number

_STAGING = ".ferry-import-"


def destination_of(source: Path, destination: Path | None, models: Path) -> Path:
    """The folder of the version to write, which does not exist.

    Args:
        destination: a version's folder, whose name is a whole number, or a model's; None: a model of the source's name
            in the folder `models`.

    Raises CannotImport: it exists.
    """
    if destination is None:
        destination = models / model_name(source)
    if version_number(destination.name) is None:
        return destination / str(_next_version(destination))
    if destination.exists():
        raise _taken(destination)
    return destination


def _taken(destination: Path) -> CannotImport:
    free = destination.with_name(str(_next_version(destination.parent)))
    return CannotImport(f"{destination} exists; the next free version is {free}")


def model_name(source: Path) -> str:
    """The name of a model from that of its file or folder: letters, digits, dots, lines and dashes."""
    path = Path(os.path.abspath(source))
    stem = path.name if path.is_dir() else path.name.split(".")[0] or path.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "model"


def _next_version(model: Path) -> int:
    try:
        names = os.listdir(model)
    except FileNotFoundError:
        return 1
    except NotADirectoryError:
        raise CannotImport(f"{model} is a file; a model's folder or a version's is expected") from None
    return max([number for name in names if (number := version_number(name)) is not None], default=0) + 1


@contextmanager
def staging_beside(destination: Path) -> Iterator[Path]:
    """A folder for the files of an import, which is removed when the context ends."""
    parent = next(each for each in Path(os.path.abspath(destination)).parents if each.is_dir())
    remove_dead(parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_STAGING, dir=parent))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # another import may have taken it for a dead one before it was locked
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def discard(folder: Path) -> None:
    """Removes a folder that this process holds: it is gone at once, whatever ends the removal of its files."""
    dead = folder.with_name(f"{_STAGING}{folder.name}")
    folder.rename(dead)
    shutil.rmtree(dead, ignore_errors=True)


def files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder, links included but not followed to folders."""
    for root, _, names in os.walk(folder):
        yield from (path for name in names if (path := Path(root, name)).exists())


def remove_dead(parent: Path) -> None:
    """Removes the staging folders in `parent` that no process holds."""
    for folder in parent.glob(f"{_STAGING}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def publish(version: Path, destination: Path) -> None:
    """Moves a complete version to its place, at once. Raises CannotImport: the place is taken."""
    _sync(version)
    made = [each for each in destination.parents if not each.exists()]
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        version.rename(destination)
    except OSError as error:
        for folder in made:
            with suppress(OSError):  # another process uses it
                folder.rmdir()
        if destination.exists():
            raise _taken(destination) from None
        raise CannotImport(f"{destination} cannot be written: {error.strerror or error}") from None
    _sync_folder(destination.parent)


def _sync(folder: Path) -> None:
    """Writes all files below a folder to the disk: a rename must not come before them."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
