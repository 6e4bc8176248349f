"""The devices that a SavedModel names: those of its variables, and of the operations that its signatures run.

What only saves or restores the model names devices, too, but runs on none of them when the model is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.function_names import called_in
from app.runtimes.tensorflow.saved_model.graph_part import needed_nodes, tensors_of


def named_devices(meta_graph: Any) -> Sequence[str]:
    """As runtimes name them, such as 'GPU:1', in order.

    Where a GPU is named CPUs are left out: they prepare what GPUs compute, for all models.
    """
    variables = [node.variable.device for node in meta_graph.object_graph_def.nodes if node.HasField("variable")]
    operations = [node.device for node in _nodes_that_run(meta_graph)]
    found = set(filter(None, map(_kind_and_index, {*variables, *operations})))
    if any(kind != "CPU" for kind, _ in found):
        found = {each for each in found if each[0] != "CPU"}
    return [f"{kind}:{index}" for kind, index in sorted(found)]


def _kind_and_index(device: str) -> tuple[str, int] | None:
    """None if it leaves one of them open."""
    spec = tf.DeviceSpec.from_string(device)
    return None if spec.device_type is None or spec.device_index is None else (spec.device_type, spec.device_index)


def _nodes_that_run(meta_graph: Any) -> Iterator[Any]:
    """The NodeDefs that calls of signatures reach, in the graph and in its functions."""
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    outputs = [output for each in meta_graph.signature_def.values() for output in each.outputs.values()]
    waiting = [nodes[name] for name in needed_nodes(nodes, [t for output in outputs for t in tensors_of(output)], ())]
    functions = {function.signature.name: function.node_def for function in graph.library.function}
    while waiting:
        node = waiting.pop()
        yield node
        for name in _called(node):
            waiting += functions.pop(name, ())  # each once


def _called(node: Any) -> Iterable[str]:
    return (node.op, *[each.name for each in called_in(node)])
