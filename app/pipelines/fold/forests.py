"""The forests of requests that arrive together: joined for fold.c, or compiled one by one. No I/O, no clock.

Rules (test_forests.py)
- A request gets the forest, or the error, that compile_forest gives it.
- An error names the node, and holds no array of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.errors import InvalidRequest, ServingError
from app.core.inference import Array
from app.pipelines.fold.forest import Forest, ForestRules, Numbers, compile_forest

#: A request of more inner nodes is a group of its own: the memory of its nodes is freed with it. Chosen.
SMALL = 256


class ForestInputs(NamedTuple):
    """The trees of one request, as it sends them.

    Attributes:
        starts: the number of start nodes.
        inner: the number of inner nodes.
        children, types: as compile_forest takes them; without children the nodes are a chain.
    """

    starts: int
    inner: int
    children: Array | None
    types: Array | None


def groups(rules: ForestRules, asked: Sequence[ForestInputs]) -> Sequence[Sequence[ForestInputs]]:
    """The requests in groups, in their order: small neighbours form one group, any other request forms its own."""
    if len(asked) == 1:
        return [asked]
    found, small_before = list[list[ForestInputs]](), False
    for each in asked:
        small = _is_small(rules, each)
        if small and small_before:
            found[-1].append(each)
        else:
            found.append([each])
        small_before = small
    return found


def joined(rules: ForestRules, asked: Sequence[ForestInputs]) -> tuple[Numbers, Numbers | None] | None:
    """The children and types of all inner nodes of a group; None if the arrays do not have the form for fold.c."""
    if len(asked) == 1 and not _has_form(rules, asked[0]):  # requests of a larger group have it
        return None
    children = [_chain(each.starts, each.inner) if each.children is None else each.children for each in asked]
    types = None
    if asked[0].types is not None:
        types = np.concatenate([each.types for each in asked if each.types is not None], dtype=np.intp)
    return np.concatenate(children, dtype=np.intp), types


def compile_forests(
    rules: ForestRules, slots: Sequence[int], asked: Sequence[ForestInputs]
) -> Sequence[Forest | ServingError]:
    """The forest of each request, or its error.

    Args:
        slots: by operation, how many children its nodes may have.
    """
    return [_compiled(rules, slots, each) for each in asked]


def _compiled(rules: ForestRules, slots: Sequence[int], asked: ForestInputs) -> Forest | ServingError:
    starts, inner, children, types = asked
    try:
        if children is not None:
            forest = compile_forest(rules, starts, children, types)
        else:
            forest = chain(rules, starts, inner, types)
        if types is not None:
            _check_slots(rules, slots, forest, types)
    except ServingError as error:
        return error.with_traceback(None)  # which holds the arrays of the request
    return forest


def _check_slots(rules: ForestRules, slots: Sequence[int], forest: Forest, types: Array) -> None:
    """The check that a node has children in the slots of its operation only, which may be fewer than the fold's.

    Raises InvalidRequest.
    """
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
    """The forest of a chain: the child of a node is the node before it; before the first one may be a start node.

    Its levels need no search, which would take 1 us each.

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


def _is_small(rules: ForestRules, asked: ForestInputs) -> bool:
    return asked.children is not None and len(asked.children) < SMALL and _has_form(rules, asked)


def _has_form(rules: ForestRules, asked: ForestInputs) -> bool:
    """Whether fold.c takes the arrays: the right form, few enough nodes, and no shared nodes."""
    starts, inner, children, types = asked
    if rules.shared or not 0 < inner <= rules.most_nodes - starts:
        return False
    if children is None:
        return starts <= 1 and rules.slots == 1 and types is None
    if children.dtype.kind != "i" or children.shape != (inner, rules.slots):
        return False
    return types is None or (types.dtype.kind == "i" and types.shape == (inner,))
