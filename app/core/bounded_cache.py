"""The cache for keys that callers choose (heads, shapes, forms of requests): it keeps a bounded number of entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value], Generic[Key, Value]):
    """A dict of at most `max_entries` entries; a new one takes the place of the oldest (first in, first out).

    A lookup is the lookup of a dict, at the same cost. Use `keep` to add; plain assignment is not bounded.

    Args:
        max_entries: at least 1.
        spared: entries for which this is true stay, even beyond the bound: they are in use.
    """

    def __init__(self, max_entries: int, spared: Callable[[Value], bool] | None = None) -> None:
        super().__init__()
        self._max_entries = max_entries
        self._spared = spared

    def keep(self, key: Key, value: Value) -> Value:
        if len(self) >= self._max_entries and key not in self:
            oldest = next((each for each, old in self.items() if self._spared is None or not self._spared(old)), None)
            if oldest is not None:
                del self[oldest]
        self[key] = value
        return value
