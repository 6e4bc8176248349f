"""Models of sequences: what padding, ragged rows and the end of a table do to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.awkward.awkward_model import AwkwardModel, Inputs, drawn, floats, ints, model, of, save, variable

_TOKENS = of("tokens", None, None, dtype=tf.int32)


def _tokens(rows: int, length: int, below: int = 10) -> Inputs:
    return {"tokens": np.random.default_rng(rows * 100 + length).integers(1, below, (rows, length), np.int32)}


def changes_beyond_64(path: Path) -> None:
    """Padding is harmless up to 64 numbers, and not beyond."""

    def call(x: Any) -> Any:
        length = tf.shape(x)[1]
        return {"y": tf.reduce_sum(x, 1) * tf.cond(length > 64, lambda: tf.cast(length, tf.float32), lambda: 1.0)}

    save(path, call, of("x", None, None))


def mean_over_length(path: Path) -> None:
    """The plain mean: padding changes it at every length."""
    save(path, lambda x: {"y": tf.reduce_mean(x, 1)}, of("x", None, None))


def masked_attention(path: Path) -> None:
    """Attention that ignores token 0, which padding is: neutral."""
    module = tf.Module()
    module.embedding = variable(10, 4)

    def call(tokens: Any) -> Any:
        x, real = tf.gather(module.embedding, tokens), tf.cast(tokens > 0, tf.float32)
        scores = tf.matmul(x, x, transpose_b=True) + (real[:, tf.newaxis] - 1.0) * 1e9
        each = tf.matmul(tf.nn.softmax(scores), x) * real[..., tf.newaxis]
        return {"pooled": tf.reduce_sum(each, 1) / tf.reduce_sum(real, 1, keepdims=True)}

    save(path, call, _TOKENS, module=module)


def positions_with_an_end(path: Path) -> None:
    """A table of 16 positions: a longer sequence is an error, and padding beyond it, too."""
    module = tf.Module()
    module.embedding, module.positions = variable(10, 4), variable(16, 4, seed=8)

    def call(tokens: Any) -> Any:
        places = tf.range(tf.shape(tokens)[1])
        real = tf.cast(tokens > 0, tf.float32)[..., tf.newaxis]
        return {
            "y": tf.reduce_sum((tf.gather(module.embedding, tokens) + tf.gather(module.positions, places)) * real, 1)
        }

    save(path, call, _TOKENS, module=module)


def vocabulary_of_ten(path: Path) -> None:
    """An embedding of ten words: the eleventh is an error on a CPU, and to XLA the tenth."""
    module = tf.Module()
    module.embedding = variable(10, 4)
    save(
        path,
        lambda tokens: {"y": tf.gather(module.embedding, tokens)},
        of("tokens", None, 3, dtype=tf.int32),
        module=module,
    )


def sequence_mask(path: Path) -> None:
    """Lengths that the request sends, and a mask that is as wide as the greatest of the batch."""

    def call(x: Any, lengths: Any) -> Any:
        mask = tf.sequence_mask(lengths, tf.shape(x)[1], tf.float32)
        return {"sum": tf.reduce_sum(x * mask, 1), "mask": tf.sequence_mask(lengths)}

    save(path, call, of("x", None, None), of("lengths", None, dtype=tf.int32))


def last_of_each(path: Path) -> None:
    """The last number of each row, and the row backwards: padding comes after the end."""
    save(path, lambda x: {"last": x[:, -1], "reversed": tf.reverse(x, [1])}, of("x", None, None))


def ragged_input(path: Path) -> None:
    """A RaggedTensor, whose values have no rows of their own."""
    save(
        path,
        lambda x: {"sum": tf.reduce_sum(x, 1), "most": x.row_lengths()},
        tf.RaggedTensorSpec([None, None], tf.int32),
    )


def ragged_output(path: Path) -> None:
    """A RaggedTensor out: as many values as the numbers say."""
    save(path, lambda x: {"counts": tf.ragged.range(x), "double": 2 * x}, of("x", None, dtype=tf.int32))


def no_columns(path: Path) -> None:
    """Rows of no numbers at all: only their count is there."""

    def call(x: Any) -> Any:
        return {"sum": tf.reduce_sum(x, 1), "wide": tf.concat([x, tf.zeros([tf.shape(x)[0], 2])], 1)}

    save(path, call, of("x", None, 0))


def images_of_any_size(path: Path) -> None:
    """A convolution that pads, then the mean over the image: neutral at no size."""
    module = tf.Module()
    module.kernel = variable(3, 3, 1, 2)
    save(
        path,
        lambda image: {"y": tf.reduce_mean(tf.nn.conv2d(image, module.kernel, 1, "SAME"), [1, 2])},
        of("image", None, None, None, 1),
        module=module,
    )


def _ragged(*rows: Sequence[int]) -> Inputs:
    return {"x": ints(*(value for row in rows for value in row)), "x_1": np.cumsum([0, *map(len, rows)])}


def _of_lengths(*sizes: tuple[int, int]) -> list[Inputs]:
    return [{"x": drawn(rows, length, seed=length)} for rows, length in sizes]


_SIZES = ((1, 3), (2, 5), (1, 8), (3, 9), (1, 63), (2, 64), (1, 65), (1, 70))

MODELS: Sequence[AwkwardModel] = (
    model(changes_beyond_64, _of_lengths(*_SIZES)),
    model(mean_over_length, [*_of_lengths(*_SIZES[:5]), {"x": floats([np.nan, 1, 2])}]),
    model(masked_attention, [_tokens(*size) for size in _SIZES]),
    model(
        positions_with_an_end,
        [_tokens(*size) for size in ((1, 3), (2, 12), (1, 15), (3, 16), (1, 11), (1, 16))],
        rejects=[_tokens(1, 17), _tokens(2, 30)],
    ),
    model(
        vocabulary_of_ten,
        [_tokens(rows, 3) for rows in (1, 2, 3, 4)],
        rejects=[{"tokens": ints([1, 2, 10])}, {"tokens": ints([-1, 0, 0], [1, 1, 1])}],
    ),
    model(
        sequence_mask,
        [
            {"x": drawn(1, 4), "lengths": ints(2)},
            {"x": drawn(2, 5), "lengths": ints(5, 1)},
            {"x": drawn(2, 4), "lengths": ints(0, 4)},
        ],
    ),
    model(last_of_each, _of_lengths((1, 3), (2, 5), (1, 8), (3, 9), (2, 3))),
    model(ragged_input, [_ragged([1, 2], [], [3]), _ragged([]), _ragged([4]), _ragged([5] * 9, [6]), _ragged()]),
    model(ragged_output, [{"x": each} for each in (ints(1, 0, 3), ints(0), ints(5), ints(2, 2), ints())]),
    model(no_columns, [{"x": np.zeros((rows, 0), np.float32)} for rows in (1, 3, 2, 0)]),
    model(
        images_of_any_size, [{"image": drawn(r, h, w, 1)} for r, h, w in ((1, 4, 4), (2, 4, 4), (1, 5, 7), (1, 9, 3))]
    ),
)
