"""The access control of one process, if the settings ask for it: the access file, issuers' keys, and their changes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from app.access.access import Access, Forget
from app.access.access_file import AccessFile, AccessFileError, read_access_file
from app.access.rates import Rates
from app.config.rules import has_jwt
from app.core.events import CredentialsLoaded, Listener

if TYPE_CHECKING:  # they need the extra `jwt`
    from app.access.key_sets import KeySet

logger = logging.getLogger(__name__)

#: Between two looks at the file, and at whether an issuer's keys are due. Chosen: a look is one `stat`.
_LOOK_S = 1.0

_Stamp = tuple[int, int, int, int]


class AccessControl:
    """The access file and issuers' keys, which one Access follows from `start` to `close`.

    Args:
        listener: hears of each time that the file or keys were read anew.
        weigh: takes the weights of callers: name, weight.
        forget: drops what is kept for callers whose credentials are gone.

    Attributes:
        access: denies every caller until the file was read once.
    """

    def __init__(
        self,
        path: Path,
        listener: Listener,
        weigh: Callable[[str, float], None],
        rates: Rates | None = None,
        forget: Forget = lambda _: None,
    ) -> None:
        self.access = Access(rates=rates, weigh=weigh, forget=forget)
        self._path = path
        self._listener = listener
        self._key_sets: Mapping[str, KeySet] = {}
        self._stamp: _Stamp | None = None
        self._following: asyncio.Task[None] | None = None
        self._fetching: dict[KeySet, asyncio.Task[None]] = {}
        self._first = self._read()
        if isinstance(self._first, AccessFile):
            self._use(self._first)

    def start(self) -> None:
        """Begins to follow the file. Called on the event loop, when listeners are attached."""
        self._tell(self._first)
        self._following = asyncio.create_task(self._follow(), name="access file")

    async def close(self) -> None:
        tasks = [*self._fetching.values(), *filter(None, [self._following])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # of any kind: the known credentials stay, and the next look comes
                logger.exception("A bug kept credentials from being read anew")
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Reads the file if it has changed, in a thread, and begins to fetch keys that are due.

        A slow issuer delays neither the file nor another issuer.
        """
        # 1. The file.
        stamp = await asyncio.to_thread(_stamp_of, self._path)
        if stamp != self._stamp:
            read = await asyncio.to_thread(self._read)
            if isinstance(read, AccessFile):
                self._use(read)
            self._tell(read)

        # 2. The keys of each issuer, by tasks of their own.
        for key_set in self._key_sets.values():
            if key_set.is_due() and key_set not in self._fetching:
                self._fetching[key_set] = asyncio.create_task(self._fetch(key_set), name="keys of an issuer")

    def _read(self) -> AccessFile | AccessFileError:
        self._stamp = _stamp_of(self._path)  # before the file is read: a change in between is read again
        try:
            read = read_access_file(self._path)
        except AccessFileError as error:
            return error
        if read.issuers and not has_jwt():
            return AccessFileError(f"The access file {self._path} has issuers, which need ferry-serving[jwt]")
        return read

    def _use(self, read: AccessFile) -> None:
        if not read.issuers:
            self._key_sets = {}
            self.access.change(read)
            return
        from app.access.key_sets import KeySet  # noqa: PLC0415 - needs the extra `jwt`
        from app.access.tokens import Tokens  # noqa: PLC0415 - needs the extra `jwt`

        known = {each.source: each for each in self._key_sets.values()}
        self._key_sets = {name: known.get(issuer.jwks) or KeySet(issuer.jwks) for name, issuer in read.issuers.items()}
        self.access.change(read, Tokens(read.issuers, self._key_sets).verify)

    def _tell(self, read: AccessFile | AccessFileError) -> None:
        if isinstance(read, AccessFile):
            told = f"{self._path}: {len(read.keys)} keys, {len(read.issuers)} issuers"
            self._listener(CredentialsLoaded("file", "loaded", told))
        else:
            self._listener(CredentialsLoaded("file", "failed", f"{read}; what was allowed before stays"))

    async def _fetch(self, key_set: KeySet) -> None:
        from app.access.key_sets import KeysUnreadable  # noqa: PLC0415 - needs the extra `jwt`

        try:
            changed = key_set.changed(await _in_daemon_thread(key_set.fetch))
        except KeysUnreadable as error:
            key_set.failed()
            self._listener(CredentialsLoaded("issuer", "failed", f"{error}; keys that are known stay"))
            return
        except Exception:
            key_set.failed()
            logger.exception("A bug kept keys of an issuer from being read anew")
            return
        finally:
            del self._fetching[key_set]
        if changed:
            self.access.renew()
            self._listener(CredentialsLoaded("issuer", "loaded", repr(key_set)))


async def _in_daemon_thread(fetch: Callable[[], bytes]) -> bytes:
    """The result of `fetch`, which runs in a daemon thread: a slow issuer must not keep the process from ending.

    Raises:
        Exception: as `fetch` does.
    """
    content: Future[bytes] = Future()
    content.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run() -> None:
        try:
            content.set_result(fetch())
        except Exception as error:
            content.set_exception(error)

    threading.Thread(target=run, name="keys of an issuer", daemon=True).start()
    return await asyncio.wrap_future(content)


def _stamp_of(path: Path) -> _Stamp | None:
    """The stamp of a file: another one after the file was written, replaced or made readable, or a link to it changed.

    None without a file.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
