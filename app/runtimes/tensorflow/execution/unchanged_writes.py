"""Assignments that change nothing: a variable is assigned the very value that the same call read from it.

Keras on JAX exports such graphs: the call of a model takes its state (the moving statistics of BatchNormalization, the
seeds of Dropout), returns it as it was, and the graph assigns it.

Rules
- An assignment changes nothing if its value comes, in the same function, from a ReadVariableOp of the same handle,
  through nothing but operations that pass values on, and modules of StableHLO that return that argument as it was.
- A graph writes nothing if this is so for all its assignments, and no other operation in it writes: then no call
  changes the values that another reads, in any order. The caller must know that no other signature writes.
- An operation that is not followed counts as a change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from app.runtimes.tensorflow.graph_nodes import bodies_of
from app.runtimes.tensorflow.stablehlo.module import Unreadable, read_module, returned_unchanged

logger = logging.getLogger(__name__)

_ASSIGN = "AssignVariableOp"
_PASS_ON = frozenset({"Identity", "IdentityN"})
_MODULE = "XlaCallModule"


def changes_nothing(graph: Any, writes: Sequence[str]) -> bool:
    """Whether all values that a GraphDef writes stay as they were. `writes`: the types of its writing operations."""
    if list(writes) != [_ASSIGN]:
        return False
    parts = bodies_of(graph)
    if not any(node.op == _MODULE for part in parts for node in part):
        return False
    return all(_Part(part).changes_nothing() for part in parts)


class _Part:
    """The nodes of a graph, or of a function that it may call."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._unchanged: dict[str, dict[int, int]] = {}

    def changes_nothing(self) -> bool:
        return all(self._keeps(node) for node in self._nodes.values() if node.op == _ASSIGN)

    def _keeps(self, assignment: Any) -> bool:
        handle, value = assignment.input[0], assignment.input[1]
        for name, result in self._givers(value):
            node = self._nodes.get(name)
            if node is not None and node.op == "ReadVariableOp":
                return result == 0 and self._handle(node.input[0]) == self._handle(handle)
        return False

    def _givers(self, value: str) -> Iterator[tuple[str, int]]:
        """The nodes and numbers of results that a value comes from, followed back through nodes that pass it on."""
        seen = set()
        while True:
            name, result = _split(value)
            yield name, result
            node = self._nodes.get(name)
            if node is None or (name, result) in seen:
                return
            seen.add((name, result))
            place = self._passed_on(node, result)
            if place is None:
                return
            value = node.input[place]

    def _passed_on(self, node: Any, result: int) -> int | None:
        """The number of the operand that a result is, unchanged; None if it is none."""
        if node.op in _PASS_ON:
            return result
        if node.op != _MODULE:
            return None
        if node.name not in self._unchanged:
            self._unchanged[node.name] = _unchanged_by(node)
        return self._unchanged[node.name].get(result)

    def _handle(self, value: str) -> tuple[str, int]:
        """The node, or the argument of the function, that a handle comes from."""
        found = _split(value)
        for name, result in self._givers(value):
            found = name, result
        return found


def _unchanged_by(node: Any) -> dict[int, int]:
    try:
        return returned_unchanged(read_module(node))
    except Unreadable as error:
        logger.debug("the module of %r is not followed: %s", node.name, error)
        return {}


def _split(value: str) -> tuple[str, int]:
    """'node:output:2', as in functions, or 'node:2', as in graphs. Operations here have one list of results."""
    name, _, rest = value.partition(":")
    return name, int(rest.rpartition(":")[2] or 0)
