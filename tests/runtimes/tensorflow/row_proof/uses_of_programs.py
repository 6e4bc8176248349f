"""Programs of a few steps: what masks, distinct entries, places and sizes become when they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.runtimes.tensorflow.row_proof.drawing import Draw, Use
from tests.runtimes.tensorflow.row_proof.uses import recipe

PROGRAM = "(program)"

_MOST_STEPS = 4


def _whole(values: Any) -> Any:
    return tf.cast(tf.clip_by_value(values, -9.0, 9.0), tf.int32)


#: Where programs begin: floating-point tensors, and whole numbers.
_FLOATS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, u: x[:, :4],
    lambda x, u: x[:, 4],
    lambda x, u: tf.transpose(x[:, 5:8]),
    lambda x, u: tf.reshape(x[:, :4], [-1, 2, 2]),
    lambda x, u: u,
    lambda x, u: tf.tile(x[:, :2], [2, 1]),
    lambda x, u: tf.repeat(x[:, :2], 2, 0),
    lambda x, u: tf.constant([1.0, -2.0]),
    lambda x, u: tf.ones([4, 2]),
)
_WHOLE: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, u: tf.range(tf.shape(x)[0]),
    lambda x, u: tf.cast(tf.where(x[:, :2] > 0.0), tf.int32),
    lambda x, u: tf.where(x[:, 2] > 0.0),
    lambda x, u: tf.unique(_whole(x[:, 3]))[1],
    lambda x, u: tf.unique(_whole(x[:, 3]))[0],
    lambda x, u: _whole(x[:, 2]) % 2,
    lambda x, u: tf.shape(x)[0],
    lambda x, u: tf.shape(u),
    lambda x, u: tf.constant([0, 1]),
    lambda x, u: tf.constant(2),
    lambda x, u: _whole(x[:, :2]) % 2,
)

#: Steps by the kinds of their operands: f is floating-point, i whole numbers, a any.
_STEPS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("ff", lambda a, b: a + b),
    ("f", lambda a: tf.reduce_sum(a, 0)),
    ("f", lambda a: a - tf.reduce_max(a, -1, keepdims=True)),
    ("f", lambda a: tf.reduce_sum(a, 0)),
    ("f", lambda a: tf.reduce_max(a, -1)),
    ("a", tf.transpose),
    ("a", lambda a: a[..., None]),
    ("a", lambda a: a[0]),
    ("a", lambda a: a[:, 0]),
    ("a", lambda a: a[..., -1]),
    ("a", lambda a: a[:-1]),
    ("a", lambda a: tf.reshape(a, [-1])),
    ("a", lambda a: tf.reshape(a, [-1, 2])),
    ("a", lambda a: tf.reshape(a, [2, -1])),
    ("a", lambda a: tf.reshape(a, [tf.shape(a)[0], -1])),
    ("ai", tf.reshape),
    ("a", lambda a: tf.concat([a, a], 0)),
    ("aa", lambda a, b: tf.concat([a, b], 0)),
    ("aa", lambda a, b: tf.concat([a, b], -1)),
    ("aa", lambda a, b: tf.stack([a, b], -1)),
    ("a", lambda a: tf.split(a, 2)[1]),
    ("a", lambda a: tf.tile(a, [2] * max(a.shape.rank or 1, 1))),
    ("ai", tf.gather),
    ("ai", tf.gather_nd),
    ("ai", lambda a, i: tf.gather(a, i, batch_dims=1)),
    ("ai", lambda a, i: tf.gather(a, i, axis=1)),
    ("ii", lambda i, a: tf.scatter_nd(i, tf.ones_like(i[:, 0]), a)),
    ("iff", lambda i, a, b: tf.tensor_scatter_nd_add(a, i, b)),
    ("fi", tf.math.segment_sum),
    ("fii", tf.math.unsorted_segment_sum),
    ("f", lambda a: tf.boolean_mask(a, tf.reduce_any(tf.reshape(a > 0.0, [tf.shape(a)[0], -1]), 1))),
    ("a", lambda a: tf.where(a > tf.cast(0, a.dtype))),
    ("i", lambda a: tf.unique(a)[0]),
    ("i", lambda a: tf.unique(a)[1]),
    ("a", tf.shape),
    ("a", tf.size),
    ("i", tf.range),
    ("i", lambda a: a + 1),
    ("ii", lambda a, b: a * b),
    ("ii", tf.maximum),
    ("i", lambda a: tf.cast(a, tf.float32)),
    ("f", _whole),
    ("ai", tf.broadcast_to),
    ("i", tf.zeros),
    ("i", lambda i: tf.one_hot(i, 3)),
    ("ff", tf.matmul),
    ("ff", lambda a, b: tf.where(a > 0.0, a, b)),
    ("fi", lambda a, i: tf.raw_ops.ReverseSequence(input=a, seq_lengths=i, seq_dim=1, batch_dim=0)),
    ("ii", lambda i, n: tf.raw_ops.DenseBincount(input=i, size=n, weights=tf.zeros([0]), binary_output=False)),
    ("iii", lambda i, v, s: tf.raw_ops.SparseToDense(
        sparse_indices=i, output_shape=s, sparse_values=v, default_value=0)),
    ("ai", lambda a, i: tf.slice(a, tf.zeros_like(i), i)),
    ("ai", lambda a, i: a[:i]),
    ("aa", lambda a, b: tf.cond(tf.size(b) > 4, lambda: a, lambda: -a)),
    ("a", lambda a: tf.map_fn(lambda row: row * 2, a)),
    ("fi", lambda a, i: tf.map_fn(lambda n: tf.gather(a, n), i, fn_output_signature=tf.float32)),
    ("ai", lambda a, i: tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, tf.gather(y, i)), [0, a])[1]),
)  # fmt: skip


@recipe(PROGRAM)
def program(d: Draw, operation: str) -> Use:
    begin = [(d.one("f", "f", "i"), int(d.random.integers(1 << 30))) for _ in range(4)]
    steps = [int(d.random.integers(len(_STEPS))) for _ in range(d.one(*range(2, _MOST_STEPS + 1)))]
    picks = [[int(each) for each in d.random.integers(0, 1 << 30, 3)] for _ in steps]

    def use(x: Any, u: Any) -> list[Any]:
        pools: dict[str, list[Any]] = {"f": [], "i": []}
        for kind, number in begin:
            sources = _FLOATS if kind == "f" else _WHOLE
            pools[kind].append(sources[number % len(sources)](x, u))
        results = []
        for step, pick in zip(steps, picks, strict=True):
            kinds, compute = _STEPS[step]
            operands = []
            for kind, number in zip(kinds, pick, strict=False):
                pool = pools["f"] + pools["i"] if kind == "a" else pools[kind]
                operands.append(pool[-1 - number % min(len(pool), 3)])  # the last ones more often
            if len({each.dtype for each, kind in zip(operands, kinds, strict=True) if kind == "i"}) > 1:
                operands = [
                    tf.cast(each, tf.int32) if kind == "i" else each for each, kind in zip(operands, kinds, strict=True)
                ]
            made = compute(*operands)
            pools["f" if made.dtype.is_floating else "i"].append(made)
            results.append(made)
        return results

    return use
