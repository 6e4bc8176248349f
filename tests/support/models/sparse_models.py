"""Small models of one SparseTensor: functions of it, and requests for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array, SparseParts

PARTS = SparseParts("x", "x_1", "x_2")

#: Columns of a row.
WIDTH = 6

Function = Callable[[Any], Any]

sparse = tf.sparse
_TABLE = tf.constant(np.arange(40, dtype=np.float32).reshape(10, 4) ** 1.5)
_MATRIX = tf.constant(np.linspace(-1, 2, 4 * WIDTH, dtype=np.float32).reshape(WIDTH, 4))


def _pruned(x: Any) -> Any:
    return sparse.retain(x, x.values > 0)


def _lookup(x: Any, combiner: str) -> Any:
    return tf.nn.embedding_lookup_sparse(_TABLE, x, None, combiner=combiner)


#: Of numbers. Each row's answer is its own.
INDEPENDENT: Mapping[str, Function] = {
    "product": lambda x: sparse.sparse_dense_matmul(x, _MATRIX),
    "dense": sparse.to_dense,
    "sum": lambda x: sparse.reduce_sum(x, 1),
    "sum_kept": lambda x: sparse.reduce_sum(x, -1, keepdims=True),
    "largest": lambda x: sparse.reduce_max(x, 1),
    "softmax": lambda x: sparse.to_dense(sparse.softmax(x)),
    "reordered": lambda x: sparse.to_dense(sparse.reorder(x)),
    "mapped": lambda x: sparse.to_dense(sparse.map_values(tf.nn.relu, x)),
    "scaled": lambda x: sparse.to_dense(x * 2.0),
    "scaled_columns": lambda x: sparse.to_dense(x * tf.range(1.0, WIDTH + 1)[None]),
    "divided_by_own_sum": lambda x: sparse.to_dense(x / (1.0 + sparse.reduce_sum(x, 1, keepdims=True))),
    "pruned": lambda x: sparse.reduce_sum(_pruned(x), 1),
    "reshaped": lambda x: sparse.to_dense(sparse.reshape(x, [-1, WIDTH])),
    "segments": lambda x: tf.math.unsorted_segment_sum(x.values, x.indices[:, 0], x.dense_shape[0]),
    "filled": lambda x: tf.math.segment_max(*_segments(sparse.fill_empty_rows(x, 0.0)[0])),
    "no_rule_joined": lambda x: sparse.to_dense(sparse.concat(1, [x, x])),
    "no_rule_cut": lambda x: sparse.to_dense(sparse.slice(x, [0, 1], [x.dense_shape[0], 3])),
}

#: Of numbers. Rows see each other, or outputs do not have their rows.
MIXING: Mapping[str, Function] = {
    "sum_of_rows": lambda x: sparse.to_dense(x) + sparse.reduce_sum(x, 0),
    "sum_of_all": lambda x: sparse.to_dense(x) + sparse.reduce_sum(x),
    "divided_by_largest": lambda x: sparse.to_dense(sparse.map_values(lambda v: v / (1 + tf.reduce_max(v)), x)),
    "softmax_of_values": lambda x: sparse.to_dense(sparse.map_values(tf.nn.softmax, x)),
    "number_of_rows": lambda x: sparse.reduce_sum(x, 1) + tf.cast(x.dense_shape[0], tf.float32),
    "number_of_entries": lambda x: sparse.reduce_sum(x, 1) + tf.cast(tf.size(x.values), tf.float32),
    "own_place": lambda x: sparse.reduce_sum(x, 1) * tf.cast(tf.range(x.dense_shape[0]), tf.float32),
    "turned_round": lambda x: tf.reduce_sum(sparse.to_dense(sparse.transpose(x)), 1)[:1] + sparse.reduce_sum(x, 1),
    "halves": lambda x: sparse.reduce_sum(sparse.reshape(x, [-1, WIDTH // 2]), 1),
    "two_in_one": lambda x: tf.reshape(sparse.to_dense(x), [-1, WIDTH // 2])[: tf.shape(x)[0]],
    "segments_with_entries": lambda x: tf.math.segment_sum(*_segments(x)),
    "places_by_value": lambda x: tf.math.unsorted_segment_sum(
        x.values, tf.cast(x.values, tf.int64) % x.dense_shape[0], x.dense_shape[0]
    ),
    "product_of_rows": lambda x: (
        tf.zeros([tf.shape(x)[0], WIDTH]) + tf.reduce_sum(sparse.sparse_dense_matmul(x, sparse.to_dense(x), True), 0)
    ),
    "joined_rows": lambda x: sparse.to_dense(sparse.concat(0, [x, x]))[: tf.shape(x)[0] * 2 : 2],
    "cut_rows": lambda x: sparse.reduce_sum(sparse.slice(x, [0, 0], [2, WIDTH]), 1),
    "running_sum": lambda x: tf.cumsum(sparse.to_dense(x), 0),
    "scaled_by_row": lambda x: sparse.to_dense(x * tf.range(1.0, 5.0)[:, None][: tf.shape(x)[0]]),
}

#: Of identifiers.
LOOKUPS: Mapping[str, Function] = {
    "safe_mean": lambda x: tf.nn.safe_embedding_lookup_sparse(_TABLE, x, combiner="mean"),
    "safe_sum": lambda x: tf.nn.safe_embedding_lookup_sparse(_TABLE, x, combiner="sum"),
    "filled_sum": lambda x: _lookup(sparse.fill_empty_rows(x, 0)[0], "sum"),
    "filled_mean": lambda x: _lookup(sparse.fill_empty_rows(x, 0)[0], "mean"),
    "dense_then_gathered": lambda x: tf.reduce_sum(tf.gather(_TABLE, sparse.to_dense(x)), 1),
}

#: Of identifiers. Rows without entries are left out at the end.
UNSAFE_LOOKUPS: Mapping[str, Function] = {
    "unsafe_sum": lambda x: _lookup(x, "sum"),
    "unsafe_mean": lambda x: _lookup(x, "mean"),
}


def _segments(x: Any) -> tuple[Any, Any]:
    return x.values, x.indices[:, 0]


def spec(dtype: Any = tf.float32, width: int | None = WIDTH) -> Any:
    return tf.SparseTensorSpec([None, width], dtype)


def save(path: Path, function: Function, dtype: Any = tf.float32, width: int | None = WIDTH, **more: Any) -> None:
    """A SavedModel of x -> y, whose function is saved with its arguments."""
    module = tf.Module()
    module.function = tf.function(
        lambda x: {"y": function(x), **{name: each(x) for name, each in more.items()}},
        input_signature=[spec(dtype, width)],
        autograph=False,
    )
    tf.saved_model.save(module, str(path), signatures=module.function)


def drawn(random: np.random.Generator, rows: int, dtype: Any = np.float32, width: int = WIDTH) -> dict[str, Array]:
    """A request: rows of no, one or several entries. Numbers are halves above 0, whose sums are exact."""
    shown = random.random((rows, width)) < random.choice([0.0, 0.2, 0.6], (rows, 1))
    indices = np.argwhere(shown)
    values = random.integers(1, 9, len(indices))
    values = values / 2 if np.issubdtype(dtype, np.floating) else values
    return {"x": indices, "x_1": values.astype(dtype), "x_2": np.array([rows, width])}


def called(function: Function, inputs: Mapping[str, Array]) -> Array:
    """What the function answers to a request alone."""
    found: Array = function(tf.SparseTensor(*[inputs[name] for name in PARTS])).numpy()
    return found
