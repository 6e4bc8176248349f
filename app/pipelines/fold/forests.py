"""The trees of requests that arrive together: joined for fold.c, or compiled alone. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.errors import InvalidRequest
from app.core.inference import Array
from app.pipelines.fold.forest import Forest, ForestRules, Numbers, compile_forest


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


class Reserved(NamedTuple):
    """The reservation of one request.

    Attributes:
        starts: the number of start nodes.
        levels: the number of levels of the trees, which is the least number of calls.
        rows: [nodes] the rows in the arena.
        roots: the rows of nodes without a parent.
        number: the request's number in the agenda; None if no node is to be computed.
    """

    starts: int
    levels: int
    rows: Numbers
    roots: Numbers
    number: int | None


def joined(asked: Sequence[ForestInputs]) -> tuple[Numbers, Numbers | None]:
    """The children and types of all inner nodes of requests, whose arrays have the form for fold.c."""
    children = [_chain(each.starts, each.inner) if each.children is None else each.children for each in asked]
    types = None
    if asked[0].types is not None:
        types = np.concatenate([each.types for each in asked if each.types is not None], dtype=np.intp)
    return np.concatenate(children, dtype=np.intp), types


def compile_alone(rules: ForestRules, slots: Sequence[int], asked: ForestInputs) -> Forest:
    """The forest of one request.

    Args:
        slots: by operation, how many children its nodes may have.

    Raises InvalidRequest, RequestTooLarge.
    """
    starts, inner, children, types = asked
    if children is None:
        if starts > 1:
            raise InvalidRequest(f"expected one start state at most for a chain of nodes, got {starts}")
        children = _chain(starts, inner)
    forest = compile_forest(rules, starts, children, types)
    if types is not None:
        _check_slots(rules, slots, forest, types)
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


def _chain(starts: int, nodes: int) -> Numbers:
    """The children of a chain: the child of a node is the node before it; before the first may be a start node."""
    return np.arange(starts - 1, starts + nodes - 1).reshape(-1, 1)


def has_form(rules: ForestRules, asked: ForestInputs) -> bool:
    """Whether fold.c takes the arrays: the right form, few enough nodes, and no shared nodes."""
    starts, inner, children, types = asked
    if rules.shared or not 0 < inner <= rules.most_nodes - starts:
        return False
    if children is None:
        return starts <= 1 and rules.slots == 1 and types is None
    if children.dtype.kind != "i" or children.shape != (inner, rules.slots):
        return False
    return types is None or (types.dtype.kind == "i" and types.shape == (inner,))
