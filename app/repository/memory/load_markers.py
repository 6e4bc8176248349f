"""Marks on disk of what is being loaded. What is still marked at a start was being loaded when the server was killed.

1. A mark is written before a load and deleted after it, however it ends. Only a server that is killed leaves it, as by
   the system when memory runs out. Its process holds a lock on it: marks of living servers are not taken for left ones.
2. One mark that was left names what ended the server: that version is left out, so that the others serve. It is loaded
   when its files change, when somebody asks for it, and when the server has more memory than it had.
3. Of several marks, which one it was is not known: those versions are loaded one at a time. A second end leaves one.

The folder has to outlive the container, not the pod: a mark counts only on the host (or pod) that wrote it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from app.repository.disk.disk_layout import Fingerprint

logger = logging.getLogger(__name__)

#: A limit that is so many times the one before is more memory. Chosen.
_MORE = 1.05


class _Left(NamedTuple):
    """What a mark says."""

    files: str
    limit: float


class LoadMarkers:
    """The marks of one server.

    Args:
        folder: where marks are; None keeps none.
        limit: the bytes of memory that there are.
    """

    def __init__(self, folder: Path | None, limit: Callable[[], float], host: str = "") -> None:
        self._folder = folder
        self._limit = limit
        self._host = host or socket.gethostname()
        self._left = self._read_left()
        self._alone = set(self._left) if len(self._left) > 1 else set()

    def why_left_out(self, model: str, version: int, files: Fingerprint) -> str:
        """Why the version is not loaded from these files; empty if it is."""
        key = model, version
        left = self._left.get(key)
        if left is None or key in self._alone:
            return ""
        if left.files != _digest(files) or self._limit() > _MORE * left.limit:
            self.forget(model)
            return ""
        return (
            "the server was killed while it loaded this version, probably for want of memory "
            f"({left.limit / 2**20:,.0f} MB), so it is left out and the others serve; give the server more memory, "
            "replace the files, or load it once more by the API of models"
        )

    def loads_alone(self, model: str, version: int) -> bool:
        """Whether it is one of several that may have ended the server."""
        return (model, version) in self._alone

    def forget(self, model: str) -> None:
        """Somebody asks for the model, or has changed it."""
        for key in [key for key in self._left if key[0] == model]:
            del self._left[key]
            self._alone.discard(key)
            if self._folder is not None:
                with suppress(OSError):
                    self._path(*key).unlink()

    @contextmanager
    def loading(self, model: str, version: int, files: Fingerprint) -> Iterator[None]:
        """The version is marked in the block. May be called from any thread."""
        mark = self._write(model, version, files)
        try:
            yield
        finally:
            self._left.pop((model, version), None)
            self._alone.discard((model, version))
            if mark is not None:
                with suppress(OSError):
                    self._path(model, version).unlink()
                os.close(mark)

    def _write(self, model: str, version: int, files: Fingerprint) -> int | None:
        """A descriptor that holds the lock."""
        if self._folder is None:
            return None
        limit = self._limit()
        text = json.dumps(
            {
                "host": self._host,
                "model": model,
                "version": version,
                "files": _digest(files),
                "limit": limit,
            }
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            mark = os.open(self._path(model, version), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(mark, text.encode())
        except OSError as error:
            logger.warning(
                "No mark of loads can be kept in %s (%s): if a load runs out of memory, the next start tries it again",
                self._folder,
                error.strerror or error,
            )
            self._folder = None
            return None
        return mark

    def _read_left(self) -> dict[tuple[str, int], _Left]:
        found = {}
        for path in [] if self._folder is None else sorted(self._folder.glob("*.loading")):
            with suppress(OSError, ValueError, KeyError, TypeError), path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mark = json.load(file)
                if mark["host"] == self._host:
                    found[str(mark["model"]), int(mark["version"])] = _Left(str(mark["files"]), float(mark["limit"]))
        return found

    def _path(self, model: str, version: int) -> Path:
        assert self._folder is not None  # noqa: S101 - its callers look
        name = hashlib.sha256(f"{self._host}\n{model}\n{version}".encode(errors="surrogateescape")).hexdigest()
        return self._folder / f"{name[:32]}.loading"

    def __repr__(self) -> str:
        return f"<LoadMarkers in {self._folder}, left: {sorted(self._left)}>"


def _digest(files: Fingerprint) -> str:
    return hashlib.sha256(repr(sorted(files)).encode(errors="surrogateescape")).hexdigest()
