"""Models whose answer to a row depends on the other rows of its call: the right answer is that of the request alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.awkward.awkward_model import COLUMN, AwkwardModel, drawn, floats, ints, model, of, save, texts, variable

_ROWS = [{"x": drawn(rows, 3, seed=rows)} for rows in (1, 2, 3, 5, 1, 4)]


def less_the_mean(path: Path) -> None:
    """x less the mean of the batch."""
    save(path, lambda x: {"y": x - tf.reduce_mean(x)}, of("x", None))


def batch_norm_in_training(path: Path) -> None:
    """A network that was exported in training mode, so that batch normalisation takes the batch's own moments."""
    module = tf.Module()
    module.kernel = variable(3, 4)

    def call(x: Any) -> Any:
        hidden = x @ module.kernel
        mean, variance = tf.nn.moments(hidden, [0])
        return {"y": tf.nn.batch_normalization(hidden, mean, variance, None, None, 1e-3)}

    save(path, call, of("x", None, 3), module=module)


def attention_over_rows(path: Path) -> None:
    """Each row attends to all rows of its batch."""
    save(path, lambda x: {"y": tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x}, of("x", None, 3))


def softmax_over_the_batch(path: Path) -> None:
    """Softmax along the wrong axis."""
    save(path, lambda x: {"y": tf.nn.softmax(x, axis=0)}, of("x", None, 3))


def running_sum(path: Path) -> None:
    """Rows see the rows before them: padding at the end is harmless, company is not."""
    save(path, lambda x: {"y": tf.cumsum(x)}, of("x", None))


def sorted_batch(path: Path) -> None:
    """The rows of a batch change places."""
    save(path, lambda x: {"y": tf.sort(x)}, of("x", None))


def first_row_decides(path: Path) -> None:
    """All rows are compared with the first: in a batch only the first request is right."""
    save(path, lambda x: {"first": tf.equal(x, x[:1])}, of("x", None))


def rows_of_the_batch(path: Path) -> None:
    """Each row is told the number of rows."""
    save(path, lambda x: {"rows": tf.fill(tf.shape(x), tf.shape(x)[0])}, of("x", None))


def only_large_batches_differ(path: Path) -> None:
    """From five rows on a row sees its neighbours: a probe of two rows finds nothing."""

    def call(x: Any) -> Any:
        rows = tf.shape(x)[0]
        return {"y": tf.cond(rows > 4, lambda: x - tf.reduce_max(x), lambda: x * 1.0)}

    save(path, call, of("x", None))


def duplicates_in_the_batch(path: Path) -> None:
    """Is this text the first of its kind in the batch?"""

    def call(word: Any) -> Any:
        _, at = tf.unique(word)
        rows = tf.range(tf.shape(at)[0])
        firsts = tf.math.unsorted_segment_min(rows, at, tf.shape(at)[0])
        return {"first": tf.equal(tf.gather(firsts, at), rows)}

    save(path, call, of("word", None, dtype=tf.string))


def unique_of_the_batch(path: Path) -> None:
    """The output's rows are as many as there are different inputs."""
    save(path, lambda x: {"y": tf.unique(x)[0]}, of("x", None, dtype=tf.int32))


def only_positive_rows(path: Path) -> None:
    """tf.boolean_mask over rows: the output has fewer rows than came."""
    save(path, lambda x: {"y": tf.boolean_mask(x, x > 0), "at": tf.where(x > 0)}, of("x", None))


_NUMBERS = [{"x": each} for each in (ints(1, 1, 2), ints(3), ints(2, 1), ints(7, 7, 7, 7), ints(1))]
_WORDS = [{"word": each} for each in (texts(b"a", b"b", b"a"), texts(b"a"), texts(b"", b""), texts(b"b", b"a"))]
_ORDERED = [{"x": each} for each in (floats(3, 1, 2), floats(0), floats(9, -9), floats(5, 4, 3, 2))]

MODELS: Sequence[AwkwardModel] = (
    model(less_the_mean, COLUMN),
    model(batch_norm_in_training, [*_ROWS, {"x": np.zeros((2, 3), np.float32)}]),
    model(attention_over_rows, _ROWS),
    model(softmax_over_the_batch, _ROWS),
    model(running_sum, COLUMN),
    model(sorted_batch, _ORDERED),
    model(first_row_decides, COLUMN),
    model(rows_of_the_batch, COLUMN),
    model(only_large_batches_differ, COLUMN),
    model(duplicates_in_the_batch, _WORDS),
    model(unique_of_the_batch, _NUMBERS),
    model(only_positive_rows, _ORDERED),
)
