"""How much of a stream is on its way at most."""

from __future__ import annotations

import asyncio

from app.protocols.streams.lines import Block


class Window:
    """Room for so many lines, and bytes, between being read and being answered. Empty, it takes any block."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines = 0
        self._bytes = 0
        self._left = asyncio.Event()

    async def enter(self, block: Block) -> None:
        """Returns when there is room for it, which is then taken. For one caller."""
        while self._lines and not self._has_room(len(block.lines), block.size):
            self._left.clear()
            await self._left.wait()
        self._lines += len(block.lines)
        self._bytes += block.size

    def leave(self, block: Block) -> None:
        self._lines -= len(block.lines)
        self._bytes -= block.size
        self._left.set()

    def _has_room(self, lines: int, size: int) -> bool:
        return self._lines + lines <= self._max_lines and self._bytes + size <= self._max_bytes

    def __repr__(self) -> str:
        return f"<Window {self._lines}/{self._max_lines} lines, {self._bytes}/{self._max_bytes} bytes>"
