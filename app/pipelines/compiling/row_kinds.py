"""Which rows are of one kind: whatever is computed, compared or joined row by row.

Without trees all rows of a pipeline are those of its requests. A fold makes roots of leaves and nodes: three kinds,
unless something that is done with them row by row says that they are as many.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class RowKinds:
    """Sets that grow together: union-find. A place is anything that has rows."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def join(self, places: Iterable[Hashable]) -> None:
        """The rows of these places are of one kind."""
        first, *others = [self._top(place) for place in places]
        for other in others:
            self._above[self._top(other)] = self._top(first)

    def number(self, place: Hashable) -> int:
        """The kind of a place's rows; to be asked when all are joined."""
        return self._numbers.setdefault(self._top(place), len(self._numbers))

    def __len__(self) -> int:
        """How many kinds have numbers."""
        return len(self._numbers)

    def _top(self, place: Hashable) -> Hashable:
        self._above.setdefault(place, place)
        while (above := self._above[place]) != place:
            place = above
        return place
