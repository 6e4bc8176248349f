"""The part of a graph that a call runs: the nodes that its outputs need, up to its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.graph_nodes import node_of


def part_of(graph: Any, outputs: Iterable[str], inputs: Iterable[str] = ()) -> Any:
    """A copy of the nodes of a GraphDef that these outputs (tensors or nodes) need, in the order of the GraphDef."""
    needed = needed_nodes({node.name: node for node in graph.node}, outputs, inputs)
    part = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions)
    part.node.extend(node for node in graph.node if node.name in needed)
    return part


def needed_nodes(nodes: Mapping[str, Any], outputs: Iterable[str], inputs: Iterable[str]) -> set[str]:
    """The names of the nodes that the tensors `outputs` need if the tensors `inputs` are fed.

    Args:
        nodes: NodeDefs by name.
    """
    fed = set(map(full_name, inputs))
    fed_nodes = set(map(node_of, fed))
    needed: set[str] = set()
    waiting = list(map(full_name, outputs))
    while waiting:
        tensor = waiting.pop()
        name = node_of(tensor)
        if tensor in fed or name in needed or (tensor.startswith("^") and name in fed_nodes):
            continue
        if name not in nodes:  # TensorFlow's error is better for such a signature
            continue
        needed.add(name)
        waiting += map(full_name, nodes[name].input)
    return needed


def full_name(tensor: str) -> str:
    """'x:0' for 'x'; '^x', a node to wait for, stays."""
    return tensor if ":" in tensor or tensor.startswith("^") else f"{tensor}:0"


def tensors_of(info: Any) -> Iterator[str]:
    """The tensors of a TensorInfo, which may be sparse or composite."""
    match info.WhichOneof("encoding"):
        case "name":
            yield info.name
        case "coo_sparse":
            sparse = info.coo_sparse
            yield from (sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
        case "composite_tensor":
            for component in info.composite_tensor.components:
                yield from tensors_of(component)
