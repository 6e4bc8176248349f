"""The devices that a SavedModel names for its variables and for the operations that its signatures run.

Operations that save or restore the model name devices, too, but do not run when the model is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.graph_nodes import with_called
from app.runtimes.tensorflow.graph_part import needed_nodes, tensors_of


def named_devices(meta_graph: Any) -> Sequence[str]:
    """The devices as runtimes name them, such as 'GPU:1', in order.

    Where a GPU is named CPUs are left out: they prepare the work of GPUs, for all models.
    """
    variables = [node.variable.device for node in meta_graph.object_graph_def.nodes if node.HasField("variable")]
    operations = [node.device for node in _nodes_that_run(meta_graph)]
    found = set(filter(None, map(_kind_and_index, {*variables, *operations})))
    if any(kind != "CPU" for kind, _ in found):
        found = {each for each in found if each[0] != "CPU"}
    return [f"{kind}:{index}" for kind, index in sorted(found)]


def _kind_and_index(device: str) -> tuple[str, int] | None:
    """The parts of 'GPU:1'; None if the device leaves one of them open."""
    spec = tf.DeviceSpec.from_string(device)
    return None if spec.device_type is None or spec.device_index is None else (spec.device_type, spec.device_index)


def _nodes_that_run(meta_graph: Any) -> Iterator[Any]:
    """The NodeDefs that calls of signatures reach, in the graph and in its functions."""
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    outputs = [output for each in meta_graph.signature_def.values() for output in each.outputs.values()]
    needed = needed_nodes(nodes, [tensor for output in outputs for tensor in tensors_of(output)], ())
    return with_called([nodes[name] for name in needed], graph)
