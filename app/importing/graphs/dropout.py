"""Dropout that keeps all: its random numbers, which then change nothing, become zeros, so that the graph draws none.

Whether that is so is not assumed: the proof of an import compares all answers with those of the graph as it was.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def without_dropout(graph: Any) -> Any:
    """A copy of a GraphDef in which dropout draws zeros."""
    changed = tf.compat.v1.GraphDef()
    changed.CopyFrom(graph)
    for node in changed.node:
        if node.op == "RandomUniform" and "dropout" in node.name.lower():
            dtype, index = node.attr["dtype"].type, node.attr["T"].type
            zero = changed.node.add(name=f"{node.name}/ferry_zero", op="Const")
            zero.attr["dtype"].type = dtype
            zero.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.as_dtype(dtype), []))
            # A constant inside a loop must wait for something of the loop.
            zero.input.append(f"^{node.input[0].partition(':')[0].removeprefix('^')}")
            node.op = "Fill"
            node.input[:] = [node.input[0], zero.name, *node.input[1:]]
            node.attr.clear()
            node.attr["T"].type, node.attr["index_type"].type = dtype, index
    return changed
