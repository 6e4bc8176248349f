"""Graphs that batch by themselves: a BatchFunction waits for further calls or its timeout, and runs a function for all.

Here requests share calls before they reach the graph, and its device is called by one thread: each call would wait for
the whole timeout. So the function is called directly, with the rows of one call, which the operation would join with
others.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import replace
from typing import Any

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.execution.graph_inlining import InlinedGraph
from app.runtimes.tensorflow.graph_nodes import bodies_of

logger = logging.getLogger(__name__)

_BATCHES = "BatchFunction"

#: The operation with the operands of a BatchFunction, in the same order: the tensors, then the captured ones.
_CALL = "StatefulPartitionedCall"

#: The names of their results.
_BATCHED_RESULTS, _RESULTS = "out_tensors", "output"


def without_batching(signature: ModelSignature, traced: Any) -> Any:
    """The concrete function, of outputs of this signature, without BatchFunction; itself if it has none.

    Where graphs cannot be rewritten it stays as it is, with a warning: its calls wait for each other.
    """
    if not batches(traced.graph.as_graph_def()):
        return traced
    wanted = replace(signature, outputs={name: signature.outputs[name] for name in traced.structured_outputs})
    try:
        function: Any = InlinedGraph(wanted, traced, rewrite=_call_directly).function()
    except Exception as error:
        logger.warning("Signature %r batches in its graph, and its calls wait for that: %s", signature.name, error)
        return traced
    return traced if batches(function.graph.as_graph_def()) else function


def batches(graph: Any) -> bool:
    """Whether a GraphDef, or a function of its library, has a BatchFunction."""
    return any(node.op == _BATCHES for nodes in bodies_of(graph) for node in nodes)


def _call_directly(graph: Any) -> None:
    """Makes each BatchFunction of a GraphDef and its library a call of its function."""
    for nodes in bodies_of(graph):
        for node in nodes:
            if node.op == _BATCHES:
                _make_call(node)
    for function in graph.library.function:
        calls = {node.name for node in function.node_def if node.op == _CALL}
        for node in function.node_def:
            node.input[:] = [_renamed(each, calls) for each in node.input]
        for name, result in function.ret.items():
            function.ret[name] = _renamed(result, calls)


def _make_call(node: Any) -> None:
    given = [*node.attr["Tin"].list.type, *node.attr["Tcaptured"].list.type]
    results, function = list(node.attr["Tout"].list.type), node.attr["f"].func.name
    node.op = _CALL
    node.ClearField("attr")
    node.attr["Tin"].list.type.extend(given)
    node.attr["Tout"].list.type.extend(results)
    node.attr["f"].func.name = function


def _renamed(tensor: str, calls: Container[str]) -> str:
    """A tensor 'node:result:index' of a function under the name that a call has for its results."""
    node, _, rest = tensor.partition(":")
    result, _, index = rest.partition(":")
    return f"{node}:{_RESULTS}:{index}" if node in calls and result == _BATCHED_RESULTS else tensor
