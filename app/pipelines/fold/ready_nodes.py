"""The ready nodes of one operation, and the choice of the next ones. No I/O, no clock.

Rules (test_agenda.py)
- While all ready nodes fit into a call, all of them are taken.
- Within a request the nodes with the longest way to a root come first: so the work at the end, where few nodes are
  ready, is short. A request with many ready nodes has most of them in a backlog, in that order; the common pool is
  filled up from the backlog, so a node that becomes ready meanwhile may come before deeper nodes of the backlog.
- The order among requests is fair by virtual time (fair_order.py): the n-th node of a request stands n places behind
  the request's virtual time.
- A take costs numpy calls over the pool: Python per large request, not per node.

A node is a key here: the number of its request, its distance from the deepest possible node, and its row, in one
number. So sorted keys stand by request, the deepest nodes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.pipelines.fold.arena import ROW_BITS
from app.pipelines.fold.backlog import Backlog
from app.pipelines.fold.fair_order import NODE, FairOrder
from app.pipelines.fold.forest import Numbers

if TYPE_CHECKING:
    from app.pipelines.fold.compiled_fold import CompiledFold

#: While the pool has nodes for fewer calls than this, all ready nodes are in it. Chosen: 64 small trees have half.
_ROOMY = 16

#: The calls of one request whose nodes a fuller pool holds; with nodes for more calls they move to its backlog, and the
#: pool gets half as many back. Chosen.
_MOST = 4

#: The bits of a key's parts beside the bits of the row, 63 together. Still deeper nodes count as equally deep.
_DEPTH_BITS, _REQUEST_BITS = 18, 21
_ROW = (1 << ROW_BITS) - 1
_DEEPEST = (1 << _DEPTH_BITS) - 1
_REQUEST_SHIFT = ROW_BITS + _DEPTH_BITS

#: The most requests that keys can name.
MOST_REQUESTS = 1 << _REQUEST_BITS


def keys_of(requests: Numbers, depth: Numbers, rows: Numbers) -> Numbers:
    """The keys of nodes."""
    if len(depth) > _DEEPEST:
        depth = np.minimum(depth, _DEEPEST)
    keys = depth * -(1 << ROW_BITS)
    keys += rows
    keys += requests << _REQUEST_SHIFT
    keys += _DEEPEST << ROW_BITS
    return keys


def rows_of(keys: Numbers) -> Numbers:
    return keys & _ROW


def requests_of(keys: Numbers) -> Numbers:
    return keys >> _REQUEST_SHIFT


_NONE = np.empty(0, np.intp)


class ReadyNodes:
    """The ready nodes of one operation.

    Args:
        most_rows: the most rows of a call.
        order: the fair order of all requests.
        compiled: fold.c, which chooses nodes where it was compiled.

    Attributes:
        size: the number of ready nodes.
    """

    __slots__ = ("_backlogs", "_compiled", "_least", "_most_rows", "_order", "_parts", "size")

    def __init__(self, most_rows: int, order: FairOrder, compiled: CompiledFold | None = None) -> None:
        self._most_rows = most_rows
        self._order = order
        self._compiled = compiled
        self.size = 0
        self._parts: list[Numbers] = []  # of the pool
        self._backlogs: dict[int, Backlog] = {}
        self._least = np.zeros(0, np.intp)

    def push(self, keys: Numbers) -> None:
        """Add nodes that have become ready."""
        self._parts.append(keys)
        self.size += len(keys)

    def drop(self, request: int) -> None:
        """Remove the nodes of a request. Takes O(pool)."""
        backlog, pool = self._backlogs.pop(request, ()), self._pool()
        left = pool[requests_of(pool) != request]
        self.size -= len(backlog) + len(pool) - len(left)
        self._parts = [left]

    def take(self, count: int) -> Numbers:
        """The keys of at most `count` nodes, in no order."""
        if not count:
            return _NONE
        pool = self._pool()
        if self._backlogs or len(pool) > _ROOMY * self._most_rows:
            pool = self._balanced(pool)
        if len(pool) <= count:
            self._parts = []
            self.size -= len(pool)
            return pool

        # 1. By request, the deepest nodes first. A stable sort would use the sorted parts, and takes longer.
        pool.sort()
        chosen, left = self._chosen(pool, count)
        self._parts = [left]
        self.size -= count
        return chosen

    def _chosen(self, pool: Numbers, count: int) -> tuple[Numbers, Numbers]:
        """Sorted keys, split: the next `count` by fair order, whose requests are charged; and the rest."""
        order = self._order
        if self._compiled is not None:
            chosen, left, last = self._compiled.choose(pool, count, order.now)
            order.go_on(count, last)
            return chosen, left

        # 2. The place of a node: its number among its request's nodes, behind the request's virtual time. All differ.
        requests = requests_of(pool)
        begins = pool.searchsorted(self._least_keys())
        begins *= -NODE
        begins += order.ahead()
        places = np.arange(0, len(pool) * NODE, NODE)
        places += begins[requests]

        # 3. The nodes at the first places are taken.
        ranked = places.copy()
        ranked.partition(count - 1)
        last = int(ranked[count - 1])
        taken: NDArray[np.bool_] = places <= last
        order.charge(requests[taken], last)
        return pool[taken], pool[~taken]

    def _least_keys(self) -> Numbers:
        """The least possible key of each request."""
        if len(self._least) < len(self._order):
            self._least = np.arange(len(self._order)) << _REQUEST_SHIFT
        return self._least

    def _pool(self) -> Numbers:
        """The pool as one array that may be written to."""
        if len(self._parts) != 1:
            self._parts = [np.concatenate(self._parts)] if self._parts else [_NONE]
        return self._parts[0]

    def _balanced(self, pool: Numbers) -> Numbers:
        """The pool, in which a request has nodes for a few calls, and the rest in its backlog."""
        counts = np.bincount(requests_of(pool), minlength=len(self._order))
        for request in (counts > _MOST * self._most_rows).nonzero()[0].tolist():
            own = requests_of(pool) == request
            self._backlogs.setdefault(request, Backlog()).push(pool[own])
            pool = pool[~own]
            counts[request] = 0

        filled = [pool]
        for request in [request for request in self._backlogs if counts[request] < self._most_rows]:
            backlog = self._backlogs[request]
            filled.append(backlog.pop(_MOST // 2 * self._most_rows - int(counts[request])))
            if not backlog:
                del self._backlogs[request]
        return np.concatenate(filled)

    def __repr__(self) -> str:
        return f"<ReadyNodes: {self.size}, {len(self._backlogs)} large requests>"
