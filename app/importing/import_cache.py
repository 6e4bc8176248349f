"""Imports that `ferry serve PATH` has made, in the user's cache folder: a models folder for each source.

Rules
- An entry belongs to the files of a source (their place, size and times), and to versions of Ferry and TensorFlow.
- A command that uses an entry holds a shared lock on its folder. What nobody holds is let go, the longest unused first,
  beyond MOST_ENTRIES or MOST_BYTES.
- An entry is there when its model is: what a killed command left half made is not used, and let go as others are.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from app import __version__
from app.importing.version_folder import discard, files_below, remove_dead

#: The most entries. Chosen.
MOST_ENTRIES = 16

#: The most bytes of the files of all entries. Chosen.
MOST_BYTES = 16 << 30


class ImportCache:
    """The entries in `folder`, which is made at the first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def models_folder(self, key: str, place: str, make: Callable[[Path], None]) -> Iterator[Path]:
        """The models folder of a key, held while the context lasts. Raises OSError, and what `make` raises.

        Args:
            place: the path in it that must be there: of a model, or of a version.
            make: makes it, at the path that it gets.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = self._folder / key
        while True:
            entry.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_same(lock, entry):  # another command may have let it go before it was locked
                break
            os.close(lock)
        try:
            if not (entry / place).exists():
                make(entry / place)
            os.utime(entry)
            self._let_go()
            yield entry
        finally:
            os.close(lock)

    def _let_go(self) -> None:
        """Removes the entries that are too many, if nobody holds them."""
        remove_dead(self._folder)
        entries = [each for each in self._folder.iterdir() if not each.name.startswith(".")]
        sizes = {each: sum(file.lstat().st_size for file in files_below(each)) for each in entries}
        for entry in sorted(entries, key=lambda each: each.lstat().st_mtime_ns):
            if len(sizes) <= MOST_ENTRIES and sum(sizes.values()) <= MOST_BYTES:
                return
            if _remove(entry):
                del sizes[entry]


def import_key(source: Path) -> str:
    """The key of the files of a source as they are now, and of what imports them."""
    path = Path(os.path.abspath(source))
    stats = {str(each): each.stat() for each in (path, *sorted(files_below(path)))}
    files = [(each, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for each, stat in stats.items()]
    versions = [__version__, *map(_version, ("tensorflow", "tensorflow-cpu", "keras", "tf_keras"))]
    return _digest([files, versions])


def link_key(folder: Path) -> str:
    """The key of a folder that is served as it is, through a link."""
    return _digest(os.path.abspath(folder))


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _version(package: str) -> str:
    with suppress(ModuleNotFoundError):
        return version(package)
    return ""


def _is_same(descriptor: int, folder: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    return False


def _remove(entry: Path) -> bool:
    """Removes an entry; False if a command holds it."""
    with suppress(OSError):
        lock = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            discard(entry)
        finally:
            os.close(lock)
        return True
    return False
