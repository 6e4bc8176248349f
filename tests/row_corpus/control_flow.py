"""Loops, branches and functions within which rows see each other, and such in which they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.doors import COUNTS, DATES, EXAMPLES, ID_DOOR, JPEGS, LINES, PLAIN, WORD_DOOR
from tests.row_corpus.row_case import WIDTH, RowCase, pair


def _rows(x: Any) -> Any:
    return tf.shape(x)[0]


def _until_all(x: Any) -> Any:
    """All rows go on until the last is small."""
    return tf.while_loop(lambda y: tf.reduce_any(tf.abs(y) > 1.0), lambda y: [y / 2.0], [x])[0]


def _until_each(x: Any) -> Any:
    """A row that is small stays as it is."""
    return tf.while_loop(
        lambda y: tf.reduce_any(tf.abs(y) > 1.0), lambda y: [tf.where(tf.abs(y) > 1.0, y / 2.0, y)], [x]
    )[0]


def _steps(x: Any, *, own: bool) -> Any:
    """How many halvings: of all rows, or of the row."""

    def step(y: Any, steps: Any) -> Any:
        large = tf.reduce_any(tf.abs(y) > 1.0, 1)
        return tf.where(large[:, None], y / 2.0, y), steps + (tf.cast(large, tf.int32) if own else 1)

    zeros = tf.zeros_like(x[:, 0], tf.int32)
    return tf.while_loop(lambda y, _: tf.reduce_any(tf.abs(y) > 1.0), step, [x, zeros])[1]


def _carrying(x: Any) -> Any:
    """Each row is added to what was carried from the rows before."""
    return tf.scan(lambda total, row: total * 0.5 + row, x)


def _mapped(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.scan(lambda total, each: total * 0.5 + each, row), x)


def _map_with_neighbour(x: Any) -> Any:
    """map_fn over the numbers of rows; each looks at the row before, too."""
    return tf.map_fn(lambda i: x[i] - x[tf.maximum(i - 1, 0)], tf.range(_rows(x)), fn_output_signature=tf.float32)


def _map_by_number(x: Any) -> Any:
    return tf.map_fn(lambda i: x[i] - x[i, 0], tf.range(_rows(x)), fn_output_signature=tf.float32)


def _loop_over_rows(x: Any, *, carried: bool) -> Any:
    """A while over rows, written by hand; `carried`: the largest so far goes from row to row."""
    array = tf.TensorArray(tf.float32, _rows(x), element_shape=[WIDTH])

    def step(i: Any, best: Any, array: Any) -> Any:
        row = x[i]
        best = tf.maximum(best, row) if carried else best
        return i + 1, best, array.write(i, row - best)

    state = (0, tf.fill([WIDTH], -9.0), array)
    stacked = tf.while_loop(lambda i, *_: i < _rows(x), step, state)[2].stack()
    return tf.ensure_shape(stacked, [None, WIDTH])


def _loop_over_columns(x: Any, *, shared: bool) -> Any:
    """Time-major: a state for each row goes through the columns; `shared`: the state is made equal for all rows."""
    steps = tf.transpose(x)

    def step(t: Any, state: Any) -> Any:
        state = 0.5 * state + steps[t]
        return t + 1, tf.zeros_like(state) + tf.reduce_max(state) if shared else state

    return tf.while_loop(lambda t, _: t < WIDTH, step, (0, tf.zeros_like(x[:, 0])))[1]


def _if_any(x: Any) -> Any:
    return tf.cond(tf.reduce_any(x[:, 0] < 0.0), lambda: x * 10.0, lambda: x + 1.0)


def _if_of_each(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.cond(row[0] < 0.0, lambda: row * 10.0, lambda: row + 1.0), x)


def _if_many(x: Any) -> Any:
    """From three rows on another branch."""
    return tf.cond(_rows(x) > 2, lambda: x - tf.reduce_mean(x, 0), lambda: x * 1.0)


def _switched(x: Any) -> Any:
    return tf.switch_case(tf.cast(tf.abs(x[0, 0]), tf.int32) % 3, [lambda: x, lambda: x * 2.0, lambda: -x])


def _switched_each(x: Any) -> Any:
    def one(row: Any) -> Any:
        return tf.switch_case(tf.cast(tf.abs(row[0]), tf.int32) % 3, [lambda: row, lambda: row * 2.0, lambda: -row])

    return tf.map_fn(one, x)


@tf.function
def _inner(x: Any, axis: Any) -> Any:
    return x - tf.reduce_max(x, axis, keepdims=True)


@tf.function
def _middle(x: Any, axis: Any) -> Any:
    return _inner(x * 2.0, axis) + 1.0


@tf.function
def _outer(x: Any, axis: Any) -> Any:
    return _middle(x, axis) + _middle(-x, axis)


def _clusters(x: Any) -> Any:
    """Three rounds of k-means with two clusters of the call's rows."""
    centre = tf.stack([tf.reduce_min(x, 0), tf.reduce_max(x, 0)])
    for _ in range(3):
        nearest = tf.argmin(tf.reduce_sum((x[:, None] - centre) ** 2, 2), 1)
        centre = tf.math.divide_no_nan(
            tf.math.unsorted_segment_sum(x, nearest, 2),
            tf.math.unsorted_segment_sum(tf.ones_like(x), nearest, 2),
        )
    return tf.gather(centre, nearest)


def _nearest_of_two(x: Any) -> Any:
    centre = tf.constant([[-2.0] * WIDTH, [2.0] * WIDTH])
    nearest = tf.argmin(tf.reduce_sum((x[:, None] - centre) ** 2, 2), 1)
    return tf.gather(centre, nearest)


CASES: Sequence[RowCase] = (
    *pair(
        "until_all_are_small",
        EXAMPLES,
        lambda x: _until_all(x**3),
        lambda x: _until_each(x**3),
        "a small row is halved as long as another is large",
        "a row that is done stays as it is",
    ),
    *pair(
        "steps_counted",
        LINES,
        lambda x: _steps(x**3, own=False),
        lambda x: _steps(x**3, own=True),
        "the steps of the slowest row",
        "a row's own steps",
    ),
    *pair("carried_by_scan", DATES, _carrying, _mapped, "a state goes from row to row", "a state goes along a row"),
    *pair(
        "mapped_with_the_neighbour",
        ID_DOOR,
        _map_with_neighbour,
        _map_by_number,
        "each row looks at the one before",
        "each number looks at its own row",
    ),
    *pair(
        "carried_by_while",
        WORD_DOOR,
        lambda x: _loop_over_rows(x, carried=True),
        lambda x: _loop_over_rows(x, carried=False),
        "the largest so far goes from row to row",
        "what is carried stays as it was",
    ),
    *pair(
        "steps_of_time",
        COUNTS,
        lambda x: _loop_over_columns(x, shared=True),
        lambda x: _loop_over_columns(x, shared=False),
        "a state is the largest of all rows",
        "a state for each row",
    ),
    *pair("branch_if_any", EXAMPLES, _if_any, _if_of_each, "one branch for all rows", "a branch for each row"),
    *pair(
        "branch_if_many",
        PLAIN,
        _if_many,
        lambda x: tf.cond(tf.shape(x)[1] > 2, lambda: x - tf.reduce_mean(x, 1, keepdims=True), lambda: x * 1.0),
        "from three rows on they see each other",
        "the number of columns decides",
    ),
    *pair("branch_of_the_first", JPEGS, _switched, _switched_each, "the first row chooses for all", "each row chooses"),
    *pair(
        "functions_in_functions",
        LINES,
        lambda x: _outer(x, tf.constant(0)),
        lambda x: _outer(x, tf.constant(1)),
        "the innermost of three functions takes a maximum over rows",
    ),
    *pair("clusters", WORD_DOOR, _clusters, _nearest_of_two, "clusters of the call's rows", "constant clusters"),
)
