"""The time of a drain, which ends when everything is answered, when its limit is over, or when it is abandoned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


def why_ending(*, leaving: bool, draining: bool) -> list[str]:
    """The reasons why a server that ends is not ready. `leaving`: it still serves."""
    if draining:
        return ["The server is draining"]
    return ["The server was told to end"] if leaving else []


class DrainTime:
    """The time of one drain, which runs once. Created anywhere, used on the event loop.

    Args:
        limit_s: seconds that the drain may take.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._abandoned = asyncio.Event()
        self._wait: asyncio.Task[bool] | None = None

    @property
    def abandoned(self) -> bool:
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """End the drain at once: requests without an answer are dropped."""
        self._abandoned.set()

    async def wait(self, drain: Callable[[], Awaitable[None]] | None, left: object) -> bool:
        """Waits for `drain`. True if it ended in time; a later call gets the result of the first one.

        Args:
            drain: None if there is nothing to drain.
            left: the object whose repr tells the log what was not answered.
        """
        if self._wait is None:
            if drain is None:
                return True
            self._wait = asyncio.create_task(self._drained(drain(), left), name="drain")
        return await asyncio.shield(self._wait)

    async def _drained(self, drained: Awaitable[None], left: object) -> bool:
        draining, abandoned = asyncio.ensure_future(drained), asyncio.ensure_future(self._abandoned.wait())
        await asyncio.wait([draining, abandoned], timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        if draining.done():
            return True
        draining.cancel()
        if self.abandoned:
            logger.error("Told to end at once: what is not answered yet is dropped: %r", left)
        else:
            logger.error("Not drained after %g s: %r", self._limit_s, left)
        return False
