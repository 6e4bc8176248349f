"""The kinds of rows of a pipeline: rows that are computed, compared or joined row by row are of one kind.

Without trees all rows of a pipeline are those of its requests. A fold has leaves, nodes and roots: three kinds, unless
a step that takes rows of two kinds row by row makes these one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class RowKinds:
    """The kinds of places as disjoint sets (union-find). A place is anything that has rows."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def join(self, places: Iterable[Hashable]) -> None:
        """Make the rows of these places one kind."""
        first, *others = [self._top(place) for place in places]
        for other in others:
            self._above[self._top(other)] = self._top(first)

    def number(self, place: Hashable) -> int:
        """The kind of a place's rows; call it when all places are joined."""
        return self._numbers.setdefault(self._top(place), len(self._numbers))

    def __len__(self) -> int:
        """The number of kinds that have numbers."""
        return len(self._numbers)

    def _top(self, place: Hashable) -> Hashable:
        self._above.setdefault(place, place)
        while (above := self._above[place]) != place:
            place = above
        return place
