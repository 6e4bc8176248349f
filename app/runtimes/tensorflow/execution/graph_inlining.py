"""The graph of a signature without calls of functions: one list of nodes that can be inspected, cut and used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.graph_nodes import node_of
from app.runtimes.tensorflow.graph_part import part_of

Tensors = dict[str, Any]

#: A concrete function from a dictionary of input tensors to one of output tensors, or a callable like it.
TensorFunction = Callable[[Tensors], Tensors]


class InlinedGraph:
    """The nodes of `traced`, a concrete function from a dictionary of inputs to one of outputs.

    Variables and tables stay outside and are borrowed, unless `with_constants` turns variables into
    constants: then their present values are part of the graph.

    Args:
        rewrite: changes the GraphDef before its calls are inlined; not together with `with_constants`.

    Attributes:
        handles: the borrowed handles, by the node that holds them.

    Raises:
        PrivateApiUnusable: graphs cannot be rewritten with this TensorFlow.
    """

    def __init__(
        self,
        signature: ModelSignature,
        traced: Any,
        *,
        with_constants: bool = False,
        rewrite: Callable[[Any], None] | None = None,
    ) -> None:
        private_api.require(private_api.GRAPH_REWRITING)
        self.signature = signature
        names = sorted(signature.inputs)
        graph = private_api.with_constants(traced) if with_constants else private_api.inlined(traced, rewrite)
        names_now = _name_numbered(graph)
        private_api.name_functions_by_content(graph)
        self.inputs = {tensor.op.name: name for name, tensor in zip(names, traced.inputs[: len(names)], strict=True)}
        self._outputs = dict(zip(sorted(signature.outputs), (tensor.name for tensor in traced.outputs), strict=True))
        captures = private_api.captures(traced.graph)
        self.handles = {names_now.get(inner.op.name, inner.op.name): outer for outer, inner in captures}
        self.graph = graph

    def outputs_of(self, tensors: Tensors) -> Tensors:
        """The outputs; to be called while tracing. The traced graph follows from the model's content alone."""
        results = list(self._outputs.values())
        part = part_of(self.graph, results)
        for node in part.node:
            node.ClearField("experimental_debug_info")  # it names functions by their numbers
        run = self._importer(results, part)
        return dict(zip(self._outputs, run(tensors), strict=True))

    def borrowed(self) -> list[str]:
        """The nodes with handles that the outputs need."""
        part = part_of(self.graph, self._outputs.values())
        return [node.name for node in part.node if node.name in self.handles]

    def separate(self) -> tuple[tf.Graph, dict[str, str], dict[str, str]] | None:
        """A separate tf.Graph, with the tensors of its inputs and of its outputs, by name.

        None if the outputs need handles, such as tables, or if an output is the very tensor of an input.
        """
        outputs = set(map(node_of, self._outputs.values()))
        part = part_of(self.graph, {*self.inputs, *outputs})
        fed = {node.name for node in part.node if node.op == "Placeholder"}
        if fed != self.inputs.keys() or fed & outputs:
            return None
        for node in part.node:
            node.attr.pop("_class", None)  # changes nothing on one device, and may name nodes outside of the part
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(part, name="")
        return graph, {name: f"{node}:0" for node, name in self.inputs.items()}, dict(self._outputs)

    def function(self) -> TensorFunction:
        """The whole graph as a concrete function. Call it once: it empties the graph, because constants are large."""
        outputs, run = self._outputs, self._importer(list(self._outputs.values()), self.graph)
        shapes = {name: spec.shape for name, spec in self.signature.inputs.items()}
        function: TensorFunction = trace(
            lambda tensors: dict(zip(outputs, run(tensors), strict=True)), shapes, self.signature
        )
        self.graph.Clear()
        return function

    def importer(self, nodes: Sequence[str]) -> Callable[[Tensors], list[Any]]:
        """A function, to be called while tracing, that runs `nodes` and the nodes that they need.

        It returns the first output of each node; None for a node without outputs, which runs all the same.
        """
        return self._importer(list(nodes), part_of(self.graph, nodes))

    def _importer(self, results: list[str], graph: Any) -> Callable[[Tensors], list[Any]]:
        inputs, handles = self.inputs, self.handles
        fed = {node.name for node in graph.node if node.op == "Placeholder"}
        for node in graph.node:
            if node.name in fed:  # other nodes may wait for it by its name, so it stays as a node that does nothing
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
    """A concrete function of the signature's inputs with these shapes. `options` are those of tf.function."""
    specs = {name: tf.TensorSpec(shapes[name], spec.dtype) for name, spec in signature.inputs.items()}
    traced = tf.function(function, input_signature=[specs], autograph=False, **options).get_concrete_function()
    return private_api.free_with(traced)


def _first_output(found: Any) -> Any:
    if isinstance(found, tf.Operation):
        return found.outputs[0] if found.outputs else None
    return found


def _name_numbered(graph: Any) -> dict[str, str]:
    """Gives names to the nodes that TensorFlow names by numbers of this process; the new names by the old ones."""
    numbered = sorted((node.name for node in graph.node if node.name.isdecimal()), key=int)
    names = {name: f"captured_{place}" for place, name in enumerate(numbered)}
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for place, giver in enumerate(node.input):
            if (old := node_of(giver)) in names:
                node.input[place] = giver.replace(old, names[old], 1)
        beside = node.attr["_class"].list.s if "_class" in node.attr else []
        for place, where in enumerate(beside):
            if (old := where.decode().removeprefix("loc:@")) in names:
                beside[place] = f"loc:@{names[old]}".encode()
    return names
