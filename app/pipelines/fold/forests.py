"""The trees of several requests that arrive together, checked and compiled in one go. No I/O, no clock.

Rules (test_forests.py)
- Each gets the forest, or the error, that compile_forest gives it.
- Small ones share what numpy takes for each call: of 6 trees of 44 nodes each takes 20 us, alone 70 (measured).
- If anything is wrong with one of them, each is compiled alone: so the node is named, and nobody pays more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from app.core.errors import InvalidRequest, ServingError
from app.core.inference import Array
from app.pipelines.fold.forest import Forest, ForestRules, Numbers, compile_forest

#: Requests of more inner nodes are compiled alone: numpy is busy with each of them for long. Chosen.
SMALL = 256


class AskedForest(NamedTuple):
    """What one request says of its trees.

    Attributes:
        starts: the number of start nodes.
        inner: that of others.
        children, types: as compile_forest takes them; without children the nodes are a chain.
    """

    starts: int
    inner: int
    children: Array | None
    types: Array | None


def groups(rules: ForestRules, asked: Sequence[AskedForest]) -> Sequence[Sequence[AskedForest]]:
    """The same in their order: neighbours that are small together, each of the others alone."""
    if len(asked) == 1:
        return [asked]
    found, small_before = list[list[AskedForest]](), False
    for each in asked:
        small = _is_small(rules, each)
        if small and small_before:
            found[-1].append(each)
        else:
            found.append([each])
        small_before = small
    return found


def joined(rules: ForestRules, asked: Sequence[AskedForest]) -> tuple[Numbers, Numbers | None] | None:
    """The children and types of all inner nodes of a group; None if they have not the form that fold.c takes."""
    if len(asked) == 1 and not _has_form(rules, asked[0]):  # of several each was found to have it
        return None
    children = [_chain(each.starts, each.inner) if each.children is None else each.children for each in asked]
    types = None
    if asked[0].types is not None:
        types = np.concatenate([each.types for each in asked if each.types is not None], dtype=np.intp)
    return np.concatenate(children, dtype=np.intp), types


def compile_forests(
    rules: ForestRules, slots: Sequence[int], asked: Sequence[AskedForest]
) -> Sequence[Forest | ServingError]:
    """By request its forest, or what is wrong with it.

    Args:
        slots: by operation, how many children its nodes may have.
    """
    small = [number for number, each in enumerate(asked) if _is_small(rules, each)] if len(asked) > 1 else []
    found: dict[int, Forest] = {}
    if len(small) > 1:
        together = _together(rules, [asked[number] for number in small])
        found = dict(zip(small, together or (), strict=bool(together)))
    return [_checked(rules, slots, each, found.get(number)) for number, each in enumerate(asked)]


def _checked(
    rules: ForestRules, slots: Sequence[int], asked: AskedForest, forest: Forest | None
) -> Forest | ServingError:
    starts, inner, children, types = asked
    try:
        if forest is None and children is not None:
            forest = compile_forest(rules, starts, children, types)
        elif forest is None:
            forest = chain(rules, starts, inner, types)
        if types is not None:
            _check_slots(rules, slots, forest, types)
    except ServingError as error:
        return error.with_traceback(None)  # which holds the arrays of the request
    return forest


def _check_slots(rules: ForestRules, slots: Sequence[int], forest: Forest, types: Array) -> None:
    """An operation may have fewer slots than others."""
    allowed = np.array(slots)[types]
    last = rules.slots - np.argmax(forest.children[:, ::-1] >= 0, axis=1)
    wrong = (last > allowed) & (forest.children >= 0).any(axis=1)
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidRequest(
            f'input "{rules.children}": node {forest.starts + at} is of type {types[at]}: expected children '
            f"in its first {allowed[at]} slots only, got {forest.children[at].tolist()}"
        )


def chain(rules: ForestRules, starts: int, nodes: int, types: Array | None) -> Forest:
    """Each node's child is the one before it; the first one's is the start node, if there is one.

    There is nothing to check in it, and to look for its levels one by one takes 1 us for each.

    Raises InvalidRequest, RequestTooLarge.
    """
    if starts > 1:
        raise InvalidRequest(f"expected one start state at most for a chain of nodes, got {starts}")
    children = _chain(starts, nodes)
    if types is not None or not nodes or starts + nodes > rules.most_nodes:
        return compile_forest(rules, starts, children, types)
    missing = np.ones(nodes, np.intp)
    missing[0] = 0
    return Forest(starts, children, None, missing, np.arange(nodes)[::-1], None, np.array([starts + nodes - 1]))


def _chain(starts: int, nodes: int) -> Numbers:
    return np.arange(starts - 1, starts + nodes - 1).reshape(-1, 1)


def _is_small(rules: ForestRules, asked: AskedForest) -> bool:
    return asked.children is not None and len(asked.children) < SMALL and _has_form(rules, asked)


def _has_form(rules: ForestRules, asked: AskedForest) -> bool:
    """Whether its arrays have the right form, and few enough nodes; where nodes may be shared they may be no trees."""
    starts, inner, children, types = asked
    if rules.shared or not 0 < inner <= rules.most_nodes - starts:
        return False
    if children is None:
        return starts <= 1 and rules.slots == 1 and types is None
    if children.dtype.kind != "i" or children.shape != (inner, rules.slots):
        return False
    return types is None or (types.dtype.kind == "i" and types.shape == (inner,))


def _together(rules: ForestRules, asked: Sequence[AskedForest]) -> Sequence[Forest] | None:
    """The forests of small requests; None if one of them breaks a rule.

    Nodes have numbers across requests: of each one first a number for no node, then start nodes, then inner nodes.
    """
    # 1. Of each request its first number among all nodes and among inner nodes, and how many it has of each.
    slots, all_children = rules.slots, [each.children for each in asked if each.children is not None]
    inners = [len(children) for children in all_children]
    counts = [1 + each.starts + inner for each, inner in zip(asked, inners, strict=True)]
    firsts, inner_firsts = [0, *accumulate(counts)], [0, *accumulate(inners)]
    end, total = firsts.pop(), inner_firsts.pop()
    by_request = np.array((firsts, counts, inner_firsts, inners))
    first, count, inner_first, inner = by_request
    first_of_slot, count_of_slot = by_request[:2].repeat(slots * inner, axis=1)

    # 2. What each slot names.
    children = np.concatenate(all_children, dtype=np.intp)
    named = children.reshape(-1) + 1
    if np.count_nonzero(named.view(np.uintp) >= count_of_slot):  # what is below 0 is very large there
        return None
    edges = np.count_nonzero(named)
    named += first_of_slot
    operations = None
    if asked[0].types is not None:
        operations = np.concatenate([each.types for each in asked if each.types is not None], dtype=np.intp)
        if np.count_nonzero(operations.view(np.uintp) >= rules.operations):
            return None

    # 3. Parents: inner nodes by their place among these; the one after the last is none.
    parent = np.empty(end, np.intp)
    parent.fill(total)
    parent[named] = np.arange(total).repeat(slots)
    parent[first] = -1
    roots = (parent == total).nonzero()[0]
    if edges + len(asked) + len(roots) > end:  # one has two parents
        return None
    up = np.arange(total + 1)
    up[:total] += (first + count - inner_first - inner).repeat(inner)
    up[:total] = parent[up[:total]]

    # 4. Levels.
    missing, depth = np.bincount(up, minlength=total + 1), _depths_from(up, max(inners))
    if depth is None:
        return None
    whole = Forest(0, children, operations if rules.operations > 1 else None, missing, depth, None, roots)
    return _apart(whole, asked, first, [*inner_firsts, total])


def _apart(whole: Forest, asked: Sequence[AskedForest], first: Numbers, inner_bounds: Sequence[int]) -> list[Forest]:
    """Each request's own forest, of one that has the nodes of all; roots are counted from `first` there.

    Args:
        first: [requests] the number before the start nodes of each.
        inner_bounds: where the inner nodes of each begin, and the end of the last one's.
    """
    bounds = [*whole.roots.searchsorted(first).tolist(), len(whole.roots)]
    roots = whole.roots - (first + 1).repeat([end - start for start, end in pairwise(bounds)])
    operations, forests = whole.operations, []
    for number, each in enumerate(asked):
        own = slice(inner_bounds[number], inner_bounds[number + 1])
        own_roots, own_operations = roots[bounds[number] : bounds[number + 1]], None
        if operations is not None:
            own_operations = operations[own]
        forests.append(
            Forest(
                each.starts, whole.children[own], own_operations, whole.missing[own], whole.depth[own], None, own_roots
            )
        )
    return forests


def _depths_from(up: Numbers, most: int) -> Numbers | None:
    """How far each node is from its root; None if one is on a cycle or below one.

    Args:
        up: [nodes + 1] the parent of each; the last one is none, and that of roots and of itself.
        most: the most nodes that a tree may have.

    Each turn goes twice as far up as the one before.
    """
    none = len(up) - 1
    depth: Numbers = (up < none).astype(np.intp)
    for _ in range(most.bit_length() + 1):
        further = depth[up]
        depth += further
        up = up[up]
        if not np.count_nonzero(further):  # what it names now is none, or on a cycle
            break
    return None if np.count_nonzero(up != none) else depth
