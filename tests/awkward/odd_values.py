"""Models that treat NaN, infinities, bounds and rare types in ways that compilers change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.awkward.awkward_model import COLUMN, AwkwardModel, Inputs, drawn, floats, ints, model, of, save

NAN, INF = np.nan, np.inf

#: Rows of four numbers.
_WIDE: Sequence[Inputs] = (
    {"x": drawn(3, 4)},
    {"x": floats([NAN, 1, 2, 3])},
    {"x": floats([1, 2, NAN, 3], [NAN, NAN, NAN, NAN], [INF, -INF, 0, 1])},
    {"x": floats([-1, -2, -3, -4], [-0.0, 0.0, 1e-40, -1e-40])},
    {"x": floats([3e38, 3e38, -3e38, 1], [INF, INF, 1, NAN])},
    {"x": np.zeros((0, 4), np.float32)},
)


def extremes(path: Path) -> None:
    """max, min and their places, where NaN is among the numbers."""

    def call(x: Any) -> Any:
        return {
            "max": tf.reduce_max(x, 1),
            "min": tf.reduce_min(x, 1),
            "argmax": tf.argmax(x, 1),
            "argmin": tf.argmin(x, 1),
        }

    save(path, call, of("x", None, 4))


def pooled(path: Path) -> None:
    """Max pooling, which is no reduction to a compiler."""
    save(path, lambda x: {"y": tf.nn.max_pool1d(x[..., tf.newaxis], 2, 2, "VALID")}, of("x", None, 4))


def top_two(path: Path) -> None:
    """The two greatest and their places."""

    def call(x: Any) -> Any:
        values, at = tf.math.top_k(x, 2)
        return {"values": values, "at": at}

    save(path, call, of("x", None, 4))


def softmax(path: Path) -> None:
    """exp(x - max(x)) / sum: infinity less infinity."""
    save(path, lambda x: {"y": tf.nn.softmax(x), "log": tf.nn.log_softmax(x)}, of("x", None, 4))


def clipped(path: Path) -> None:
    """clip, relu, sign, minimum and maximum with NaN on either side."""

    def call(x: Any) -> Any:
        return {
            "clipped": tf.clip_by_value(x, -1.0, 1.0),
            "relu": tf.nn.relu(x),
            "relu6": tf.nn.relu6(x),
            "sign": tf.sign(x),
            "least": tf.minimum(x, 0.5),
            "most": tf.maximum(0.5, x),
        }

    save(path, call, of("x", None))


def compared(path: Path) -> None:
    """Which branch of tf.where a NaN takes; x / x, x - x and x * 0 are no constants."""

    def call(x: Any) -> Any:
        return {
            "branch": tf.where(x > 0.0, 1.0, -1.0),
            "one": x / x,
            "zero": x - x,
            "none": x * 0.0,
            "odd": tf.math.is_nan(x),
        }

    save(path, call, of("x", None))


def divided(path: Path) -> None:
    """Division by zero, and functions at the border of where they are defined."""

    def call(x: Any) -> Any:
        return {"inverse": 1.0 / x, "root": tf.sqrt(x), "log": tf.math.log(x), "power": tf.pow(x, 0.5)}

    save(path, call, of("x", None))


def divided_integers(path: Path) -> None:
    """Division of whole numbers by zero is an error of the model: the request that does it fails, no other."""
    save(path, lambda a, b: {"y": a // b, "rest": a % b}, of("a", None, dtype=tf.int32), of("b", None, dtype=tf.int32))


def integer_bounds(path: Path) -> None:
    """Whole numbers that overflow, and shifts."""

    def call(x: Any) -> Any:
        return {"more": x + 1, "twice": x * 2, "less": -x, "absolute": abs(x), "shifted": tf.bitwise.right_shift(x, 1)}

    save(path, call, of("x", None, dtype=tf.int32))


def rare_types(path: Path) -> None:
    """int8, uint64, bool, half and bfloat16, all in one request."""

    def call(tiny: Any, large: Any, flag: Any, half: Any, brain: Any) -> Any:
        return {
            "tiny": tiny + tf.constant(1, tf.int8),
            "large": large + tf.constant(1, tf.uint64),
            "flag": tf.logical_not(flag),
            "half": half * tf.constant(2, tf.half),
            "brain": brain * tf.constant(2, tf.bfloat16),
        }

    types = {"tiny": tf.int8, "large": tf.uint64, "flag": tf.bool, "half": tf.half, "brain": tf.bfloat16}
    save(path, call, *(of(name, None, dtype=dtype) for name, dtype in types.items()))


def complex_numbers(path: Path) -> None:
    """A type that most protocols cannot carry, inside: it comes and goes as two real ones."""

    def call(real: Any, imaginary: Any) -> Any:
        spectrum = tf.signal.fft(tf.complex(real, imaginary))
        return {"real": tf.math.real(spectrum), "size": tf.abs(spectrum)}

    save(path, call, of("real", None, 4), of("imaginary", None, 4))


def doubles(path: Path) -> None:
    """float64 that a detour through float32 would round."""
    save(path, lambda x: {"y": x + tf.constant(1e-12, tf.float64)}, of("x", None, dtype=tf.float64))


def sorted_within_rows(path: Path) -> None:
    """Sorting with NaN, and the order among equals."""
    save(
        path,
        lambda x: {"values": tf.sort(x, 1), "order": tf.argsort(x, 1, stable=True)},
        of("x", None, 4),
    )


def _rare(rows: int) -> Inputs:
    return {
        "tiny": np.resize(np.array([-128, 126, 0], np.int8), rows),
        "large": np.resize(np.array([2**64 - 1, 2**53 + 1, 0], np.uint64), rows),
        "flag": np.resize([True, False, False], rows),
        "half": np.resize(np.array([65504, -0.5, NAN, 6e-8], np.float16), rows),
        "brain": np.resize(np.array([1e38, -0.5, INF, 3], ml_dtypes.bfloat16), rows),
    }


_INT_BOUNDS = [{"x": each} for each in (ints(2**31 - 1), ints(-(2**31), 0, 1), ints(-1, 2**30), ints())]

MODELS: Sequence[AwkwardModel] = (
    model(extremes, _WIDE),
    model(pooled, _WIDE),
    model(top_two, _WIDE),
    model(softmax, _WIDE),
    model(clipped, COLUMN),
    model(compared, COLUMN),
    # Without denormal numbers: TensorFlow's own answer to them depends on their place in a vector register.
    model(divided, [*COLUMN[:4], {"x": floats(INF, -INF, 1e30, -1.0)}]),
    model(
        divided_integers,
        [{"a": ints(7, -7), "b": ints(2, 2)}, {"a": ints(-9), "b": ints(4)}, {"a": ints(1, 2, 3), "b": ints(1, 2, 3)}],
        rejects=[{"a": ints(1), "b": ints(0)}, {"a": ints(1, 2), "b": ints(1, 0)}],
    ),
    model(integer_bounds, _INT_BOUNDS),
    model(rare_types, [_rare(rows) for rows in (1, 4, 3, 0, 2)]),
    model(complex_numbers, [{"real": drawn(r, 4), "imaginary": drawn(r, 4, seed=2)} for r in (1, 2, 3, 5)]),
    model(doubles, [{"x": np.array(each)} for each in ([1.0], [1e-300, 1 / 3], [NAN, 1e308, INF])]),
    model(sorted_within_rows, _WIDE[:4]),
)
