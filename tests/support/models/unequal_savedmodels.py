"""SavedModels whose inputs are not all rows, or whose inputs have rows of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf


def make_temperature(path: Path) -> None:
    """x [batch, 4], temperature [] -> y = softmax of x / temperature, row by row."""
    _save(
        path,
        {"x": ([None, 4], tf.float32), "temperature": ([], tf.float32)},
        lambda x, temperature: {"y": tf.nn.softmax(x / temperature, axis=-1), "half": 1.0 / temperature + 0.0 * x},
    )


def make_document(path: Path) -> None:
    """queries [batch, 16], document [16] -> score, of each query."""
    _save(
        path,
        {"queries": ([None, 16], tf.float32), "document": ([16], tf.float32)},
        lambda queries, document: {"score": tf.tanh(tf.reduce_sum(queries * document, axis=1))},
    )


def make_towers(path: Path) -> None:
    """users [batch, 3] -> user; items [batch, 2] -> item: neither depends on the other."""
    _save(
        path,
        {"users": ([None, 3], tf.float32), "items": ([None, 2], tf.float32)},
        lambda users, items: {"user": tf.tanh(users), "item": items * 2.0 + 1.0},
    )


def make_graph_network(path: Path) -> None:
    """nodes [batch, 2], edges [batch, 2] -> y: each node, and the sum of those from which edges lead to it."""

    def call(nodes: Any, edges: Any) -> Any:
        from_nodes = tf.gather(nodes, edges[:, 0])
        return {"y": nodes + tf.math.unsorted_segment_sum(from_nodes, edges[:, 1], tf.shape(nodes)[0])}

    _save(path, {"nodes": ([None, 2], tf.float32), "edges": ([None, 2], tf.int32)}, call)


def make_flag(path: Path) -> None:
    """x [batch, 2], training [] -> y: x, less the mean of all rows if the flag is true."""
    _save(
        path,
        {"x": ([None, 2], tf.float32), "training": ([], tf.bool)},
        lambda x, training: {"y": tf.cond(training, lambda: x - tf.reduce_mean(x, axis=0), lambda: x + 0.0)},
    )


def _save(path: Path, inputs: dict[str, tuple[list[int | None], Any]], call: Callable[..., Any]) -> None:
    module = tf.Module()
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in inputs.items()]
    module.call = tf.function(call, input_signature=signature)
    tf.saved_model.save(module, str(path), signatures=module.call)
