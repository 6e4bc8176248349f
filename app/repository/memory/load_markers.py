"""Marks on disk of loads under way. A mark that a start finds tells of a load during which the server was killed.

1. A mark is written before a load and deleted after it, however it ends, and when the server is told to end. Only a
   killed server leaves it, as when memory runs out. The process holds a lock on its marks: marks of living servers are
   not taken for left ones.
2. A single left mark, of a load that had little memory, names the version that ended the server: the version is left
   out, so that the others serve. It is loaded when its files change, when a caller loads it by name, and when the
   server has more memory than before.
3. Several left marks do not say which load ended the server, nor does one of a load that had plenty of memory: these
   versions are loaded one at a time. A version whose mark is left twice, by loads of the same files, is left out.

The folder must survive a restart of the container. Marks of another pod (or host) are ignored.
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
from threading import Event
from typing import NamedTuple

from app.repository.disk.disk_layout import Fingerprint

logger = logging.getLogger(__name__)

#: A memory limit counts as higher if it is this many times the earlier one. Chosen.
_MORE = 1.05


class _LeftMark(NamedTuple):
    """The content of a mark.

    tight: the load had little memory.
    again: a load from the same files had left a mark before.
    """

    files: str
    limit: float
    tight: bool
    again: bool


class LoadMarkers:
    """The marks of one server.

    Args:
        folder: where the marks lie; None: no mark is read or written.
        limit: returns the bytes of memory that this machine or container has.
        host: the name in this server's marks; marks with another name are ignored. Empty: the host name.
    """

    def __init__(self, folder: Path | None, limit: Callable[[], float], host: str = "") -> None:
        self._folder = folder
        self._closed = Event()  # no mark is written any more
        self._limit = limit
        self._host = host or socket.gethostname()
        self._left = self._read_left()
        self._under_way: dict[tuple[str, int], int] = {}  # the descriptors that hold the locks
        one = len(self._left) == 1
        self._suspects = {key for key, mark in self._left.items() if not (mark.again or (one and mark.tight))}

    def why_left_out(self, model: str, version: int, files: Fingerprint) -> str:
        """The reason why a version is not loaded from these files; empty if it is."""
        key = model, version
        left = self._left.get(key)
        if left is None or key in self._suspects:
            return ""
        if left.files != _digest(files) or self._limit() > _MORE * left.limit:
            self._forget(key)
            return ""
        return (
            "the server was killed while it loaded this version, probably for want of memory "
            f"(it had {left.limit / 2**20:,.0f} MB), so it is left out and the others serve; give it more memory, "
            "replace the files, load the model by POST /v2/repository/models/NAME/load (model_control=explicit), or "
            f"delete {self._path(*key)} and restart the server"
        )

    def loads_alone(self, model: str, version: int) -> bool:
        """Whether a version is loaded alone, as it may have ended the server."""
        return (model, version) in self._suspects

    def forget(self, model: str) -> None:
        """Delete the left marks of a model that a caller loads."""
        for key in [key for key in self._left if key[0] == model]:
            self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        del self._left[key]
        self._suspects.discard(key)
        if self._folder is not None:
            with suppress(OSError):
                self._path(*key).unlink()

    @contextmanager
    def loading(self, model: str, version: int, files: Fingerprint, *, tight: bool) -> Iterator[None]:
        """Keep a version's mark on disk while the block runs. For any thread. `tight`: the load has little memory."""
        self._write(model, version, files, tight=tight)
        try:
            yield
        finally:
            self._left.pop((model, version), None)
            self._suspects.discard((model, version))
            self._unmark((model, version))

    def close(self) -> None:
        """Delete the marks of loads under way, when the server is asked to end: no load caused this end."""
        self._closed.set()
        for key in list(self._under_way):
            self._unmark(key)

    def _unmark(self, key: tuple[str, int]) -> None:
        mark = self._under_way.pop(key, None)
        if mark is not None:
            with suppress(OSError):
                self._path(*key).unlink()
            os.close(mark)

    def _write(self, model: str, version: int, files: Fingerprint, *, tight: bool) -> None:
        if self._folder is None or self._closed.is_set():
            return

        # 1. The mark's text, which also says whether a load of the same files left a mark before.
        key, digest = (model, version), _digest(files)
        again = key in self._left and self._left[key].files == digest
        mark = _LeftMark(digest, self._limit(), tight, again)
        text = json.dumps({"host": self._host, "model": model, "version": version, **mark._asdict()})

        # 2. The file, which this process locks while the load runs.
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path(model, version), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, 0)
                os.write(file, text.encode())
            except OSError:  # no mark without its lock: what follows tells why
                os.close(file)
                raise
        except BlockingIOError:  # another server of this host is loading the same version, and its mark stands
            return
        except OSError as error:
            logger.warning(
                "No mark of loads can be kept in %s (%s): if a load runs out of memory, the next start tries it again",
                self._folder,
                error.strerror or error,
            )
            self._closed.set()  # later loads do not try, and log nothing
            return

        # 3. The mark is this load's, unless the server was told to end meanwhile: then it is deleted.
        self._under_way[key] = file
        if self._closed.is_set():
            self._unmark(key)

    def _read_left(self) -> dict[tuple[str, int], _LeftMark]:
        found = {}
        for path in [] if self._folder is None else sorted(self._folder.glob("*.loading")):
            with suppress(OSError, ValueError, KeyError, TypeError), path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mark = json.load(file)
                if mark["host"] == self._host:
                    left = _LeftMark(str(mark["files"]), float(mark["limit"]), bool(mark["tight"]), bool(mark["again"]))
                    found[str(mark["model"]), int(mark["version"])] = left
        return found

    def _path(self, model: str, version: int) -> Path:
        assert self._folder is not None  # noqa: S101 - without a folder there is no mark, so no path is asked for
        name = hashlib.sha256(f"{self._host}\n{model}\n{version}".encode(errors="surrogateescape")).hexdigest()
        return self._folder / f"{name[:32]}.loading"

    def __repr__(self) -> str:
        return f"<LoadMarkers in {None if self._closed.is_set() else self._folder}, left: {sorted(self._left)}>"


def _digest(files: Fingerprint) -> str:
    return hashlib.sha256(repr(sorted(files)).encode(errors="surrogateescape")).hexdigest()
