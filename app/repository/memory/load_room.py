"""The room for loads: how many run side by side, and whether the memory suffices for another.

1. A load waits for one of the slots, and as long as its need does not fit beside the loads under way.
2. A load that does not fit beside the served models is not begun: the system would end the server with every model.
3. A version that ended a server is loaded alone (load_markers.py), or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import isfinite

#: The bytes that serving needs beside a load. Chosen.
_SPARE_BYTES = 32 * 2**20

#: A load has plenty of memory if this many times its need is left. Chosen: above the error of estimates.
_PLENTY = 4

_MB = 2**20


class NoMemoryToLoad(Exception):
    """A load was not begun; the text says what it needs, how much is left and what helps."""


class LoadRoom:
    """The slots and the memory for loads, which begin in order of arrival.

    Args:
        most: the number of slots.
        available: finds the bytes of memory that can be taken now.
        limit: finds the bytes of memory in all.
    """

    def __init__(self, most: int, available: Callable[[], float], limit: Callable[[], float]) -> None:
        self._most = most
        self._available = available
        self._limit = limit
        self._first = asyncio.Lock()  # held by the load that is next
        self._ended = asyncio.Condition()
        self._loading: list[int] = []  # the bytes that each load under way is expected to take
        self._alone = False

    @asynccontextmanager
    async def take(self, needed: int, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold a slot and room for a load of this many bytes. `alone`: wait for the end of all other loads.

        Raises:
            NoMemoryToLoad: there is no room although no other load runs.
        """
        async with self._first, self._ended:
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
        """Whether exactly one load runs."""
        return len(self._loading) == 1

    def is_tight_for(self, needed: int) -> bool:
        """Whether a load of several times as many bytes would end the server."""
        return _PLENTY * needed > self._available() - _SPARE_BYTES

    def why_not(self, needed: int) -> str:
        """The reason why a load of this many bytes may not begin now; empty if it may."""
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
