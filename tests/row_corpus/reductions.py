"""Sums, means, extremes and normalisations over rows, and the same along each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.doors import COUNTS, DATES, EXAMPLES, ID_DOOR, JPEGS, LINES, PLAIN, WORD_DOOR
from tests.row_corpus.row_case import WIDTH, RowCase, pair


def _row_wise(x: Any) -> Any:
    """Means and deviations of each row."""
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)


def _batch_wise(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)


def _fused(x: Any, *, training: bool) -> Any:
    ones = tf.ones([WIDTH])
    image = tf.reshape(x, [-1, 1, 1, WIDTH])
    moments = {} if training else {"mean": 2.0 * ones, "variance": 3.0 * ones}
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(image, ones, ones, is_training=training, **moments)
    return tf.reshape(y, [-1, WIDTH])


def _standard(x: Any, axis: int) -> Any:
    return (x - tf.reduce_mean(x, axis, keepdims=True)) / (tf.math.reduce_std(x, axis, keepdims=True) + 0.5)


def _scaled(x: Any, axis: int) -> Any:
    least, most = (reduce(x, axis, keepdims=True) for reduce in (tf.reduce_min, tf.reduce_max))
    return (x - least) / (most - least + 1.0)


def _range_of_all(x: Any) -> Any:
    return tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0, range_given=False)


def _range_given(x: Any) -> Any:
    return tf.quantization.quantize_and_dequantize_v2(x, -2000.0, 2000.0, range_given=True)


CASES: Sequence[RowCase] = (
    *pair(
        "softmax_over_rows",
        EXAMPLES,
        lambda x: tf.nn.softmax(x, axis=0),
        lambda x: tf.nn.softmax(x, axis=1),
        "softmax along axis 0",
    ),
    *pair(
        "share_of_the_sum",
        ID_DOOR,
        lambda x: x / (tf.reduce_sum(tf.abs(x), 0) + 1.0),
        lambda x: x / (tf.reduce_sum(tf.abs(x), 1, keepdims=True) + 1.0),
        "a sum over rows",
    ),
    *pair(
        "less_the_mean",
        LINES,
        lambda x: x - tf.reduce_mean(x, 0),
        lambda x: x - tf.reduce_mean(x, 1, keepdims=True),
        "a mean over rows",
    ),
    *pair(
        "scaled_to_the_extremes",
        DATES,
        lambda x: _scaled(x, 0),
        lambda x: _scaled(x, 1),
        "a minimum and a maximum over rows",
    ),
    *pair(
        "standard_deviations",
        COUNTS,
        lambda x: _standard(x, 0),
        lambda x: _standard(x, 1),
        "a mean and a deviation over rows",
    ),
    *pair("moments", WORD_DOOR, _batch_wise, _row_wise, "batch normalisation by the batch's own moments"),
    *pair(
        "fused_batch_norm",
        JPEGS,
        lambda x: _fused(x, training=True),
        lambda x: _fused(x, training=False),
        "FusedBatchNorm in training takes the moments of the batch",
        "trained moments",
    ),
    *pair(
        "log_sum_exp",
        DATES,
        lambda x: x - tf.reduce_logsumexp(x, 0),
        lambda x: x - tf.reduce_logsumexp(x, 1, keepdims=True),
        "a sum of exponentials over rows",
    ),
    *pair(
        "unit_length",
        ID_DOOR,
        lambda x: tf.math.l2_normalize(x + 0.25, 0),
        lambda x: tf.math.l2_normalize(x + 0.25, 1),
        "lengths of columns",
    ),
    *pair(
        "product_of_all",
        COUNTS,
        lambda x: x * tf.reduce_prod(x[:, :1] / 4.0),
        lambda x: x * tf.reduce_prod(x / 4.0, 1, keepdims=True),
        "a product of all rows",
    ),
    *pair(
        "norm_of_all",
        PLAIN,
        lambda x: x / (tf.norm(x) + 1.0),
        lambda x: x / (tf.norm(x, axis=1, keepdims=True) + 1.0),
        "the norm of the whole tensor",
    ),
    *pair(
        "any_row",
        LINES,
        lambda x: x + tf.cast(tf.reduce_any(x > 3.0, 0), tf.float32),
        lambda x: x + tf.cast(tf.reduce_any(x > 3.0, 1, keepdims=True), tf.float32),
        "any over rows",
    ),
    *pair(
        "quantised_by_the_range",
        EXAMPLES,
        lambda x: _range_of_all(x * 1.37),
        lambda x: _range_given(x * 1.37),
        "QuantizeAndDequantize takes the range of the whole tensor",
        "the range is given",
    ),
    *pair(
        "clipped_by_the_norm",
        WORD_DOOR,
        lambda x: tf.clip_by_norm(x, 5.0),
        lambda x: tf.clip_by_norm(x, 5.0, axes=[1]),
        "the norm of the whole tensor",
    ),
    *pair(
        "whitened",
        PLAIN,
        lambda x: x @ tf.matmul(x, x, transpose_a=True),
        lambda x: x @ tf.constant([[0.0, 1.0, 0.0, 0.5]] * WIDTH),
        "x'x sums over rows",
        "a constant matrix",
    ),
)
