"""The engine as a frontend knows it: there or not, what it serves, how it goes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.core.events import Event, RequestFinished
from app.frontends.channel.messages import Kind
from app.frontends.channel.snapshot import Snapshot
from app.frontends.frontend.engine_connection import EngineLink, connect, engine_gone
from app.frontends.frontend.remote_repository import RemoteRepository

logger = logging.getLogger(__name__)

#: How long what was counted may be kept back, so that much of it goes in one message.
_TELL_WITHIN_S = 0.2

#: While the engine is gone, so many requests of one kind are counted; they were all rejected.
_MOST_COUNTED = 10_000

_RECONNECT_AFTER_S = 0.1


class RemoteEngine:
    """Keeps the connection. Made anywhere, started on the event loop.

    Args:
        socket: where the engine is found.
        silent_after_s: an engine that was there and has not been heard of for so long is stuck.
    """

    def __init__(self, socket: Path, silent_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.repository = RemoteRepository(self.query)
        self.draining = asyncio.Event()
        self._socket = socket
        self._silent_after_s = silent_after_s
        self._clock = clock
        self._link: EngineLink | None = None
        self._there = asyncio.Event()
        self._heard_s = 0.0
        self._dead: Sequence[str] = ()
        self._unready: Sequence[str] = ()
        self._keeping: asyncio.Task[None] | None = None
        self._counted: dict[tuple[str, str, str, int, str], list[float]] = {}
        self._telling: asyncio.TimerHandle | None = None

    # --- life ---

    def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep_connected(), name="engine")

    @property
    def is_there(self) -> bool:
        return self._there.is_set()

    async def there(self) -> None:
        """Returns when the engine serves, or nobody waits for that any more."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._there, self.draining)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    def begin_drain(self) -> None:
        """Not ready, nothing new is sent."""
        self.draining.set()
        if self._link is not None:
            self._link.draining = True

    async def drain(self, timeout_s: float) -> bool:
        """Waits until the engine answered everything; False where the time for that ran out."""
        self.begin_drain()
        if self._link is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._link.idle()
        except TimeoutError:
            logger.error("Not drained after %g s: %r", timeout_s, self._link)
            return False
        return True

    async def close(self) -> None:
        """Tells what is left to tell."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self._telling is not None:
            self._telling.cancel()
        if self._link is not None:
            self.tell(self._link)
            self._link.close()
            await self._link.closed

    async def _keep_connected(self) -> None:
        while True:
            try:
                link = self._link = await connect(self._socket, self)
                link.draining = self.draining.is_set()
                await asyncio.shield(link.closed)
                logger.warning("The engine is gone")
            except OSError as error:
                logger.warning("The engine cannot be reached: %s", error)
            self._link = None
            self._there.clear()
            self._dead = self._unready = ()
            self.repository.forget()
            await asyncio.sleep(_RECONNECT_AFTER_S)

    # --- what the engine tells ---

    def catalog(self, link: EngineLink, snapshot: Snapshot) -> None:
        self.repository.follow(link, snapshot)

    def health(self, dead: Sequence[str], unready: Sequence[str]) -> None:
        self._dead, self._unready = dead, unready
        self._heard_s = self._clock()
        self._there.set()

    def tell(self, link: EngineLink) -> None:
        counted, self._counted = self._counted, {}
        for labels, seconds in counted.items():
            link.tell(Kind.FINISHED, labels, seconds)

    # --- what is asked of it ---

    async def query(self, name: str, *arguments: Any) -> Any:
        """Raises ModelNotReady where the engine is gone, and whatever ServingError it answers."""
        if self._link is None:
            raise engine_gone()
        return await self._link.query(name, *arguments)

    def count(self, event: Event) -> None:
        """A listener: what happens to requests here is counted by the engine, for all frontends."""
        if not isinstance(event, RequestFinished):
            return
        labels = (event.protocol, event.code, event.model, event.version, event.signature)
        seconds = self._counted.setdefault(labels, [])
        if len(seconds) < _MOST_COUNTED:
            seconds.append(event.seconds)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TELL_WITHIN_S, self._tell_in_time)

    def _tell_in_time(self) -> None:
        self._telling = None
        if self._link is not None:
            self.tell(self._link)

    # --- health ---

    def dead(self) -> list[str]:
        """Reasons to restart."""
        silent_s = self._clock() - self._heard_s
        if self._there.is_set() and silent_s > self._silent_after_s:
            return [*self._dead, f"The engine has not been heard of for {silent_s:.0f} s"]
        return list(self._dead)

    def unready(self) -> list[str]:
        """Reasons to send no requests here now."""
        reasons = ["The server is draining"] if self.draining.is_set() else []
        if not self._there.is_set():
            return [*reasons, "The engine is starting"]
        return list(dict.fromkeys([*reasons, *self._unready]))
