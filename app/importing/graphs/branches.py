"""The branches of TensorFlow 1 (Switch, Merge) that a fixed condition never takes, taken out of a graph.

1. A Switch whose condition is known passes its value to one of its outputs; the other one is dead.
2. A node is dead if something that it reads, or waits for, is dead; a Merge if all are.
3. A Merge with one living operand is that operand.

Loops are left as they are: their conditions are never known. Whether all this is right is not assumed: the proof of an
import compares all answers with those of the graph as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.graph_nodes import data_inputs, node_of
from app.runtimes.tensorflow.graph_part import full_name

_SWITCHES, _MERGES = ("RefSwitch", "Switch"), ("Merge", "RefMerge")


def taken_branches(graph: Any, fixed: Mapping[str, Array]) -> Any:
    """A copy of a GraphDef without the branches that are not taken if tensors have these values."""
    known = {tensor: bool(value) for tensor, value in fixed.items() if value.dtype == bool}
    if not known:
        return graph
    pruning = _Pruning(graph, known)
    while pruning.step():
        pass
    return pruning.result()


class _Pruning:
    """Passes over the nodes of a graph, until none finds more.

    known: conditions with their values.
    dead: outputs of nodes, and nodes ('^x'), that never have a value.
    same: outputs of Switch and Merge by the tensors that they pass on.
    """

    def __init__(self, graph: Any, known: dict[str, bool]) -> None:
        self._graph = graph
        self._known = known
        self._dead: set[str] = set()
        self._same: dict[str, str] = {}

    def step(self) -> bool:
        """One pass over all nodes. Returns whether it found anything."""
        before = (len(self._known), len(self._dead), len(self._same))
        for node in self._graph.node:
            if f"^{node.name}" in self._dead:
                continue
            if node.op in _MERGES:
                self._merge(node)
            elif any(self._is_dead(each) for each in node.input):
                self._dead.add(f"^{node.name}")
            elif node.op in _SWITCHES:
                self._switch(node)
            else:
                self._learn(node)
        return before != (len(self._known), len(self._dead), len(self._same))

    def result(self) -> Any:
        changed = tf.compat.v1.GraphDef(library=self._graph.library, versions=self._graph.versions)
        merges = {node.name for node in self._graph.node if node.op in _MERGES}
        gone = {f"^{name}" for name in map(node_of, self._same) if name not in merges}
        for node in self._graph.node:
            if f"^{node.name}" not in self._dead:
                copy = changed.node.add()
                copy.CopyFrom(node)
                copy.input[:] = [
                    each if each.startswith("^") else self._followed(each) for each in node.input if each not in gone
                ]
                if node.op in _MERGES and f"{node.name}:0" in self._same:
                    copy.op = "Identity"  # under its name, which outputs may have
                    copy.input[:] = [self._followed(self._same[f"{node.name}:0"])]
                    del copy.attr["N"]
        return changed

    def _is_dead(self, tensor: str) -> bool:
        if tensor.startswith("^"):
            return tensor in self._dead
        return full_name(tensor) in self._dead or f"^{node_of(tensor)}" in self._dead

    def _merge(self, node: Any) -> None:
        alive = [each for each in data_inputs(node) if not self._is_dead(each)]
        if not alive:
            self._dead.add(f"^{node.name}")
        elif len(alive) == 1 and len(data_inputs(node)) > 1:
            self._same[f"{node.name}:0"] = full_name(alive[0])

    def _switch(self, node: Any) -> None:
        value, condition = map(full_name, data_inputs(node))
        if condition in self._known:
            taken = self._known[condition]
            self._dead.add(f"{node.name}:{int(not taken)}")
            self._same[f"{node.name}:{int(taken)}"] = value
            if value in self._known:
                self._known[f"{node.name}:{int(taken)}"] = self._known[value]

    def _learn(self, node: Any) -> None:
        """Notes the value of a node that computes with known conditions."""
        values = [self._known.get(full_name(each)) for each in data_inputs(node)]
        if not values or all(value is None for value in values):
            return
        output = f"{node.name}:0"
        if node.op == "Identity" and values[0] is not None:
            self._known[output] = values[0]
        elif node.op == "LogicalNot" and values[0] is not None:
            self._known[output] = not values[0]
        elif node.op == "LogicalAnd" and (False in values or None not in values):
            self._known[output] = False not in values
        elif node.op == "LogicalOr" and (True in values or None not in values):
            self._known[output] = True in values

    def _followed(self, tensor: str) -> str:
        tensor = full_name(tensor)
        while tensor in self._same:
            tensor = self._same[tensor]
        return tensor
