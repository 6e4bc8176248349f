"""The agenda of a fold: the nodes of all requests in flight, ready, in a call, or done. No I/O, no clock.

Rules (test_agenda.py, test_recursion.py)
- A node is ready when all its children are done; it is taken, and then done, exactly once. A node that was put back is
  ready again.
- ready_nodes.py chooses among ready nodes: deep nodes first, and a fair order among requests.
- No node of a request is taken after its cancel. Its number and its rows are free when none of its nodes is in a call.
- The work for a batch is done over all its nodes at once, whatever their requests: by fold.c, or, where that was not
  compiled or declines, by numpy.

The life of a request: `enter` or `add`, with others that arrive together; `begin`; then `take`, its call and `done`
until `done` names it as complete. A taken node comes back exactly once, by `done` or by `put_back`, together with
others or alone, also if its request was cancelled meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np

from app.core.errors import Overloaded
from app.core.inference import Array
from app.pipelines.fold import compiled_fold
from app.pipelines.fold.arena import grown
from app.pipelines.fold.fair_order import FairOrder
from app.pipelines.fold.forest import Forest, Numbers, distinct
from app.pipelines.fold.ready_nodes import MOST_REQUESTS, ReadyNodes, keys_of, requests_of, rows_of
from app.pipelines.fold.shared_parents import SharedParents

#: Rows and requests at first. Chosen.
_FIRST_ROWS = 4096
_FIRST_REQUESTS = 64

#: `_missing` of nodes that wait for no child any more.
_IN_CALL = -1
_DONE = -2

#: `_parent` of nodes with several parents. Row 0 stands for no parent.
_SEVERAL = -1

#: `_left` of numbers without a request.
_NOBODY = -1

#: `_missing` of row 0, which stands for the parent of roots: it is never ready.
_NEVER = 1 << 62


class TakenNodes(NamedTuple):
    """The nodes of a call.

    Attributes:
        requests: [k] the numbers of the nodes' requests.
        rows: [k] the nodes' rows.
        children: [slots, k] by slot the rows of the nodes' children; 0, the zero state, for an empty slot.
    """

    requests: Numbers
    rows: Numbers
    children: Numbers


def part_of(taken: TakenNodes, where: Array | slice) -> TakenNodes:
    """A part of a call's nodes. `where`: a mask or numbers."""
    return TakenNodes(taken.requests[where], taken.rows[where], taken.children[:, where])


def halves(taken: TakenNodes, *, by_nodes: bool) -> Sequence[TakenNodes]:
    """The nodes of a call in two halves, by requests; none if there is one request only.

    Args:
        by_nodes: halve the nodes of a single request, too.
    """
    numbers, count = distinct(taken.requests), len(taken.rows)
    if len(numbers) > 1:
        first = np.isin(taken.requests, numbers[: len(numbers) // 2])
        return part_of(taken, first), part_of(taken, ~first)
    if by_nodes and count > 1:
        return part_of(taken, slice(count // 2)), part_of(taken, slice(count // 2, count))
    return ()


class Returned(NamedTuple):
    """The requests that nodes which left a call have finished. Their rows and numbers are free.

    Attributes:
        complete: requests whose nodes are all done.
        gone: cancelled requests that have no node in a call any more.
    """

    complete: Sequence[int]
    gone: Sequence[int]


class Agenda:
    """The nodes of all requests of one fold, by their rows (arena.py).

    Args:
        slots: the most children of a node.
        operations: the number of operations.
        most_rows: the most rows of a call.

    A request is a number while it is in the agenda; numbers are used again.
    """

    __slots__ = (
        "_cancelled",
        "_children",
        "_compiled",
        "_first",
        "_free",
        "_key",
        "_left",
        "_missing",
        "_operation",
        "_order",
        "_own",
        "_parent",
        "_ready",
        "_shared",
        "_slots",
    )  # fmt: skip

    def __init__(self, slots: int, operations: int = 1, *, most_rows: int) -> None:
        self._slots = slots
        loaded = compiled_fold.library()
        self._compiled = None if loaded is None else compiled_fold.CompiledFold(loaded, slots)
        self._make_nodes(_FIRST_ROWS)
        self._shared = SharedParents()

        # By request.
        self._left = np.full(_FIRST_REQUESTS, _NOBODY)  # nodes that are not done
        self._own: dict[int, Numbers] = {}  # rows of inner nodes
        self._first: dict[int, Numbers] = {}  # until it begins: the keys of nodes that are ready then
        self._cancelled: dict[int, int] = {}  # nodes in calls
        self._free = list(range(_FIRST_REQUESTS))
        self._order = FairOrder(_FIRST_REQUESTS)
        self._ready = [ReadyNodes(most_rows, self._order, self._compiled) for _ in range(operations)]
        self._point_to_requests()

    def _make_nodes(self, capacity: int) -> None:
        self._key = np.zeros(capacity, np.intp)  # ready_nodes.py
        self._operation = np.zeros(capacity, np.intp)
        self._missing = np.zeros(capacity, np.intp)
        self._parent = np.zeros(capacity, np.intp)
        self._missing[0] = _NEVER
        self._children = np.zeros((capacity, self._slots), np.intp)
        self._point_to_nodes()

    def _point_to_nodes(self) -> None:
        if self._compiled is not None:
            self._compiled.point_to(
                key=self._key,
                operation=self._operation,
                missing=self._missing,
                parent=self._parent,
                children=self._children,
            )

    def _point_to_requests(self) -> None:
        if self._compiled is not None:
            self._compiled.point_to(left=self._left, times=self._order.times, ages=self._order.ages)

    def __len__(self) -> int:
        """The number of requests, cancelled ones with nodes in calls included."""
        return len(self._own)

    @property
    def compiled(self) -> bool:
        """Whether fold.c is used."""
        return self._compiled is not None

    def ready(self, operation: int = 0) -> int:
        """The number of nodes of an operation that wait for a call."""
        return self._ready[operation].size

    @property
    def has_ready(self) -> bool:
        """Whether a node of any operation waits for a call."""
        return any([each.size for each in self._ready])  # noqa: C419 - quicker

    # --- requests ---

    def enter(
        self,
        sizes: Sequence[tuple[int, int]],
        children: Numbers,
        types: Numbers | None,
        allowed: Numbers,
        rows: Numbers,
    ) -> Sequence[compiled_fold.Entered] | None:
        """Checks the trees of requests, and adds them as `add` does; None if fold.c is not there or declines.

        Args:
            sizes: of each request its start nodes and inner nodes.
            children, types, allowed, rows: as CompiledFold.enter takes them.

        Raises Overloaded, as `add`.
        """
        if self._compiled is None:
            return None
        while len(self._free) < len(sizes):
            self._more_requests()
        if len(self._key) <= (highest := int(rows[rows.argmax()])):
            self._grow(2 * highest)
        numbers = self._free[: -len(sizes) - 1 : -1]
        asked = [(number, *own) for number, own in zip(numbers, sizes, strict=True)]
        entered = self._compiled.enter(asked, children, types, allowed, rows)
        if entered is None:
            return None

        del self._free[-len(sizes) :]
        for own in entered:
            self._own[own.number] = own.rows[own.starts :]
            self._first[own.number] = own.ready
        return entered

    def add(self, forests: Sequence[Forest], rows: Sequence[Numbers]) -> Sequence[int]:
        """Add the forests of requests, and return the numbers of the requests. They are computed once they `begin`.

        Args:
            forests: either all have operations, or none.
            rows: for each forest, [nodes] the rows of its nodes.

        Raises:
            ValueError: a forest has no inner nodes; such a request is complete already.
            Overloaded: there are too many requests. None was added.
        """
        inner = [forest.inner for forest in forests]
        if not all(inner):
            raise ValueError("expected forests with inner nodes")
        while len(self._free) < len(forests):
            self._more_requests()
        requests = [self._free.pop() for _ in forests]

        # 1. The rows of inner nodes, and of their children.
        own = _joined([own[forest.starts :] for own, forest in zip(rows, forests, strict=True)])
        all_rows, children = _rows_of_children(forests, rows)
        if len(self._key) <= (highest := int(all_rows[all_rows.argmax()])):
            self._grow(2 * highest)

        # 2. Key, missing children, children, parent and operation of each node.
        missing = _joined([forest.missing for forest in forests])
        numbers = np.array(requests).repeat(inner)
        keys = keys_of(numbers, _joined([forest.depth for forest in forests]), own)
        self._key[own] = keys
        self._missing[own] = missing
        self._children[own] = children
        self._parent[own] = 0
        self._parent[children.reshape(-1)] = own.repeat(self._slots)
        if forests[0].operations is not None:
            self._operation[own] = _joined([each.operations for each in forests if each.operations is not None])
        elif len(self._ready) > 1:
            self._operation[own] = 0

        # 3. By request: its nodes, and the keys that are ready at first.
        ready = missing == 0
        ready_keys, ends = keys[ready], ready.cumsum()[[end - 1 for end in accumulate(inner)]].tolist()
        at = at_ready = 0
        for request, forest, nodes, end_ready, of_nodes in zip(requests, forests, inner, ends, rows, strict=True):
            if forest.shared is not None:
                self._shared.add(request, forest.shared, of_nodes)
                self._parent[of_nodes[forest.shared.nodes]] = _SEVERAL
            self._left[request] = nodes
            self._own[request] = own[at : at + nodes]
            self._first[request] = ready_keys[at_ready:end_ready]
            at, at_ready = at + nodes, end_ready
        return requests

    def begin(self, request: int) -> None:
        """Let nodes of the request be taken: the states of start nodes are there, or will be before the next `take`."""
        self._order.begin(request)
        self._push(self._first.pop(request))

    def cancel(self, request: int) -> bool:
        """Remove the ready nodes of a request. Returns whether its number and rows are free: no node is in a call.

        If a node is, `done` or `put_back` names the request as gone when the last one returns. A second cancel has no
        effect.
        """
        if request in self._cancelled:
            return False
        if request in self._first:
            self._forget(request)
            return True
        for ready in self._ready:
            ready.drop(request)
        in_call = int(np.count_nonzero(self._missing[self._own[request]] == _IN_CALL))
        if not in_call:
            self._forget(request)
            return True
        self._cancelled[request] = in_call
        return False

    def _forget(self, request: int) -> None:
        del self._own[request]
        self._shared.remove(request)
        self._left[request] = _NOBODY
        if self._first.pop(request, None) is None:
            self._order.end()
        self._free.append(request)
        if not self._own and len(self._key) > _FIRST_ROWS:
            self._make_nodes(_FIRST_ROWS)

    def _grow(self, rows: int) -> None:
        self._key = grown(self._key, rows)
        self._operation = grown(self._operation, rows)
        self._missing = grown(self._missing, rows)
        self._parent = grown(self._parent, rows)
        self._children = grown(self._children, rows)
        self._point_to_nodes()

    def _more_requests(self) -> None:
        now = len(self._left)
        if now >= MOST_REQUESTS:
            raise Overloaded(f"{now:,} requests are computed; expected fewer")
        self._left = np.concatenate((self._left, np.full(now, _NOBODY)))
        self._order.grow(2 * now)
        self._free += range(now, 2 * now)
        self._point_to_requests()

    # --- nodes ---

    def take(self, count: int, operation: int = 0) -> TakenNodes:
        """At most `count` ready nodes of an operation, for a call."""
        keys = self._ready[operation].take(count)
        if self._compiled is not None:
            taken = self._compiled.take(keys)
            return TakenNodes(taken[0], taken[1], taken[2:])
        rows = rows_of(keys)
        self._missing[rows] = _IN_CALL
        return TakenNodes(requests_of(keys), rows, self._children.take(rows, axis=0).T)

    def done(self, rows: Numbers) -> Returned:
        """End taken nodes, whose states are written. Their parents may become ready."""
        if self._compiled is not None and not self._shared:
            return self._done_compiled(self._compiled, rows)

        # 1. The nodes, but for those of cancelled requests. Of a lone request no numbers have to be looked up.
        alone = next(iter(self._own)) if len(self._own) == 1 and not self._cancelled else None
        requests = requests_of(self._key[rows]) if alone is None else _NO_ROW
        gone: Sequence[int] = ()
        if self._cancelled:
            rows, requests, gone = self._without_cancelled(rows, requests)
        self._missing[rows] = _DONE

        # 2. Their parents wait for one child less.
        parents = self._parent[rows]
        if self._shared:
            several = parents == _SEVERAL
            if several.any():
                parents = np.concatenate((parents[~several], self._shared.of(rows[several])))
        np.subtract.at(self._missing, parents, 1)
        self._push(self._key[distinct(parents[self._missing[parents] == 0])])

        # 3. Their requests have fewer nodes left.
        if alone is None:
            np.subtract.at(self._left, requests, 1)
            complete = (self._left == 0).nonzero()[0].tolist()
        else:
            self._left[alone] -= len(rows)
            complete = [] if self._left[alone] else [alone]
        for request in complete:
            self._forget(request)
        return Returned(complete, gone)

    def _done_compiled(self, compiled: compiled_fold.CompiledFold, rows: Numbers) -> Returned:
        gone: Sequence[int] = ()
        if self._cancelled:
            rows, _, gone = self._without_cancelled(rows, requests_of(self._key[rows]))
        ready, complete = compiled.done(rows)
        self._push(ready)
        for request in complete:
            self._forget(request)
        return Returned(complete, gone)

    def put_back(self, rows: Numbers) -> Returned:
        """Make taken nodes that were not computed ready again, but for those of cancelled requests."""
        gone: Sequence[int] = ()
        if self._cancelled:
            rows, _, gone = self._without_cancelled(rows, requests_of(self._key[rows]))
        self._missing[rows] = 0
        self._push(self._key[rows])
        return Returned((), gone)

    def _push(self, keys: Numbers) -> None:
        if not keys.size:
            return
        if len(self._ready) == 1:
            self._ready[0].push(keys)
            return
        operations = self._operation[rows_of(keys)]
        for operation, ready in enumerate(self._ready):
            if (own := keys[operations == operation]).size:
                ready.push(own)

    def _without_cancelled(self, rows: Numbers, requests: Numbers) -> tuple[Numbers, Numbers, list[int]]:
        """The rows and requests without cancelled requests, and the cancelled ones that have no node in calls now."""
        gone = []
        for request in list(self._cancelled):
            own = requests == request
            self._cancelled[request] -= int(np.count_nonzero(own))
            rows, requests = rows[~own], requests[~own]
            if not self._cancelled[request]:
                del self._cancelled[request]
                self._forget(request)
                gone.append(request)
        return rows, requests, gone

    def __repr__(self) -> str:
        ready = ", ".join(str(nodes.size) for nodes in self._ready)
        return f"<Agenda of {len(self)} requests, {len(self._cancelled)} cancelled; ready by operation: {ready}>"


_NO_ROW = np.zeros(1, np.intp)


def _rows_of_children(forests: Sequence[Forest], rows: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """All rows of the requests; and [inner, slots] the row of the child in each slot, 0 for an empty slot.

    Before the rows of a request stands row 0, for no node: the number of a child plus 1 is its place there.
    """
    all_rows = np.concatenate([each for pair in zip(repeat(_NO_ROW), rows) for each in pair])
    places = _joined([forest.children for forest in forests]) + 1
    if len(forests) > 1:
        first = [0, *accumulate([1 + len(own) for own in rows[:-1]])]
        places += np.array(first).repeat([forest.inner for forest in forests])[:, None]
    return all_rows, all_rows[places]


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
