"""The bound on how much of a stream is read but not answered."""

from __future__ import annotations

import asyncio

from app.protocols.streams.lines import Block


class Window:
    """The room for `max_lines` lines and `max_bytes` bytes of a stream. An empty window admits any block."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines = 0
        self._bytes = 0
        self._left = asyncio.Event()

    async def enter(self, block: Block) -> None:
        """Waits until there is room for the block, and takes it. Only one task may call this."""
        lines, size = len(block.lines), block.size
        while self._lines and (self._lines + lines > self._max_lines or self._bytes + size > self._max_bytes):
            self._left.clear()
            await self._left.wait()
        self._lines += lines
        self._bytes += size

    def leave(self, block: Block) -> None:
        self._lines -= len(block.lines)
        self._bytes -= block.size
        self._left.set()
