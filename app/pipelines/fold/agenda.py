"""The agenda of a fold: the nodes of all requests in flight, ready, in a call, or done. No I/O, no clock.

Rules (test_agenda.py, test_recursion.py)
- A node is ready when all its children are done; it is taken, and then done, exactly once. A node that was put back is
  ready again.
- ready_nodes.py chooses among ready nodes: deep nodes first, and a fair order among requests.
- No node of a request is taken after its cancel. Its number and its rows are free when none of its nodes is in a call.
- The work for a batch is done over all its nodes at once, whatever their requests. numpy takes the nodes. fold.c ends
  them; where fold.c was not compiled or a node has several parents, numpy does.

The life of a request: `enter` or `add`, with others that arrive together; `begin`; then `take`, its call and `done`
until `done` names it as complete. A taken node comes back exactly once, by `done` or by `put_back`, together with
others or alone, also if its request was cancelled meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.errors import Overloaded
from app.core.inference import Array
from app.pipelines.fold import compiled_fold
from app.pipelines.fold.arena import grown
from app.pipelines.fold.fair_order import FairOrder
from app.pipelines.fold.forest import Forest, Numbers, distinct
from app.pipelines.fold.forests import Reserved
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
        self._ready = [ReadyNodes(most_rows, self._order) for _ in range(operations)]
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
            self._compiled.point_to(left=self._left)

    def __len__(self) -> int:
        """The number of requests, cancelled ones with nodes in calls included."""
        return len(self._own)

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
    ) -> Sequence[Reserved] | None:
        """Checks the trees of requests, and adds them as `add` does; None if fold.c is not there or declines.

        Args:
            sizes: of each request its start nodes and inner nodes.
            children, types, allowed, rows: as CompiledFold.enter takes them.

        Raises Overloaded, as `add`.
        """
        if self._compiled is None:
            return None
        self._make_room(len(sizes), rows)
        numbers = self._free[: -len(sizes) - 1 : -1]
        asked = [(number, *own) for number, own in zip(numbers, sizes, strict=True)]
        entered = self._compiled.enter(asked, children, types, allowed, rows)
        if entered is None:
            return None

        del self._free[-len(sizes) :]
        for number, (own, ready) in zip(numbers, entered, strict=True):
            self._own[number] = own.rows[own.starts :]
            self._first[number] = ready
        return [own for own, _ in entered]

    def add(self, forest: Forest, rows: Numbers) -> int:
        """Add the forest of a request, and return the request's number. It is computed once it begins.

        Args:
            rows: [nodes] the rows of its nodes.

        Raises:
            ValueError: the forest has no inner nodes; such a request is complete already.
            Overloaded: there are too many requests. Nothing was added.
        """
        if not forest.inner:
            raise ValueError("expected a forest with inner nodes")
        self._make_room(1, rows)
        request = self._free.pop()

        # 1. The rows of inner nodes, and of their children: a child's number plus 1 is its place behind row 0.
        own = rows[forest.starts :]
        children = np.concatenate((_NO_ROW, rows))[forest.children + 1]

        # 2. Key, missing children, children, parent and operation of each node.
        keys = keys_of(request, forest.depth, own)
        self._key[own] = keys
        self._missing[own] = forest.missing
        self._children[own] = children
        self._parent[own] = 0
        self._parent[children.reshape(-1)] = own.repeat(self._slots)
        self._operation[own] = 0 if forest.operations is None else forest.operations
        if forest.shared is not None:
            self._shared.add(request, forest.shared, rows)
            self._parent[rows[forest.shared.nodes]] = _SEVERAL

        # 3. Of the request: its nodes, and the keys that are ready at first.
        self._left[request] = forest.inner
        self._own[request] = own
        self._first[request] = keys[forest.missing == 0]
        return request

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

    def _make_room(self, requests: int, rows: Numbers) -> None:
        """Make room for so many requests, and for nodes with these rows. Raises Overloaded."""
        while len(self._free) < requests:
            self._more_requests()
        if len(self._key) <= (highest := int(rows[rows.argmax()])):
            self._grow(2 * highest)

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
        rows = rows_of(keys)
        self._missing[rows] = _IN_CALL
        return TakenNodes(requests_of(keys), rows, self._children.take(rows, axis=0).T)

    def done(self, rows: Numbers) -> Returned:
        """End taken nodes, whose states are written. Their parents may become ready."""
        rows, gone = self._without_cancelled(rows)
        ended = self._done_by_numpy if self._compiled is None or self._shared else self._compiled.done
        ready, complete = ended(rows)
        self._push(ready)
        for request in complete:
            self._forget(request)
        return Returned(complete, gone)

    def _done_by_numpy(self, rows: Numbers) -> tuple[Numbers, Sequence[int]]:
        """Ends the nodes of these rows, as CompiledFold.done does; they may have several parents."""
        # 1. Their parents wait for one child less.
        self._missing[rows] = _DONE
        parents = self._parent[rows]
        several = parents == _SEVERAL
        if several.any():
            parents = np.concatenate((parents[~several], self._shared.of(rows[several])))
        np.subtract.at(self._missing, parents, 1)

        # 2. Their requests have fewer nodes left.
        np.subtract.at(self._left, requests_of(self._key[rows]), 1)
        return self._key[distinct(parents[self._missing[parents] == 0])], (self._left == 0).nonzero()[0].tolist()

    def put_back(self, rows: Numbers) -> Returned:
        """Make taken nodes that were not computed ready again, but for those of cancelled requests."""
        rows, gone = self._without_cancelled(rows)
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

    def _without_cancelled(self, rows: Numbers) -> tuple[Numbers, Sequence[int]]:
        """The rows without cancelled requests, and the cancelled requests that have no node in calls now."""
        if not self._cancelled:
            return rows, ()
        requests, gone = requests_of(self._key[rows]), list[int]()
        living = ~np.isin(requests, list(self._cancelled))
        for request in list(self._cancelled):
            self._cancelled[request] -= int(np.count_nonzero(requests == request))
            if not self._cancelled[request]:
                del self._cancelled[request]
                self._forget(request)
                gone.append(request)
        return rows[living], gone

    def __repr__(self) -> str:
        ready = ", ".join(str(nodes.size) for nodes in self._ready)
        return f"<Agenda of {len(self)} requests, {len(self._cancelled)} cancelled; ready by operation: {ready}>"


_NO_ROW = np.zeros(1, np.intp)
