"""Draws operands: functions of the inputs `x` [rows, 16] and `u` [rows, width], or constants.

A shape is a list of sizes; `ROWS_AXIS`, or `Several` of it, stands for the axis of the rows, at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

#: The inputs of all uses.
COLUMNS, WIDTH = 16, 4

WORDS = [b"", b"a", b"b c", b"A1", b"12", b"7", b"-1.5", b"a b c", b"\xc3\xa9", b"0", b"YQ", b"c,d"]


class Several(NamedTuple):
    """The axis of the rows, laid out as [outer, rows, block]."""

    outer: int = 1
    block: int = 1


ROWS_AXIS = Several()

Shape = list[int | Several]


class Operand:
    """A tensor once the inputs are known."""

    def __init__(self, make: Callable[[Any, Any], Any]) -> None:
        self.make = make


Use = Callable[[Any, Any], list[Any]]


def made(value: Any, x: Any, u: Any) -> Any:
    if isinstance(value, Operand):
        return value.make(x, u)
    return [made(each, x, u) for each in value] if isinstance(value, list) else value


class Draw:
    """What a use is made of, by chance."""

    def __init__(self, seed: Any) -> None:
        self.random = np.random.default_rng(seed)

    def one(self, *options: Any) -> Any:
        return options[self.random.integers(len(options))]

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def sizes(self, rank: int) -> list[int]:
        return [int(each) for each in self.random.choice([1, 2, 3, 4, 4], rank)]

    def axis(self, shape: Shape) -> int:
        """Any axis, counted from the front or from the back; mostly not that of the rows."""
        others = [n for n, each in enumerate(shape) if not isinstance(each, Several)]
        if not shape:
            return 0
        found = self.one(*others) if others and self.chance(0.7) else int(self.random.integers(len(shape)))
        return found - len(shape) if self.chance(0.3) else found

    def axes(self, shape: Shape) -> list[int]:
        skips = self.chance(0.7)
        found = [n for n, each in enumerate(shape) if self.chance(0.5) and not (skips and isinstance(each, Several))]
        return [each - len(shape) if self.chance(0.3) else each for each in found]

    def new_axis(self, shape: Shape) -> int:
        """A place for one axis more."""
        return int(self.random.integers(-len(shape) - 1, len(shape) + 1))

    def shape(self, low: int = 1, high: int = 4, rows: float = 0.85) -> Shape:
        """Mostly with rows: at axis 0 more often than at others."""
        shape: Shape = list(self.sizes(int(self.random.integers(low, high + 1))))
        if shape and self.chance(rows):
            shape[0 if self.chance(0.6) else self.random.integers(len(shape))] = self.rows_axis()
        return shape

    def rows_axis(self) -> Several:
        return ROWS_AXIS if self.chance(0.8) else self.one(Several(2), Several(1, 2), Several(2, 2))

    def beside(self, shape: Shape) -> Shape:
        """A shape that broadcasts with `shape`: the same, with ones, without the first axes, or mistaken."""
        other = [1 if self.chance(0.2) else each for each in shape]
        if self.chance(0.3):
            other = other[int(self.random.integers(len(other) + 1)) :]
        if self.chance(0.15):
            other = [self.one(1, 2, 4) if isinstance(each, Several) else each for each in other]
        if other and self.chance(0.08):
            place = self.random.integers(len(other))
            other = [
                ROWS_AXIS if n == place else 4 if isinstance(each, Several) else each for n, each in enumerate(other)
            ]
        return other

    # --- operands ---

    def tensor(self, shape: Sequence[int | Several], dtype: Any = tf.float32, **limits: Any) -> Operand:
        """Values that vary by row, if the shape has an axis of rows; else constants."""
        shape = list(shape)
        kind = tf.as_dtype(dtype)
        if kind.is_integer and self.chance(0.03):
            return self.strange(kind)
        if shape and shape[0] == ROWS_AXIS and self.chance(0.04):
            return self._masked(shape, kind, **limits)
        if any(isinstance(each, Several) for each in shape):
            cut = self.chance(0.2) and shape[-1] == WIDTH
            return self._of_rows(shape, kind, cut=cut, **limits)
        count = int(np.prod(shape)) if shape else 1
        fixed = self.random.choice([-2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0], count)
        return Operand(lambda x, u: _typed(tf.reshape(tf.constant(fixed, tf.float32), shape), kind, **limits))

    def _of_rows(self, shape: Shape, kind: Any, *, cut: bool, **limits: Any) -> Operand:
        place = next(n for n, each in enumerate(shape) if isinstance(each, Several))
        outer, block = shape[place]
        inner = [each for each in shape if not isinstance(each, Several)]
        count = int(np.prod([outer, block, *inner]))
        columns = self.random.integers(0, COLUMNS, count)
        order = [*range(1, place + 1), 0, *range(place + 1, len(shape))]

        def make(x: Any, u: Any) -> Any:
            found = tf.gather(x, columns, axis=1)
            if (outer, block) == (1, 1):
                found = tf.reshape(found, [-1, *inner])
            else:
                found = tf.transpose(tf.reshape(found, [-1, outer, block * int(np.prod(inner))]), [1, 0, 2])
                found = tf.reshape(found, [-1, *inner])
            found = _typed(tf.transpose(found, order), kind, **limits)
            return found[..., : tf.shape(u)[1]] if cut else found

        return Operand(make)

    def _masked(self, shape: Shape, kind: Any, **limits: Any) -> Operand:
        """Any number of entries a row."""
        whole, column = self._of_rows([shape[0], 2, *shape[1:]], kind, cut=False, **limits), self.axis([2, 2])
        if self.chance(0.5):
            return Operand(lambda x, u: tf.boolean_mask(whole.make(x, u), x[:, 2 + column : 4 + column] > -1.0))
        return Operand(lambda x, u: tf.boolean_mask(whole.make(x, u)[:, 0], x[:, column] > -1.0))

    def any(self, dtype: Any = tf.float32, low: int = 1, high: int = 4, **limits: Any) -> Operand:
        return self.tensor(self.shape(low, high), dtype, **limits)

    def whole(self, values: Any, dtype: Any = tf.int32, strange: float = 0.05) -> Operand:
        """Whole numbers, constant; sometimes by the number of rows."""
        if self.chance(strange):
            return self.strange(dtype)
        return Operand(lambda x, u: tf.constant(values, dtype))

    def strange(self, dtype: Any = tf.int32) -> Operand:
        """Numbers that depend on how many rows there are, or on their places."""
        made_of = self.one(
            lambda x, u: tf.shape(x)[0],
            lambda x, u: tf.shape(x),
            lambda x, u: tf.shape(x)[:1],
            lambda x, u: tf.range(tf.shape(x)[0]),
            lambda x, u: tf.stack([tf.shape(x)[0], 4]),
            lambda x, u: tf.shape(u)[1],
            lambda x, u: tf.size(u),
            lambda x, u: tf.cast(x[:, 0], tf.int32) % 2,
            lambda x, u: tf.shape(x)[0] - 1,
            lambda x, u: tf.range(tf.shape(x)[0])[:, None],
            lambda x, u: tf.range(2 * tf.shape(x)[0]),
            lambda x, u: tf.reshape(tf.range(2 * tf.shape(x)[0]), [-1, 2]),
            lambda x, u: tf.tile(tf.range(tf.shape(x)[0]), [2]),
            lambda x, u: tf.where(x[:, 0] > 0.0),
            lambda x, u: tf.where(x[:, :2] > 0.0)[:, 0],
            lambda x, u: tf.where(x[:, :2] > 0.0)[:, 1],
            lambda x, u: tf.shape(tf.where(x > 0.0))[0],
            lambda x, u: tf.unique(tf.cast(x[:, 0], tf.int32))[1],
        )
        return Operand(lambda x, u: tf.cast(made_of(x, u), dtype))

    def dims(self, shape: Sequence[int | Several | None], dtype: Any = tf.int32) -> Operand:
        """A shape as a tensor: an axis of rows by their number, None by -1."""

        def make(x: Any, u: Any) -> Any:
            count = tf.shape(x)[0]
            sizes = [
                -1 if each is None else count * (each.outer * each.block) if isinstance(each, Several) else each
                for each in shape
            ]
            return tf.cast(tf.stack(sizes) if sizes else tf.zeros([0], tf.int32), dtype)

        return Operand(make)

    def call(self, operation: str, **arguments: Any) -> Use:
        make = getattr(tf.raw_ops, operation)

        def use(x: Any, u: Any) -> list[Any]:
            return tf.nest.flatten(make(**{name: made(each, x, u) for name, each in arguments.items()}))

        return use


def _typed(values: Any, kind: Any, *, below: int = 0, mode: str = "") -> Any:
    """Floating-point values as another type; `below`: whole numbers from 0 to below it."""
    if kind == tf.bool:
        return values > 0
    if kind == tf.string:
        return tf.gather(tf.constant(WORDS), _whole(values, len(WORDS)))
    if kind.is_complex:
        return tf.complex(values, values * 0.5 + 1.0)
    if kind.is_integer:
        if below:
            return tf.cast(_whole(values, below), kind)
        return tf.cast(tf.clip_by_value(values * 2.0, -9.0 if kind.min < 0 else 0.0, 9.0), kind)
    if mode == "positive":
        values = tf.minimum(tf.abs(values), 9.0) + 0.5
    elif mode == "unit":
        values = values / (tf.abs(values) + 1.0)  # the same to the last digit wherever a row lies
    return tf.cast(values, kind)


def _whole(values: Any, below: int) -> Any:
    return tf.math.floormod(tf.cast(tf.clip_by_value(values * 2.0, -99.0, 99.0), tf.int32), below)
