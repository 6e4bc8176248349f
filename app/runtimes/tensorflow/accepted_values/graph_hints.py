"""Hints of the values that the inputs of a signature accept, read from its graph.

Rules
- Hints come from the nodes that read an input: parsers and decoders, look-ups, gathers, assertions (value_walk.py).
  The walk notes facts of each input; made_values.py makes values by them, which calls try: a wrong hint costs a call.
- Reading never fails: a graph with an unforeseen form gives no hints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import ModelSignature, TensorSpec
from app.core.values.sample_inputs import SEED
from app.core.values.value_hints import NO_HINTS, ValueHint, ValueHints
from app.runtimes.tensorflow.accepted_values.graph_scopes import Graph, Output
from app.runtimes.tensorflow.accepted_values.made_values import MOST_KEYS, PoolMaker
from app.runtimes.tensorflow.accepted_values.value_facts import Facts, Values
from app.runtimes.tensorflow.accepted_values.value_walk import ValueWalk

logger = logging.getLogger(__name__)

#: The most entries that a table may have to be read: an export copies all of them at once. Chosen.
_MOST_ENTRIES = 100_000


def hints_of_graph(
    graph: Any, signature: ModelSignature, inputs: Mapping[str, str], handles: Mapping[str, Any] = MappingProxyType({})
) -> ValueHints:
    """The hints of a GraphDef, by input.

    Args:
        inputs: the tensors ('x:0') of its inputs, by their names in the signature.
        handles: the handles of captured variables and tables, by the names of the placeholders that stand for them.
    """
    try:
        # 1. The graph; what lies outside it (shapes of variables, keys of tables) is asked of the handles.
        whole = Graph(
            graph,
            lambda name: _variable_shape(handles.get(name)),
            lambda name, reader: _keys(handles.get(name), reader),
        )

        # 2. From each input forward: the walk adds to the input's facts, in place.
        walk = ValueWalk(whole)
        facts = {name: Facts(spec.dtype) for name, spec in signature.inputs.items() if name in inputs}
        for name, each in facts.items():
            node, _, number = inputs[name].partition(":")
            walk.follow(whole.top, Output(node, int(number or 0)), Values(each))
        walk.run()

        # 3. Values by these facts, the same at each load (SEED).
        maker = PoolMaker(np.random.default_rng(SEED))
        found = {name: _hint(maker, each, signature.inputs[name]) for name, each in facts.items()}
    except Exception:  # a form of graph that this code does not foresee: hints only help, and loads go on without them
        logger.debug("The graph of signature %r gives no hints, as reading it failed", signature.name, exc_info=True)
        return NO_HINTS

    # 4. Without hints that say nothing: no pool, no size, and zero is accepted.
    return {name: hint for name, hint in found.items() if hint.pools or hint.sizes or not hint.takes_zero}


def _hint(maker: PoolMaker, facts: Facts, spec: TensorSpec) -> ValueHint:
    """The hint of an input; of its sizes only those of axes whose size the signature leaves open."""
    hint, shape = maker.hint(facts), spec.shape or ()
    return replace(hint, sizes={axis: size for axis, size in hint.sizes.items() if shape[axis : axis + 1] == (None,)})


def hints_of_function(function: Any, signature: ModelSignature, captures: Sequence[tuple[Any, Any]]) -> ValueHints:
    """The hints of a concrete function whose first tensors are the signature's inputs, in the order of their names."""
    names = sorted(signature.inputs)
    inputs = {name: tensor.name for name, tensor in zip(names, function.inputs, strict=False)}
    handles = {inner.op.name: outer for outer, inner in captures if outer.dtype == tf.resource}
    return hints_of_graph(function.graph.as_graph_def(), signature, inputs, handles)


def _variable_shape(handle: Any) -> tuple[int, ...] | None:
    """The shape of the variable of a handle; None if it is no variable."""
    if handle is None:
        return None
    try:
        return tuple(int(size) for size in tf.raw_ops.VariableShape(input=handle).numpy())
    except (tf.errors.OpError, AttributeError, TypeError, ValueError):
        return None


def _keys(handle: Any, reader: Any) -> Sequence[Any]:
    """Some keys of a table that a node looks up in; none if the table is large, or if its types are not the node's."""
    if handle is None:
        return ()
    key, value = tf.as_dtype(reader.attr["Tin"].type), tf.as_dtype(reader.attr["Tout"].type)
    try:
        # The export checks no types: a look-up of no keys checks them before.
        default = tf.zeros([], value) if value != tf.string else tf.constant("")
        tf.raw_ops.LookupTableFindV2(table_handle=handle, keys=tf.zeros([0], key), default_value=default)
        if int(tf.raw_ops.LookupTableSizeV2(table_handle=handle)) > _MOST_ENTRIES:
            return ()
        exported = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key, Tvalues=value)
    except (tf.errors.OpError, TypeError, ValueError):
        return ()
    return list(exported.keys.numpy().ravel()[:MOST_KEYS])
