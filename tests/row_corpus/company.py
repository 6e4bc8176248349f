"""Rows that are compared with each other: attention, distances, segments, counts, draws, joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.doors import COUNTS, DATES, EXAMPLES, ID_DOOR, LINES, PLAIN, WORD_DOOR
from tests.row_corpus.row_case import WIDTH, RowCase, pair

#: Weights of a constant matrix.
_KEYS = [[0.5, -1.0, 0.0, 1.0], [1.0, 0.0, 2.0, -0.5], [0.0, 1.0, 1.0, 0.0]]


def _attention(x: Any, keys: Any) -> Any:
    return tf.nn.softmax(tf.matmul(x, keys, transpose_b=True)) @ keys


def _within(x: Any) -> Any:
    """Attention of a row's numbers among themselves."""
    each = x[:, :, None]
    return tf.matmul(tf.nn.softmax(tf.matmul(each, each, transpose_b=True)), each)[:, :, 0]


def _distances(x: Any, others: Any) -> Any:
    return tf.reduce_sum((x[:, None] - others[None]) ** 2, 2)


def _group(x: Any) -> Any:
    """The group of a row, by its first number."""
    return tf.cast(tf.abs(x[:, 0]), tf.int32) % 3


def _rows(x: Any) -> Any:
    return tf.shape(x)[0]


def _by_place(x: Any) -> Any:
    """A sum for each row of the row's own four numbers, by segments that are numbers of rows."""
    segments = tf.repeat(tf.range(_rows(x)), WIDTH)
    return tf.math.unsorted_segment_sum(tf.reshape(x, [-1]), segments, _rows(x))


def _share_of_the_group(x: Any) -> Any:
    sums = tf.math.unsorted_segment_sum(x, _group(x), 3)
    return x - tf.gather(sums, _group(x))


def _scatter_counts(x: Any) -> Any:
    group = _group(x)
    counts = tf.scatter_nd(group[:, None], tf.ones_like(x[:, 0]), [3])
    return tf.gather(counts, group)


def _scatter_place(x: Any) -> Any:
    return tf.scatter_nd(tf.range(_rows(x))[:, None], x, tf.shape(x)) * 2.0


def _bins(x: Any) -> Any:
    return x + tf.cast(tf.math.bincount(_group(x), minlength=WIDTH, maxlength=WIDTH), tf.float32)


def _own_bins(x: Any) -> Any:
    group = tf.cast(tf.abs(x), tf.int32) % 3
    return tf.math.bincount(group, minlength=3, maxlength=3, axis=-1)


def _stitched(x: Any) -> Any:
    """Rows go different ways, each comes back to its place."""
    side = tf.cast(x[:, 0] > 0.0, tf.int32)
    low, high = tf.dynamic_partition(x, side, 2)
    places = tf.dynamic_partition(tf.range(_rows(x)), side, 2)
    return tf.dynamic_stitch(places, [low * 2.0, high - 1.0])


def _partition_mean(x: Any) -> Any:
    side = tf.cast(x[:, 0] > 0.0, tf.int32)
    low, high = tf.dynamic_partition(x, side, 2)
    places = tf.dynamic_partition(tf.range(_rows(x)), side, 2)
    return tf.dynamic_stitch(places, [low - tf.reduce_sum(low, 0), high])


def _noise(x: Any) -> Any:
    """One stream for all rows: the second row's noise is not the first one's."""
    return x + tf.random.stateless_uniform(tf.shape(x), [3, 4])


def _same_noise(x: Any) -> Any:
    return x + tf.random.stateless_uniform([WIDTH], [3, 4])


def _joined(x: Any) -> Any:
    words = tf.strings.as_string(tf.cast(x[:, 0], tf.int32))
    return tf.strings.join([words, tf.fill([_rows(x)], tf.strings.reduce_join(words, 0, separator="+"))], "|")


def _joined_row(x: Any) -> Any:
    return tf.strings.reduce_join(tf.strings.as_string(tf.cast(x, tf.int32)), 1, separator="+")


CASES: Sequence[RowCase] = (
    *pair(
        "attention",
        EXAMPLES,
        lambda x: _attention(x, x),
        _within,
        "each row attends to all rows",
    ),
    *pair(
        "distances",
        ID_DOOR,
        lambda x: tf.reduce_min(_distances(x, x) + 100.0 * tf.eye(_rows(x)), 1),
        lambda x: tf.reduce_min(_distances(x, tf.constant(_KEYS)), 1),
        "the distance to the nearest row",
        "the distance to the nearest of constants",
    ),
    *pair(
        "similarities",
        PLAIN,
        lambda x: tf.einsum("ad,bd->ab", x, x),
        lambda x: tf.einsum("ad,kd->ak", x, tf.constant(_KEYS)),
        "an answer has a column for each row",
        "an answer has a column for each constant",
    ),
    *pair(
        "share_of_the_group",
        WORD_DOOR,
        _share_of_the_group,
        _by_place,
        "segments are values of rows",
        "segments are numbers of rows",
    ),
    *pair(
        "scattered",
        LINES,
        _scatter_counts,
        _scatter_place,
        "rows of a group are counted together",
        "each row is scattered to its own place",
    ),
    *pair("counted", COUNTS, _bins, _own_bins, "a histogram of all rows", "a histogram of each row"),
    *pair(
        "partitioned",
        DATES,
        _partition_mean,
        _stitched,
        "a part of the rows is added up",
        "dynamic_stitch brings each row back",
    ),
    *pair("noise", EXAMPLES, _noise, _same_noise, "draws of one stream, by the place of a row", "one draw for all"),
    *pair("words_of_all", ID_DOOR, _joined, _joined_row, "the words of all rows are joined"),
    *pair(
        "masked_and_counted",
        LINES,
        lambda x: x * tf.cast(_rows(tf.boolean_mask(x, x[:, 0] > 0.0)), tf.float32),
        lambda x: tf.where(x[:, :1] > 0.0, x, 0.0),
        "the number of rows that a mask leaves",
        "a mask within the row",
    ),
    *pair(
        "one_hot_of_the_largest",
        COUNTS,
        lambda x: tf.one_hot(tf.cast(x[:, 0], tf.int32), tf.cast(tf.reduce_max(x[:, 0]), tf.int32) + 1),
        lambda x: tf.one_hot(tf.cast(x[:, 0], tf.int32), 9),
        "as many columns as the largest number of any row",
        "nine columns",
    ),
    *pair(
        "confusion",
        WORD_DOOR,
        lambda x: tf.gather(tf.math.confusion_matrix(_group(x), _group(x), 3), _group(x)),
        lambda x: tf.gather(tf.constant(_KEYS), _group(x)),
        "a matrix of counts over rows",
        "a constant table",
    ),
    *pair(
        "solved_together",
        PLAIN,
        lambda x: x @ tf.linalg.inv(tf.matmul(x, x, transpose_a=True) + tf.eye(WIDTH)),
        lambda x: tf.linalg.solve(tf.linalg.diag(tf.abs(x) + 1.0), x[:, :, None])[:, :, 0],
        "one system of equations for all rows",
        "a system for each row",
    ),
)
