"""Which loads run side by side, and which is not begun, since the memory does not suffice.

1. There are so many slots. A load waits for a slot, and as long as its need does not fit beside the loads under way.
2. What does not fit beside what serves is not begun: the system would end the server, and every model with it.
3. What ended a server is loaded alone (load_markers.py), or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import isfinite

#: What serving needs beside a load. Chosen.
_SPARE_BYTES = 32 * 2**20

#: A load that has so many times its need has plenty. Chosen: above what estimates are wrong by.
_PLENTY = 4

_MB = 2**20


class NoMemoryToLoad(Exception):
    """The load was not begun; the text says what it needs, what is left and what helps."""


class LoadRoom:
    """Lets loads begin in order of arrival.

    Args:
        most: how many loads may run side by side.
        available: the bytes of memory that can be taken now.
        limit: the bytes of memory that there are.
    """

    def __init__(self, most: int, available: Callable[[], float], limit: Callable[[], float]) -> None:
        self._most = most
        self._available = available
        self._limit = limit
        self._turn = asyncio.Lock()
        self._ended = asyncio.Condition()
        self._loading: list[int] = []  # the bytes that each load under way is expected to take
        self._alone = False

    @asynccontextmanager
    async def take(self, needed: int, *, alone: bool = False) -> AsyncIterator[None]:
        """Waits for a slot and for room for a load that takes this many bytes; `alone`: for the end of all others.

        Raises:
            NoMemoryToLoad: there is no room for it although no other load runs.
        """
        async with self._turn, self._ended:
            await self._ended.wait_for(lambda: self._may_begin(needed, alone=alone))
            if needed and (why := self.why_not(needed)):
                raise NoMemoryToLoad(why)
            self._loading.append(needed)
            self._alone = alone
        try:
            yield
        finally:
            async with self._ended:
                self._loading.remove(needed)
                self._alone = False
                self._ended.notify_all()

    @property
    def one_runs(self) -> bool:
        """Whether one load runs and no other."""
        return len(self._loading) == 1

    def is_tight_for(self, needed: int) -> bool:
        """Whether a load that takes several times as many bytes would end the server."""
        return _PLENTY * needed > self._available() - _SPARE_BYTES

    def why_not(self, needed: int) -> str:
        """Why a load that takes this many bytes may not begin now; empty if it may."""
        available = self._available() - _SPARE_BYTES
        if needed <= available:
            return ""
        left, limit = max(0.0, available), self._limit()
        of = f" of {limit / _MB:,.0f} MB" if isfinite(limit) else ""
        return (
            f"it would take about {needed / _MB:,.0f} MB of memory, and {left / _MB:,.0f} MB{of} are left; unload "
            f"another model, or give the server {(needed - left) / _MB:,.0f} MB more; it is loaded as soon as it fits"
        )

    def _may_begin(self, needed: int, *, alone: bool) -> bool:
        if not self._loading:
            return True
        if alone or self._alone or len(self._loading) >= self._most:
            return False
        return sum(self._loading) + needed <= self._available() - _SPARE_BYTES

    def __repr__(self) -> str:
        return f"<LoadRoom {len(self._loading)} of {self._most} taken>"
