"""Models whose path, cost or refusal depends on values or on the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.awkward.awkward_model import COLUMN, AwkwardModel, floats, ints, model, of, save

_NUMBERS = [{"x": each} for each in (floats(1, 2), floats(3), floats(0.5, 9, 27), floats(64), floats(6, 7))]

#: Infinity never becomes small.
_MOST_STEPS = 150


def halved_until_small(path: Path) -> None:
    """A loop that ends when every row is small: each row's steps are counted for itself."""

    def call(x: Any) -> Any:
        def step(value: Any, steps: Any) -> Any:
            large = value > 1.0
            return tf.where(large, value / 2.0, value), steps + tf.cast(large, tf.int32)

        zero = tf.zeros_like(x, tf.int32)
        large = lambda value, _: tf.reduce_any(value > 1.0)  # noqa: E731 - a model of one line
        value, steps = tf.while_loop(large, step, (x, zero), maximum_iterations=_MOST_STEPS)
        return {"value": value, "steps": steps}

    save(path, call, of("x", None))


def steps_of_the_batch(path: Path) -> None:
    """The same loop, but all rows go on until the last is done: rows see each other through control flow."""

    def call(x: Any) -> Any:
        large, halve = lambda value: tf.reduce_any(value > 1.0), lambda value: value / 2.0
        return {"y": tf.while_loop(large, halve, (x,), maximum_iterations=_MOST_STEPS)[0]}

    save(path, call, of("x", None))


def steps_of_the_row(path: Path) -> None:
    """A loop to the largest number of the batch, in which a mask ends each row's own steps: minus infinity times that
    mask is NaN where other rows have more steps."""

    def call(x: Any) -> Any:
        own = tf.clip_by_value(tf.where(tf.math.is_nan(x), 1.0, x), 1.0, 9.0)
        most = tf.reduce_max(own)

        def step(done: Any, total: Any) -> Any:
            return done + 1.0, total + x * tf.cast(done < own, tf.float32)

        total = tf.while_loop(lambda done, _: done < most, step, (0.0, tf.zeros_like(x)))[1]
        return {"y": total}

    save(path, call, of("x", None))


def any_row_decides(path: Path) -> None:
    """tf.cond by whether any row is negative."""

    def call(x: Any) -> Any:
        return {"y": tf.cond(tf.reduce_any(x < 0.0), lambda: x * 10.0, lambda: x + 1.0)}

    save(path, call, of("x", None))


def each_row_decides(path: Path) -> None:
    """tf.cond within tf.map_fn: each row takes its own branch."""

    def one(x: Any) -> Any:
        return tf.cond(x < 0.0, lambda: x * 10.0, lambda: x + 1.0)

    save(path, lambda x: {"y": tf.map_fn(one, x)}, of("x", None))


def rejects_negatives(path: Path) -> None:
    """An assertion over the whole batch: the request with the bad row fails, no other."""

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x, "x must not be negative")]):
            return {"y": 2.0 * x}

    save(path, call, of("x", None))


def rejects_zeros(path: Path) -> None:
    """Warm-up and padding with zeros would fail."""

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_none_equal(x, 0.0, message="x must not be zero")]):
            return {"y": 1.0 / x}

    save(path, call, of("x", None))


def fails_with_four_rows(path: Path) -> None:
    """It takes three rows in a call: requests of up to three share calls of three."""

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.shape(x)[0] < 4, ["too many rows"])]):
            return {"y": x + 1.0}

    save(path, call, of("x", None))


def slow(path: Path) -> None:
    """A call takes a quarter of a second or so, whatever its size, if the request says so."""

    def call(x: Any, steps: Any) -> Any:
        def step(count: Any, value: Any) -> Any:
            return count + 1, tf.linalg.matmul(value, value) / 32.0

        most = tf.reduce_max(tf.concat([steps, [0]], 0))
        _, value = tf.while_loop(lambda count, _: count < most, step, (0, tf.ones([32, 32])), parallel_iterations=1)
        return {"y": x * value[0, 0]}

    save(path, call, of("x", None), of("steps", None, dtype=tf.int32))


MODELS: Sequence[AwkwardModel] = (
    model(halved_until_small, _NUMBERS),
    model(steps_of_the_batch, _NUMBERS),
    model(steps_of_the_row, [*_NUMBERS, *COLUMN, {"x": floats(-np.inf)}, {"x": floats(-np.inf, 3)}]),
    model(any_row_decides, COLUMN),
    model(each_row_decides, COLUMN),
    model(rejects_negatives, _NUMBERS, rejects=[{"x": floats(-1)}, {"x": floats(1, -1)}]),
    model(rejects_zeros, _NUMBERS, rejects=[{"x": floats(0)}, {"x": floats(1, 0)}]),
    model(fails_with_four_rows, _NUMBERS),
    model(slow, [{"x": floats(1, 2), "steps": ints(0, 5)}, {"x": floats(3), "steps": ints(2_000)}]),
)
