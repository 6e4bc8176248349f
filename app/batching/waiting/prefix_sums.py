"""Prefix sums: the sum of all numbers at lower places. No I/O, no clock.

A binary indexed tree, of which only the nodes exist that hold a number: adding, removing and summing take O(log n) of
PLACES places.

P. M. Fenwick: A new data structure for cumulative frequency tables, Software: Practice and Experience 24 (1994).
"""

from __future__ import annotations

#: Places are numbers from 1 to this one; it is a power of two.
PLACES = 2**40


class PrefixSums:
    """Numbers at places, and their sums."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[float, int]] = {}  # the sum, and how many numbers are in it

    def add(self, place: int, number: float, count: int = 1) -> None:
        """Adds a number at a place.

        Args:
            count: 0 if `number` is a change of a number that was added there, -1 if it takes that away.
        """
        nodes = self._nodes
        while place <= PLACES:
            total, numbers = nodes.get(place, (0.0, 0))
            numbers += count
            if numbers:
                nodes[place] = total + number, numbers
            else:
                del nodes[place]  # together with the rounding error
            place += place & -place

    def before(self, place: int) -> float:
        """The sum of all numbers at lower places."""
        nodes, total = self._nodes, 0.0
        place -= 1
        while place > 0 and nodes:
            if (node := nodes.get(place)) is not None:
                total += node[0]
            place &= place - 1
        return total

    def clear(self) -> None:
        self._nodes.clear()

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self._nodes)
