"""A signature's graph without calls: one list of nodes that can be looked at, cut and put to use again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow import private_api

Tensors = dict[str, Any]
Graph = Callable[[Tensors], Tensors]


class InlinedGraph:
    """The nodes behind `traced`, a concrete function from a dictionary of inputs to one of outputs.

    Variables and tables stay outside and are borrowed, unless `with_constants` turns variables into
    constants: then their values as they are now are part of the graph.
    """

    def __init__(self, signature: ModelSignature, traced: Any, *, with_constants: bool = False) -> None:
        self.signature = signature
        names = sorted(signature.inputs)
        self.inputs = {tensor.op.name: name for name, tensor in zip(names, traced.inputs[: len(names)], strict=True)}
        self._outputs = dict(zip(sorted(signature.outputs), (tensor.name for tensor in traced.outputs), strict=True))
        self._handles = {inner.op.name: outer for outer, inner in private_api.captures(traced)}
        self.graph = private_api.with_constants(traced) if with_constants else private_api.inlined(traced)

    def function(self) -> Graph:
        """The whole graph as a function of its own. Uses this object up: constants are large."""
        outputs, run = self._outputs, self._importer(list(self._outputs.values()), self.graph)
        shapes = {name: spec.shape for name, spec in self.signature.inputs.items()}
        graph: Graph = trace(lambda tensors: dict(zip(outputs, run(tensors), strict=True)), shapes, self.signature)
        self.graph.Clear()
        return graph

    def importer(self, nodes: Sequence[str]) -> Callable[[Tensors], list[Any]]:
        """A function, to be called while tracing, that runs just what `nodes` need and returns their first
        outputs; those that have none only run."""
        return self._importer(list(nodes), _part(self.graph, nodes))

    def _importer(self, results: list[str], graph: Any) -> Callable[[Tensors], list[Any]]:
        inputs, handles = self.inputs, self._handles
        fed = {node.name for node in graph.node if node.op == "Placeholder"}
        for node in graph.node:
            if node.name in fed:  # it stays by name, since others may wait for it or stand beside it
                node.CopyFrom(tf.compat.v1.NodeDef(name=node.name, op="NoOp"))

        def run(tensors: Tensors) -> list[Any]:
            feeds = {f"{node}:0": tensors[name] for node, name in inputs.items() if node in fed}
            feeds |= {f"{node}:0": private_api.capture(handle) for node, handle in handles.items() if node in fed}
            found = tf.graph_util.import_graph_def(graph, input_map=feeds, return_elements=results, name="")
            return [_first_output(each) for each in found]

        return run


def trace(
    function: Callable[[Tensors], Any],
    shapes: Mapping[str, Sequence[int | None] | None],
    signature: ModelSignature,
    **options: Any,
) -> Any:
    """A concrete function of the signature's inputs with these shapes."""
    specs = {name: tf.TensorSpec(shapes[name], spec.dtype) for name, spec in signature.inputs.items()}
    return tf.function(function, input_signature=[specs], autograph=False, **options).get_concrete_function()


def _first_output(found: Any) -> Any:
    if isinstance(found, tf.Operation):
        return found.outputs[0] if found.outputs else None
    return found


def _part(graph: Any, nodes: Sequence[str]) -> Any:
    """A copy of what these nodes need, what they only wait for included."""
    by_name = {node.name: node for node in graph.node}
    needed: set[str] = set()
    waiting = list(nodes)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [giver.lstrip("^").partition(":")[0] for giver in by_name[name].input]
    part = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions)
    part.node.extend(node for node in graph.node if node.name in needed)
    return part
