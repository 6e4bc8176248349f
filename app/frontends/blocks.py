"""Which bytes of an arena are taken. Pure."""

from __future__ import annotations

from bisect import bisect_left

#: Blocks begin and end on pages.
PAGE = 4096


class Blocks:
    """Hands out parts of `size` bytes, first fit; neighbours that are free become one again.

    Low addresses are used first, so an arena that is rarely full keeps few pages in memory.
    """

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, size)]
        self._taken: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """Where a block of at least `size` bytes begins; None where no gap is large enough."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        for n, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[n : n + 1] = [(start + size, end)] if end - start > size else []
                self._taken[start] = start + size
                return start
        return None

    def give(self, start: int) -> None:
        """Raises KeyError where no block that is taken begins."""
        end = self._taken.pop(start)
        n = bisect_left(self._free, (start, end))
        if n < len(self._free) and self._free[n][0] == end:
            end = self._free.pop(n)[1]
        if n and self._free[n - 1][1] == start:
            n -= 1
            start = self._free.pop(n)[0]
        self._free.insert(n, (start, end))

    def __repr__(self) -> str:
        return f"<Blocks {len(self._taken)} taken, free: {self._free}>"
