"""The parents of shared nodes of all requests: nodes with several parents. No I/O, no clock.

They are a log: the parents of a request's nodes are appended as one block. When the log is full, the blocks of living
requests are moved together. So an edge is moved O(1) times on average, and at most about half of the log is free.
"""

from __future__ import annotations

import numpy as np

from app.pipelines.fold.arena import grown
from app.pipelines.fold.forest import Numbers, SharedNodes


class SharedParents:
    """The rows of parents, by the rows of shared nodes."""

    __slots__ = ("_blocks", "_count", "_end", "_first", "_log")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._log = self._first = self._count = np.zeros(0, np.intp)
        self._end = 0
        self._blocks: dict[int, tuple[Numbers, int, int]] = {}  # by request: the rows of its nodes, first edge, edges

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, request: int, shared: SharedNodes, rows: Numbers) -> None:
        """Add the shared nodes of a request. `rows`: of all its nodes."""
        nodes, edges = rows[shared.nodes], len(shared.parents)
        if self._end + edges > len(self._log):
            self._move_together(edges)
        if (needed := int(nodes.max()) + 1) > len(self._first):
            self._first, self._count = grown(self._first, 2 * needed), grown(self._count, 2 * needed)
        self._first[nodes] = self._end + shared.first[:-1]
        self._count[nodes] = np.diff(shared.first)
        self._log[self._end : self._end + edges] = rows[shared.parents]
        self._blocks[request] = nodes, self._end, edges
        self._end += edges

    def remove(self, request: int) -> None:
        """Forget the nodes of a request, if it has any."""
        if self._blocks.pop(request, None) is not None and not self._blocks:
            self._clear()  # also what it grew to

    def of(self, rows: Numbers) -> Numbers:
        """The parents of all these nodes; a child in two slots of a parent gives it twice."""
        count = self._count[rows]
        ends = count.cumsum()
        edges: Numbers = (self._first[rows] - ends + count).repeat(count) + np.arange(ends[-1])
        return self._log.take(edges)

    def _move_together(self, more: int) -> None:
        live = sum(edges for _, _, edges in self._blocks.values())
        old, self._log, self._end = self._log, np.zeros(2 * (live + more), np.intp), 0
        for request, (nodes, first, edges) in self._blocks.items():
            self._log[self._end : self._end + edges] = old[first : first + edges]
            self._first[nodes] += self._end - first
            self._blocks[request] = nodes, self._end, edges
            self._end += edges

    def __repr__(self) -> str:
        return f"<SharedParents of {len(self._blocks)} requests, {self._end} edges>"
