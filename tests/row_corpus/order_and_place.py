"""Order, rank, running totals, places and neighbours of rows, and the same within each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.doors import COUNTS, DATES, EXAMPLES, ID_DOOR, JPEGS, LINES, PLAIN, WORD_DOOR
from tests.row_corpus.row_case import WIDTH, RowCase, pair


def _ranks(x: Any, axis: int) -> Any:
    return tf.argsort(tf.argsort(x, axis, stable=True), axis, stable=True)


def _firsts(x: Any) -> Any:
    """The number of each row's first value among the different ones."""
    return tf.unique(x[:, 0])[1]


def _rows(x: Any) -> Any:
    return tf.shape(x)[0]


CASES: Sequence[RowCase] = (
    *pair("sorted", LINES, lambda x: tf.sort(x, 0), lambda x: tf.sort(x, 1), "rows change places"),
    *pair("ranks", EXAMPLES, lambda x: _ranks(x, 0), lambda x: _ranks(x, 1), "the rank among rows"),
    *pair(
        "best_of_all",
        DATES,
        lambda x: x - tf.math.top_k(tf.transpose(x), 1).values[:, 0],
        lambda x: x - tf.math.top_k(x, 1).values,
        "the best of all rows",
    ),
    *pair(
        "best_row",
        COUNTS,
        lambda x: tf.equal(tf.range(_rows(x))[:, None], tf.argmax(x, 0, tf.int32)),
        lambda x: tf.equal(tf.range(WIDTH), tf.argmax(x, 1, tf.int32)[:, None]),
        "the place of the best row",
    ),
    *pair(
        "number_of_the_value",
        ID_DOOR,
        _firsts,
        lambda x: tf.gather(*tf.unique(x[:, 0])[:2]),
        "Unique numbers values by their first row",
        "a value that is found by its own number is itself",
    ),
    *pair("running_sum", EXAMPLES, lambda x: tf.cumsum(x, 0), lambda x: tf.cumsum(x, 1), "rows before are added"),
    *pair(
        "running_product",
        COUNTS,
        lambda x: tf.math.cumprod(x / 4.0, 0, reverse=True),
        lambda x: tf.math.cumprod(x / 4.0, 1, reverse=True),
        "rows behind are multiplied",
    ),
    *pair("reversed", LINES, lambda x: tf.reverse(x, [0]), lambda x: tf.reverse(x, [1]), "rows change places"),
    *pair("rolled", WORD_DOOR, lambda x: tf.roll(x, 1, 0), lambda x: tf.roll(x, 1, 1), "the last row comes first"),
    *pair(
        "less_the_first",
        JPEGS,
        lambda x: x - x[0],
        lambda x: x - x[:, :1],
        "all rows are compared with the first",
    ),
    *pair(
        "less_the_last",
        DATES,
        lambda x: x - x[-1:],
        lambda x: x - x[:, -1:],
        "all rows are compared with the last",
    ),
    *pair(
        "row_of_a_constant",
        PLAIN,
        lambda x: x + tf.gather(x, [0]),
        lambda x: x + tf.gather(x, [0], axis=1),
        "a gather of one row",
    ),
    *pair(
        "change_since_the_last_row",
        ID_DOOR,
        lambda x: x - tf.concat([tf.zeros([1, WIDTH]), x[:-1]], 0),
        lambda x: x - tf.concat([tf.zeros_like(x[:, :1]), x[:, :-1]], 1),
        "each row and the one before",
    ),
    *pair(
        "how_many_rows",
        EXAMPLES,
        lambda x: x / tf.cast(_rows(x), tf.float32),
        lambda x: x / tf.cast(tf.shape(x)[1], tf.float32),
        "the number of rows is a value",
    ),
    *pair(
        "place_of_the_row",
        WORD_DOOR,
        lambda x: x + tf.cast(tf.range(_rows(x)), tf.float32)[:, None],
        lambda x: x + tf.cast(tf.range(tf.shape(x)[1]), tf.float32),
        "the place of a row is a value",
    ),
    *pair(
        "every_second_row",
        LINES,
        lambda x: tf.repeat(x[::2], 2, 0)[: _rows(x)],
        lambda x: tf.repeat(x[:, ::2], 2, 1),
        "a row stands for its neighbour",
    ),
    *pair(
        "reversed_sequence",
        COUNTS,
        lambda x: tf.reverse_sequence(x, tf.fill([WIDTH], _rows(x)), seq_axis=0, batch_axis=1),
        lambda x: tf.reverse_sequence(x, tf.cast(x[:, 0], tf.int32) % WIDTH + 1, seq_axis=1, batch_axis=0),
        "a sequence over rows is reversed",
    ),
    *pair(
        "among_the_top",
        DATES,
        lambda x: tf.math.in_top_k(tf.zeros([WIDTH], tf.int32), tf.transpose(x), 1)[None] | (x > 1e9),
        lambda x: tf.math.in_top_k(tf.zeros(_rows(x)[None], tf.int32), x, 2),
        "whether the first row is the best",
    ),
    *pair(
        "median",
        PLAIN,
        lambda x: x - tf.sort(x, 0)[_rows(x) // 2],
        lambda x: x - tf.sort(x, 1)[:, WIDTH // 2, None],
        "the median of rows",
    ),
    *pair(
        "convolved",
        JPEGS,
        lambda x: tf.nn.conv1d(x[None], tf.ones([3, WIDTH, 2]), 1, "SAME")[0],
        lambda x: tf.nn.conv1d(x[:, :, None], tf.ones([3, 1, 2]), 1, "SAME"),
        "rows are the steps of a convolution",
        "columns are its steps",
    ),
)
