"""Batch sizes: the row counts that a model is called with. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """The row counts that a model is called with, ascending. The last one is the largest batch."""

    allowed: tuple[int, ...]

    @classmethod
    def powers_of_two(cls, largest: int) -> BatchSizes:
        """1, 2, 4, ... and `largest` itself: at most half of a batch is padding."""
        powers = [1 << exponent for exponent in range(largest.bit_length())]
        return cls(tuple(sorted({*powers, largest})))

    @classmethod
    def of(cls, largest: int, allowed: Sequence[int] = ()) -> BatchSizes:
        return cls(tuple(allowed)) if allowed else cls.powers_of_two(largest)

    @property
    def largest(self) -> int:
        return self.allowed[-1]

    def padded(self, rows: int) -> int:
        """The smallest allowed size for `rows` rows, which must not exceed the largest; 0 for 0."""
        return self.allowed[bisect_left(self.allowed, rows)] if rows else 0
