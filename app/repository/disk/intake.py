"""The intake of versions: the decision whether a version on disk may be loaded now. If not, it is held, with a reason.

1. Its files have not changed for a moment (`settle_s`): it may still be copied. Files older than a minute count as
   unchanged at once, so that a start is not delayed; younger ones do not, because the clock of the storage may differ.
2. All parts that the runtime needs are there (`MissingPart`): the graph, whole shards of the variables, assets.
3. Every file could be read to its end by a process that can be given up, and is in the page cache: then the runtime,
   which holds the interpreter while it reads, reads quickly. If a second read is slow, too, there is a local copy.

A version is examined once; again if its files change or, where the storage failed, after a pause that doubles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from app.core.versions import ProblemKind
from app.repository.disk.disk_layout import Fingerprint, VersionFiles
from app.repository.disk.examination import MissingPart, examine
from app.repository.disk.local_copies import LocalCopies, NoRoom
from app.repository.disk.retries import Retries
from app.repository.disk.storage import StorageProcesses, StorageSilent

#: The seconds by which the clock of the storage may be wrong. Chosen.
_CLOCK_SKEW_S = 60.0


class Held(NamedTuple):
    """The reason why a version is not loaded."""

    kind: ProblemKind
    reason: str


class _Seen(NamedTuple):
    files: Fingerprint
    since_s: float
    held: Held | None


def _ignore(reason: str) -> None: ...


class Intake:
    """The intake of one repository, which remembers the files and the result of each folder.

    Args:
        clock: monotonic seconds.
        wall_ns: nanoseconds since the epoch, to compare with the times of files.
    """

    def __init__(
        self,
        storage: StorageProcesses,
        missing_part: MissingPart,
        settle_s: float,
        clock: Callable[[], float],
        wall_ns: Callable[[], int] = time.time_ns,
        *,
        copies: LocalCopies | None = None,
    ) -> None:
        self._storage = storage
        self._copies = copies or LocalCopies(storage)
        self._missing_part = missing_part
        self._settle_s = settle_s
        self._clock = clock
        self._wall_ns = wall_ns
        self._seen: dict[Path, _Seen] = {}
        self._retries = Retries(clock)

    def notice(self, folder: Path, files: VersionFiles) -> None:
        """Note the files of a folder, which rest from now on."""
        self._since(folder, files)

    async def forget_others(self, folders: Collection[Path], unknown: Collection[Path]) -> None:
        """Forget all folders but these. Folders below `unknown`, the models with unknown versions, are kept, too."""
        for folder in self._seen.keys() - folders:
            if folder.parent not in unknown:
                del self._seen[folder]
                self._retries.forget(folder)
                await self._copies.forget(folder)

    async def held(self, folder: Path, files: VersionFiles, copying: Callable[[str], None] = _ignore) -> Held | None:
        """The reason why the version in `folder` may not be loaded now; None if it may. Never raises for the storage.

        Args:
            copying: called with the reason before a local copy is made.
        """
        # 1. Changed files begin anew.
        seen = self._since(folder, files)

        # 2. They have to rest.
        if not self._settled(seen, files):
            return Held(ProblemKind.CHANGING, "its files are still changing")

        # 3. An earlier result still holds, unless the storage failed and may have come back.
        if seen.held is not None and not self._retries.due(folder):
            return seen.held

        # 4. The examination.
        held = await self._examine(folder, copying)
        self._seen[folder] = seen._replace(held=held)
        return held

    def _since(self, folder: Path, files: VersionFiles) -> _Seen:
        seen = self._seen.get(folder)
        if seen is None or seen.files != files.fingerprint:
            seen = self._seen[folder] = _Seen(files.fingerprint, self._clock(), None)
            self._retries.forget(folder)
        return seen

    def _settled(self, seen: _Seen, files: VersionFiles) -> bool:
        old = self._wall_ns() - files.newest_ns > (self._settle_s + _CLOCK_SKEW_S) * 1e9
        return old or self._clock() - seen.since_s >= self._settle_s

    async def _examine(self, folder: Path, copying: Callable[[str], None]) -> Held | None:
        await self._copies.forget(folder)  # of earlier files, whose load found no memory
        try:
            examined = await self._storage.call(examine, folder, self._missing_part)
            if examined.slow:
                copying(examined.slow)
                await self._copies.make(folder)
        except OSError as error:
            pause_s = self._retries.failed(folder)
            return Held(_kind(error), f"{error}; next try after {pause_s:g} s")
        self._retries.forget(folder)
        return Held(ProblemKind.INCOMPLETE, examined.missing) if examined.missing else None


def _kind(error: OSError) -> ProblemKind:
    kinds = {StorageSilent: ProblemKind.SILENT, NoRoom: ProblemKind.NO_ROOM}
    return kinds.get(type(error), ProblemKind.UNREADABLE)
