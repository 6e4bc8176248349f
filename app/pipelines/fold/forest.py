"""The forest of one request: its trees, checked and compiled into arrays. No I/O, no clock.

Rules (test_forest.py)
- A node is a number: 0..starts-1 are start nodes, whose states exist before; starts+i is inner node i.
- A child may be any node, also a later one. No node is its own descendant. A node has one parent at most, or any number
  where nodes may be shared; then a child in two slots of a parent counts twice.
- The time is linear in the nodes. Python handles narrow levels, numpy wide ones: a chain has as many levels as nodes.

J. Looks et al.: Deep learning with dynamic computation graphs, ICLR 2017 (TensorFlow Fold).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest, RequestTooLarge
from app.core.inference import Array, dtype_name, format_shape

#: Numbers of nodes, of rows of an arena, or counts.
Numbers = NDArray[np.intp]

#: Levels of fewer nodes are handled in Python. Measured by a random tree of 2,000 leaves: 0.22 ms; 0.26 at 1 and at 48.
_NARROW = 24

#: Trees of fewer inner nodes are handled in Python: 10 us for 39 of them, and 17 us as larger ones are. Measured.
_SMALL = 256


@dataclass(frozen=True, slots=True)
class ForestRules:
    """The rules that the forests of a fold keep.

    Attributes:
        slots: the most children of an inner node.
        most_nodes: of a forest, start nodes included.
        operations: the number of operations.
        shared: whether nodes may have several parents.
        children, types: the names of the inputs, for error texts.
    """

    slots: int
    most_nodes: int
    operations: int = 1
    shared: bool = False
    children: str = "children"
    types: str = "types"


@dataclass(frozen=True, slots=True, eq=False)
class SharedNodes:
    """The nodes with several parents, in CSR form: the parents of nodes[i] are parents[first[i]:first[i + 1]]."""

    nodes: Numbers
    first: Numbers
    parents: Numbers


@dataclass(slots=True, eq=False)  # not frozen: that takes 3 us more
class Forest:
    """The trees of one request.

    Attributes:
        starts: the number of start nodes.
        children: [inner, slots] the node in each slot; -1 if it is empty.
        operations: [inner] the operation of each inner node; None if there is only one.
        missing: [inner] the number of its children that are inner nodes, to be computed before it.
        depth: [inner] the edges of its longest way to a root.
        shared: the nodes with several parents; None if there are none.
        roots: the nodes without a parent, in the order of their numbers.
    """

    starts: int
    children: Numbers
    operations: Numbers | None
    missing: Numbers
    depth: Numbers
    shared: SharedNodes | None
    roots: Numbers

    @property
    def inner(self) -> int:
        """The number of inner nodes."""
        return len(self.children)

    @property
    def nodes(self) -> int:
        return self.starts + len(self.children)

    def __repr__(self) -> str:
        return f"<Forest of {self.starts} start nodes and {self.inner} inner nodes, {len(self.roots)} roots>"


def compile_forest(rules: ForestRules, starts: int, children: Array, types: Array | None = None) -> Forest:
    """The forest of one request, checked.

    Args:
        starts: the number of start nodes.
        children: [inner, slots] int32 or int64; -1 for an empty slot.
        types: [inner] int32 or int64, the operation of each inner node; None if all have operation 0.

    Raises:
        RequestTooLarge: the forest has more than `most_nodes` nodes.
        InvalidRequest: the forest breaks a rule; the text names the node.
    """
    # 1. Sizes.
    children = _integers(rules.children, children, (None, rules.slots))
    inner = len(children)
    nodes = starts + inner
    _check_size(rules, nodes)

    # 2. The number in each slot: 0 for no child, n + 1 for node n.
    named = (children + 1).ravel()
    if inner:
        _check_range(rules, starts, children, named)
    operations = _operations(rules, starts, inner, types)

    # 3. Parents.
    uses = np.bincount(named, minlength=nodes + 1)
    roots = (uses[1:] == 0).nonzero()[0]
    shared = None
    if np.count_nonzero(named) > nodes - len(roots):
        if not rules.shared:
            raise InvalidRequest(_two_parents(rules, starts, named, uses))
        shared = _shared_nodes(rules, starts, named, uses)

    # 4. Levels, from the roots down. A node that no level reaches is on a cycle or below one.
    inside = children - starts
    top = roots[roots.searchsorted(starts) :] - starts
    if shared is None and inner < _SMALL:
        depth, reached = _tree_depths(inside.tolist(), top.tolist())
    else:
        depth, reached = _depths(inside, uses[1 + starts :], top)
    if not reached:
        raise InvalidRequest(_cycle(rules, starts, children, depth))

    missing = np.add.reduce(inside >= 0, axis=1)
    return Forest(starts, children, operations, missing, depth, shared, roots)


# --- checks ---


def _check_size(rules: ForestRules, nodes: int) -> None:
    if nodes > rules.most_nodes:
        raise RequestTooLarge(
            f'input "{rules.children}": expected a forest of at most {rules.most_nodes:,} nodes, got {nodes:,}'
        )
    if not nodes:
        raise InvalidRequest(f'input "{rules.children}": expected at least one node, got none')


def _integers(name: str, array: Array, shape: tuple[int | None, ...]) -> Numbers:
    """The array as numbers. `shape`: None is a free dimension, the first."""
    rank = 1 if shape[0] is None else 0
    if array.dtype.kind != "i" or array.ndim != len(shape) or array.shape[rank:] != shape[rank:]:
        raise InvalidRequest(
            f'input "{name}": expected int32 or int64 of shape {format_shape(shape)}, '
            f"got {dtype_name(array.dtype)} of shape {format_shape(array.shape)}"
        )
    return array.astype(np.intp, order="C")


def _check_range(rules: ForestRules, starts: int, children: Numbers, named: Numbers) -> None:
    nodes = starts + len(children)
    unsigned = named.view(np.uintp)  # in which a number below 0 is very large
    if unsigned.max() > nodes:
        at = int((unsigned > nodes).argmax())
        raise InvalidRequest(
            f'input "{rules.children}": slot {at % rules.slots} of node {starts + at // rules.slots}: '
            f"expected a node from 0 to {nodes - 1}, or -1 for no child, got {children.flat[at]}"
        )
    if not starts and named.reshape(-1, rules.slots).any(axis=1).all():
        raise InvalidRequest(
            f'input "{rules.children}": each node, node 0 for one, needs a child, and there are no start nodes; '
            f"expected start nodes, or a node with -1 in all slots"
        )


def _operations(rules: ForestRules, starts: int, inner: int, types: Array | None) -> Numbers | None:
    if types is None:
        return None
    types = _integers(rules.types, types, (inner,))
    wrong = (types < 0) | (types >= rules.operations)
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidRequest(
            f'input "{rules.types}": node {starts + at}: expected an operation from 0 to {rules.operations - 1}, '
            f"got {types[at]}"
        )
    return types if rules.operations > 1 else None


def _two_parents(rules: ForestRules, starts: int, named: Numbers, uses: Numbers) -> str:
    node = int((uses[1:] > 1).argmax())
    first, second = (starts + (named == node + 1).nonzero()[0][:2] // rules.slots).tolist()
    where = f"nodes {first} and {second}" if first != second else f"node {first} in two slots"
    return f'input "{rules.children}": node {node} is a child of {where}; expected one parent at most'


def _cycle(rules: ForestRules, starts: int, children: Numbers, depth: Numbers) -> str:
    """The error text for a cycle: a node that no level reached has such a parent, so the way up ends in a cycle."""
    unreached = (depth < 0).nonzero()[0]
    up = dict(zip(children[unreached].ravel().tolist(), unreached.repeat(rules.slots).tolist(), strict=True))
    node, seen = int(unreached[0]), set[int]()
    while node not in seen:
        seen.add(node)
        node = up[starts + node]
    return f'input "{rules.children}": node {starts + node} is its own descendant; expected no cycles'


# --- parents and levels ---


def _shared_nodes(rules: ForestRules, starts: int, named: Numbers, uses: Numbers) -> SharedNodes:
    several = uses > 1
    several[0] = False
    nodes = several.nonzero()[0]
    edges = several[named].nonzero()[0]
    edges = edges[named[edges].argsort(kind="stable")]
    first = np.zeros(len(nodes) + 1, np.intp)
    uses[nodes].cumsum(out=first[1:])
    return SharedNodes(nodes - 1, first, starts + edges // rules.slots)


def _tree_depths(children: list[list[int]], level: list[int]) -> tuple[Numbers, bool]:
    """The depths of nodes, as by `_depths`, where each has one parent at most, and is reached once."""
    depth = [-1] * len(children)
    number = 0
    while level:
        for node in level:
            depth[node] = number
        level = [child for node in level for child in children[node] if child >= 0]
        number += 1
    return np.array(depth, np.intp), -1 not in depth


def _depths(children: Numbers, uses: Numbers, level: Numbers) -> tuple[Numbers, bool]:
    """The longest way of each inner node to a root, -1 for a node on a cycle or below one; and whether none is.

    Args:
        children: [inner, slots] inner nodes, counted from 0; other children are below 0.
        uses: [inner] the number of parents of each node.
        level: the nodes without a parent.
    """
    inner, slots = children.shape
    unseen, depth, flat = uses.copy(), np.full(inner, -1), children.ravel()
    views = _Views(slots, flat.data, unseen.data, depth.data)
    number = 0
    while level.size:
        if level.size < _NARROW:
            rest, number = _narrow_levels(views, level.tolist(), number)
            level = np.array(rest, np.intp)
        else:
            depth[level] = number
            below = children.take(level, axis=0).ravel()
            below = below[below >= 0]
            np.subtract.at(unseen, below, 1)
            level = distinct(below[unseen[below] == 0])
            number += 1
    return depth, bool((depth >= 0).all())


class _Views(NamedTuple):
    """Views of inner nodes while levels are found; Python reads a view faster than an array.

    Attributes:
        children: of all inner nodes, one after another; other children are below 0.
        unseen: the number of a node's parents that were not reached yet; counted down.
        depth: the level of a node; -1 if it was not reached.
    """

    slots: int
    children: memoryview
    unseen: memoryview
    depth: memoryview


def _narrow_levels(views: _Views, level: list[int], number: int) -> tuple[list[int], int]:
    """The next wide level and its number, after the narrow ones before it."""
    slots, children, unseen, depth = views
    while 0 < len(level) < _NARROW:
        below: list[int] = []
        for node in level:
            depth[node] = number
            for child in children[node * slots : node * slots + slots]:
                if child >= 0:
                    if unseen[child] == 1:
                        below.append(child)
                    unseen[child] -= 1
        level = below
        number += 1
    return level, number


def distinct(numbers: Numbers) -> Numbers:
    """The numbers without repetitions, sorted. np.unique takes ten times as long for few."""
    if numbers.size < 2:
        return numbers
    numbers = np.sort(numbers)
    keep = np.empty(len(numbers), bool)
    keep[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=keep[1:])
    return numbers[keep]
