"""Hints of the values that an input of a model accepts, before the first request.

A hint is no promise: its values are tried by calls, and a row that the model rejects is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.core.inference import STRING, Array, string_array


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float

    def draw(self, shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator) -> Array:
        if np.issubdtype(dtype, np.inexact):
            return np.asarray(random.uniform(self.low, self.high, shape), dtype)
        return np.asarray(random.integers(int(self.low), int(self.high), shape, endpoint=True), dtype)


@dataclass(frozen=True, slots=True)
class Elements:
    """Values that may stand at any place of the input: encoded images, entries of a table."""

    values: tuple[bytes | float, ...]

    def draw(self, shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator) -> Array:
        count = int(np.prod(shape))
        picked = random.permutation(np.resize(np.arange(len(self.values)), max(count, len(self.values))))[:count]
        values = [self.values[index] for index in picked]
        if dtype == STRING:
            return string_array([value for value in values if isinstance(value, bytes)], shape)
        return np.asarray(values, dtype).reshape(shape)


Pool = Range | Elements


@dataclass(frozen=True, slots=True)
class ValueHint:
    """The hint of one input.

    pools: sets of values that are tried one after the other; values of one pool go together.
    takes_zero: whether zero, or the empty string, is accepted as far as is known.
    sizes: by the number of an axis, the size that it must have.
    """

    pools: tuple[Pool, ...] = ()
    takes_zero: bool = True
    sizes: Mapping[int, int] = field(default_factory=dict)

    def pool(self, number: int) -> Pool | None:
        """The pool of this number, or the last one; None if there is none."""
        return self.pools[min(number, len(self.pools) - 1)] if self.pools else None


#: By the name of an input.
ValueHints = Mapping[str, ValueHint]

#: Nothing is known.
NO_HINTS: ValueHints = {}


def pool_numbers(hints: ValueHints) -> range:
    """The numbers for which some input has a pool."""
    return range(max((len(hint.pools) for hint in hints.values()), default=0))


def reject_zeros(hints: ValueHints) -> bool:
    """Whether a call with zeros and empty strings is likely to be rejected."""
    return any(not hint.takes_zero or hint.sizes for hint in hints.values())


def are_specific(hints: ValueHints) -> bool:
    """Whether the hints give values that made-up numbers are unlikely to be."""
    return reject_zeros(hints) or any(isinstance(pool, Elements) for hint in hints.values() for pool in hint.pools)


def sized(shape: tuple[int | None, ...], hint: ValueHint | None) -> tuple[int | None, ...]:
    """The shape, with the sizes of free axes that the hint knows."""
    known = hint.sizes if hint is not None else {}
    return tuple([known.get(axis) if size is None else size for axis, size in enumerate(shape)])
