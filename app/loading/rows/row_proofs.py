"""Proofs and disproofs of rows by calls, kept by the fingerprint of a signature's graph.

Restarts, other replicas of the server and new versions of the same graph begin with them. A proof holds for the values
of variables and tables with which it was found: a factor of zero, trained later, may hide a sum over rows. A disproof
holds for all values, reaches all versions in memory at once, and stays: no proof takes its place.

A folder keeps a small file for each; the oldest are deleted when there are too many, disproofs last. Without a folder,
or where it cannot be read or written, they are kept in memory.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from app.core.bounded_cache import BoundedCache

logger = logging.getLogger(__name__)

#: Raise it when proofs of earlier Ferry versions must not be used any more.
_FORMAT = 2

#: The most proofs and disproofs, in memory and on disk. Chosen: a file has some hundred bytes.
_MOST_GRAPHS = 4096


class KeptProof(NamedTuple):
    """The proof of one graph with its weights.

    outputs: by name, its proof ('probe' or 'traffic') and the most rows of a call for which it holds.
    finite_only: why requests that hold NaN or infinity run alone all the same; empty if they do not.
    """

    outputs: Mapping[str, tuple[str, int]]
    finite_only: str = ""


class Disproof(NamedTuple):
    """The disproof of one graph. reason: how a row was seen to change another row's answer."""

    reason: str


class Watcher(Protocol):
    """A listener to disproofs."""

    def disproved(self, fingerprint: str, reason: str) -> None:
        """The graph with this fingerprint was disproved."""


class RowProofs:
    """The proofs of one process. May be called from any thread; a separate thread writes to the disk.

    Args:
        folder: the folder of kept proofs; None keeps nothing beyond the process.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._writing = Lock()
        self._known: BoundedCache[str, KeptProof | Disproof] = BoundedCache(_MOST_GRAPHS)
        self._watchers: WeakSet[Watcher] = WeakSet()

    def known(self, fingerprint: str, weights: str) -> KeptProof | Disproof | None:
        """The proof or disproof of this graph with these weights; None if there is none. Reads files, blocking."""
        if not fingerprint:
            return None
        return self._found(fingerprint) or self._found(f"{fingerprint}-{weights}")

    def keep(self, fingerprint: str, weights: str, proof: KeptProof) -> None:
        """Keeps a proof."""
        if fingerprint:
            self._remember(f"{fingerprint}-{weights}", proof)

    def disprove(self, fingerprint: str, reason: str) -> None:
        """Keeps a disproof, and tells all watchers."""
        if not fingerprint:
            return
        self._remember(fingerprint, Disproof(reason))
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.disproved(fingerprint, reason)

    def watch(self, watcher: Watcher) -> None:
        """Call `disproved` of the watcher at each later disproof, until the watcher is freed."""
        with self._lock:
            self._watchers.add(watcher)

    def _found(self, name: str) -> KeptProof | Disproof | None:
        with self._lock:
            found = self._known.get(name)
        if found:
            return found
        read = _read(self._file(name))  # without the lock: the disk may hang, and the event loop disproves
        with self._lock:
            found = self._known.get(name) or read  # a finding of another thread meanwhile is newer
            if found:
                self._known.keep(name, found)
        return found

    def _remember(self, name: str, found: KeptProof | Disproof) -> None:
        with self._lock:
            if self._known.get(name) == found:
                return
            self._known.keep(name, found)
        if self._folder is not None:  # the disk may be slow, and the event loop calls this
            Thread(target=self._write, args=(name,), name="row-proofs", daemon=True).start()

    def _write(self, name: str) -> None:
        file = self._file(name)
        if file is None:
            return
        with self._writing:  # the last write has the last finding
            with self._lock:
                found = self._known.get(name)
            if found is None:
                return
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                unfinished = file.with_suffix(f".{os.getpid()}")
                unfinished.write_text(json.dumps(_document(found)))
                unfinished.replace(file)
                _drop_oldest(file.parent)
            except OSError as error:
                logger.debug("The proof of rows cannot be kept, so the next start tries rows again: %s", error)

    def _file(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / "rows" / f"{name}.json"


def _document(found: KeptProof | Disproof) -> dict[str, Any]:
    if isinstance(found, Disproof):
        return {"format": _FORMAT, "disproved": found.reason}
    outputs = {name: list(each) for name, each in found.outputs.items()}
    return {"format": _FORMAT, "outputs": outputs, "finite_only": found.finite_only}


def _read(file: Path | None) -> KeptProof | Disproof | None:
    """The content of a file; None if there is none, or it cannot be read."""
    try:
        document = json.loads(file.read_text()) if file is not None else {}
        if document.get("format") != _FORMAT:
            return None
        if "disproved" in document:
            return Disproof(str(document["disproved"]))
        outputs = {str(name): (str(proof), int(rows)) for name, (proof, rows) in document["outputs"].items()}
        if any(proof not in {"probe", "traffic"} or rows < 2 for proof, rows in outputs.values()):
            return None
        return KeptProof(outputs, str(document["finite_only"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.debug("A kept proof of rows cannot be read, so rows are tried again: %s", error)
        return None


def _drop_oldest(folder: Path) -> None:
    """Deletes the oldest files, proofs first: a graph without its disproof must not find an old proof."""
    files = sorted(folder.glob("*.json"), key=lambda file: ("-" not in file.stem, file.stat().st_mtime))
    for file in files[: max(0, len(files) - _MOST_GRAPHS)]:
        file.unlink(missing_ok=True)
