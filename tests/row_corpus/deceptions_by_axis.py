"""Deceptions from a table: operation by the place of the row axis, by the axis that it works on; and broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.deception import COLUMN, CUBE, MATRIX, NUMBERS, Deception

#: Keep their shape, work along an axis.
_ALONG: Mapping[str, Callable[[Any, int], Any]] = {
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "sum": lambda x, axis: x + tf.reduce_sum(x, axis, keepdims=True),
    "mean": lambda x, axis: x - tf.reduce_mean(x, axis, keepdims=True),
    "max": lambda x, axis: x - tf.reduce_max(x, axis, keepdims=True),
    "all": lambda x, axis: x * tf.cast(tf.reduce_all(x > 0.0, axis, keepdims=True), tf.float32),
    "euclidean": lambda x, axis: x / (1.0 + tf.math.reduce_euclidean_norm(x, axis, keepdims=True)),
    "cumsum": tf.cumsum,
    "cumsum_of_what_follows": lambda x, axis: tf.cumsum(x, axis, exclusive=True, reverse=True),
    "cumulative_logsumexp": tf.math.cumulative_logsumexp,
    "sort": tf.sort,
    "argsort": lambda x, axis: tf.argsort(x, axis, stable=True),
    "reverse": lambda x, axis: tf.reverse(x, [axis]),
    "roll": lambda x, axis: tf.roll(x, 1, axis),
    "first": lambda x, axis: x - tf.gather(x, [0], axis=axis),
    "split_and_joined": lambda x, axis: tf.concat(tf.split(x, [1, -1], axis)[::-1], axis),
    "shifted": lambda x, axis: tf.concat([tf.gather(x, [0], axis=axis), x], axis),
    "moments": lambda x, axis: x - tf.nn.moments(x, [axis], keepdims=True)[1],
}

#: Where the rows of x [rows, 2, 3] are put before the operation, and back behind it.
_PLACES: Mapping[str, tuple[Sequence[int], Sequence[int]]] = {
    "first": ((0, 1, 2), (0, 1, 2)),
    "middle": ((1, 0, 2), (1, 0, 2)),
    "last": ((1, 2, 0), (2, 0, 1)),
}

_PAIRWISE: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": tf.add,
    "multiply": tf.multiply,
    "greatest": tf.maximum,
    "equal": tf.equal,
    "squared_difference": tf.math.squared_difference,
    "where": lambda a, b: tf.where(a > 0.0, a, b),
    "divide": tf.math.divide_no_nan,
}

#: What of x [rows, 4] meets what.
_MEETS: Mapping[str, Callable[[Any], tuple[Any, Any]]] = {
    "column_and_column": lambda x: (x[:, :1], x[:, 1:2]),
    "column_and_row_of_rows": lambda x: (x[:, :1], x[:, 0]),
    "vector_and_vector": lambda x: (x[:, 0], x[:, 1]),
    "rank_3_and_rank_2": lambda x: (x[:, None, :], x),
    "rank_3_and_rank_2_behind": lambda x: (x[:, :, None], x),
    "rank_3_and_both": lambda x: (x[:, None, :], x[:, :, None]),
    "with_a_one_in_front": lambda x: (x[None], x),
    "transposed_and_vector": lambda x: (tf.transpose(x), x[:, 0]),
    "with_the_first": lambda x: (x, x[:1]),
}


def _along(place: str, axis: int, operation: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    there, back = _PLACES[place]
    return lambda x: tf.transpose(operation(tf.transpose(x, there), axis), back)


def _flat(axis: int, operation: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Rows and the next axis are one."""
    return lambda x: tf.reshape(operation(tf.reshape(x, [-1, 3]), axis), [-1, 2, 3])


def _meeting(meet: Callable[[Any], tuple[Any, Any]], operation: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: operation(*meet(x))


def _whole(x: Any) -> Mapping[str, Any]:
    """Reductions of x [rows, 4] to a vector, in ways that look alike."""
    return {
        "last": tf.reduce_sum(x, -1),
        "none_kept": tf.reduce_sum(x),
        "kept": tf.reduce_sum(x, [0, 1], keepdims=True),
        "by_negative": tf.reduce_sum(x, -2),
        "of_nothing": tf.reduce_sum(x, []),
    }


def _by_place() -> Iterator[Deception]:
    for name, operation in _ALONG.items():
        for place in _PLACES:
            for axis in range(3):
                yield CUBE(f"{name}_rows_{place}_axis_{axis}", _along(place, axis, operation))
        yield COLUMN(f"{name}_of_a_vector", lambda x, operation=operation: operation(x, -1))
    for name in sorted(_ALONG.keys() - {"shifted"}):  # which has more of them, so that they fit no more
        for axis in range(2):
            yield CUBE(f"{name}_rows_merged_axis_{axis}", _flat(axis, _ALONG[name]))


def _by_company() -> Iterator[Deception]:
    for name, pairwise in _PAIRWISE.items():
        for how, meet in _MEETS.items():
            yield MATRIX(f"{name}_{how}", _meeting(meet, pairwise))


def _of_integers() -> Iterator[Deception]:
    for axis in (0, 1, -1):
        yield NUMBERS(f"argmax_of_integers_{axis}", lambda x, axis=axis: tf.argmax(x, axis))
        yield NUMBERS(f"one_hot_at_{axis}", lambda x, axis=axis: tf.one_hot(x, 5, axis=axis))
        yield NUMBERS(f"stack_at_{axis}", lambda x, axis=axis: tf.stack([x, x + 1], axis))
        yield NUMBERS(f"repeat_at_{axis}", lambda x, axis=axis: tf.repeat(x, 2, axis))
        yield NUMBERS(f"joined_at_{axis}", lambda x, axis=axis: tf.concat([x, x], axis))


CASES: Sequence[Deception] = (
    *_by_place(),
    *_by_company(),
    *_of_integers(),
    MATRIX("reductions_in_one", _whole),
)
