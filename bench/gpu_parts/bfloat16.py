"""A copy of a SavedModel whose dense layers multiply in bfloat16.

The weights of each product are rounded once; the other operand is rounded before and the result is float32 again after
it. Everything else stays float32: sums of a residual stream, normalisation, softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import tensorflow as tf

from app.runtimes.tensorflow.execution.graph_inlining import InlinedGraph
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel

#: Operations on matrices, and on images.
DENSE, CONVOLUTIONS = ("MatMul", "BatchMatMul", "BatchMatMulV2"), ("Conv2D",)

_FLOAT, _BFLOAT16 = tf.float32.as_datatype_enum, tf.bfloat16.as_datatype_enum


def save_bfloat16(source: Path, target: Path, operations: tuple[str, ...] = DENSE) -> int:
    """Writes the copy of the model in folder `source`, with its only signature. Returns how many products changed."""
    loaded = SavedModel(source)
    (function,) = loaded._functions.values()
    inlined = InlinedGraph(function.signature, function.plain, with_constants=True)
    changed = _rewrite(inlined.graph, operations)
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in function.signature.inputs.items()}
    module = tf.Module()
    module.call = tf.function(inlined.outputs_of, input_signature=[specs], autograph=False)
    signatures = {function.signature.name: module.call.get_concrete_function()}
    tf.saved_model.save(module, str(target), signatures=signatures)
    loaded.close()
    return changed


def _rewrite(graph: Any, operations: tuple[str, ...]) -> int:
    """Changes the products of a GraphDef; a product keeps its name, so all that reads it stays as it is."""
    nodes = {node.name: node for node in graph.node}
    products = [node for node in graph.node if node.op in operations and node.attr["T"].type == _FLOAT]
    rounded: dict[str, str] = {}
    for node in products:
        product = graph.node.add()
        product.CopyFrom(node)
        product.name = f"{node.name}/bfloat16"
        product.attr["T"].type = _BFLOAT16
        product.attr.pop("_output_shapes", None)
        for place, operand in enumerate(node.input):
            if operand.startswith("^"):
                continue
            if operand not in rounded:
                rounded[operand] = _round(graph, nodes, operand)
            product.input[place] = rounded[operand]
        device = node.device
        node.Clear()
        node.name, node.op, node.device = product.name.removesuffix("/bfloat16"), "Cast", device
        node.input.append(product.name)
        node.attr["SrcT"].type, node.attr["DstT"].type = _BFLOAT16, _FLOAT
    return len(products)


def _round(graph: Any, nodes: Mapping[str, Any], operand: str) -> str:
    """The name of a new node with the operand as bfloat16. Constants are rounded here: they take half the memory."""
    name = f"{operand.replace(':', '_')}/to_bfloat16"
    constant = _constant(nodes, operand)
    added = graph.node.add()
    added.name = name
    if constant is None:
        added.op = "Cast"
        added.input.append(operand)
        added.attr["SrcT"].type, added.attr["DstT"].type = _FLOAT, _BFLOAT16
        return name
    value = tf.make_ndarray(constant.attr["value"].tensor).astype(ml_dtypes.bfloat16)
    added.op = "Const"
    added.attr["dtype"].type = _BFLOAT16
    added.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return name


def _constant(nodes: Mapping[str, Any], operand: str) -> Any | None:
    """The constant that an operand is, maybe by way of Identity."""
    node = nodes.get(operand.partition(":")[0])
    while node is not None and node.op == "Identity":
        node = nodes.get(node.input[0].partition(":")[0])
    return node if node is not None and node.op == "Const" else None
