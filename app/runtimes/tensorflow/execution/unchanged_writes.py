"""Assignments that change nothing: a variable is given the very value that the same call read from it.

Keras on JAX exports such graphs: the call of a model takes its state (the moving statistics of BatchNormalization, the
seeds of Dropout), gives it back as it was, and the graph assigns it.

Rules
- An assignment changes nothing if its value comes, in the same function, from a ReadVariableOp of the same handle,
  through nothing but operations that pass values on, and modules of StableHLO that return that argument as it was.
- A graph writes nothing if this is so for each of its assignments, and nothing else in it writes: then no call changes
  what another reads, in whatever order they run. That no other signature writes is the caller's to know.
- What is not followed counts as a change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from app.runtimes.tensorflow.stablehlo.module import Unreadable, read_module, returned_unchanged

logger = logging.getLogger(__name__)

_ASSIGN = "AssignVariableOp"
_PASS_ON = frozenset({"Identity", "IdentityN"})
_MODULE = "XlaCallModule"


def changes_nothing(graph: Any, writes: Sequence[str]) -> bool:
    """Whether all that a GraphDef writes stays as it was. `writes`: the types of its operations that write."""
    if list(writes) != [_ASSIGN]:
        return False
    parts = [graph.node, *(function.node_def for function in graph.library.function)]
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
        """The node and the number of its result that a value comes from, and those whose values these pass on."""
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
        """Which operand of a node its result is, as it was."""
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
