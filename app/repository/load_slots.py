"""Which loads run side by side: as many as there are slots, and only as long as memory is expected to suffice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

#: A model takes this many times the bytes of its files while it is loaded: TensorFlow reads the graph, copies it into
#: functions, and reads the variables. Chosen.
_EXPANSION = 3


class LoadSlots:
    """Lets loads begin in order of arrival.

    Args:
        most: how many loads may run side by side.
        available: the bytes of memory that can be taken now.
    """

    def __init__(self, most: int, available: Callable[[], float]) -> None:
        self._most = most
        self._available = available
        self._turn = asyncio.Lock()
        self._ended = asyncio.Condition()
        self._loading: list[int] = []  # the bytes that each load under way is expected to take

    @asynccontextmanager
    async def take(self, file_bytes: Callable[[], Awaitable[int]]) -> AsyncIterator[None]:
        """Waits for a slot and for room for a model with files of this many bytes. A lone load never waits."""
        async with self._turn:
            needed = _EXPANSION * await file_bytes()
            async with self._ended:
                await self._ended.wait_for(lambda: self._fits(needed))
                self._loading.append(needed)
        try:
            yield
        finally:
            async with self._ended:
                self._loading.remove(needed)
                self._ended.notify_all()

    def _fits(self, needed: int) -> bool:
        if not self._loading:
            return True
        return len(self._loading) < self._most and sum(self._loading) + needed <= self._available()

    def __repr__(self) -> str:
        return f"<LoadSlots {len(self._loading)} of {self._most} taken>"
