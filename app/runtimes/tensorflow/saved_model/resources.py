"""The resources that TensorFlow keeps by name for a loaded SavedModel, and their end: tables, iterators, queues.

Rules
- TensorFlow keeps such a resource until an operation destroys it by its handle. A handle is a tensor that functions
  capture (TensorFlow 2), or the result of a node that runs in each call (TensorFlow 1).
- The loader gives the resources of each load new names, so a freed resource never belongs to another version.
- Variables are not freed here: TensorFlow frees them with their handles.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow import private_api

logger = logging.getLogger(__name__)


def free_resources(loaded: Any) -> None:
    """Frees the tables, iterators and queues of the result of tf.saved_model.load; no function may run any more."""
    try:
        graphs = private_api.graphs_of(loaded)
        for handle in (*_captured(loaded, graphs), *_made(_making_nodes(graphs))):
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
    except Exception as error:  # a graph may hold anything; the rest of the model is freed all the same
        logger.warning("Tables of a model stay in memory: %s", error)


def _captured(loaded: Any, graphs: Sequence[Any]) -> list[Any]:
    """The handles of the loaded objects, and the handles that functions capture, without those of variables."""
    variables = {id(variable.handle) for graph in graphs for variable in graph.variables}
    captured = (outer for graph in graphs for outer, _ in private_api.captures(graph))
    handles = {id(each): each for each in (*_owned(loaded), *captured) if id(each) not in variables}
    return [each for each in handles.values() if _is_handle(each)]


def _owned(loaded: Any) -> Iterator[Any]:
    for each in tf.train.TrackableView(loaded).descendants():
        if isinstance(each, tf.saved_model.experimental.TrackableResource):
            yield each.resource_handle


def _is_handle(tensor: Any) -> bool:
    return tf.is_tensor(tensor) and tensor.dtype == tf.resource and not tf.is_symbolic_tensor(tensor)


def _making_nodes(graphs: Iterable[Any]) -> list[list[Any]]:
    """For each resource that nodes make by name: the NodeDefs of one of these nodes and of its inputs."""
    found: dict[tuple[str, bytes], list[Any]] = {}
    for graph in graphs:
        for operation in graph.get_operations():
            if operation.outputs and operation.outputs[0].dtype == tf.resource:
                node, inputs = operation.node_def, [tensor.op for tensor in operation.inputs]
                if node.attr["shared_name"].s and all(each.type == "Const" for each in inputs):
                    found[node.op, node.attr["shared_name"].s] = [node, *(each.node_def for each in inputs)]
    return list(found.values())


def _made(making: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The handles that these nodes give, of the resources with their names."""
    if not making:
        return ()

    def handles() -> list[Any]:
        return [_imported(nodes, f"resource_{number}") for number, nodes in enumerate(making)]

    function = tf.compat.v1.wrap_function(handles, [])
    found: Sequence[Any] = function()
    return found


def _imported(nodes: Sequence[Any], scope: str) -> Any:
    part = tf.compat.v1.GraphDef()
    part.node.extend(nodes)
    for node in part.node:
        node.attr.pop("_class", None)  # it may name a node outside of the part
        node.input[:] = [giver for giver in node.input if not giver.startswith("^")]
    (handle,) = tf.graph_util.import_graph_def(part, return_elements=[f"{nodes[0].name}:0"], name=scope)
    return handle
