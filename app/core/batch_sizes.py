"""Batch sizes: the row counts that a model is called with; and the bounds of all batching options. No I/O.

Settings, PATCH bodies and BatchingParameters files share the bounds. They are far beyond sensible values, so that they
only catch a number in the wrong unit or with a slip of the hand. All are chosen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Rows in one call.
MOST_BATCH_ROWS = 1 << 20

#: Sizes that batches are padded to: a model is called at each of them before it serves at that size.
MOST_BATCH_SIZES = 1024

#: Milliseconds that an idle device waits for more requests. A client gives up after 30 s by default.
MOST_DELAY_MS = 10_000

#: Milliseconds of calls that are made on the event loop: all other requests wait for them.
MOST_INLINE_MS = 1000

#: Milliseconds that a call and the one before it may take.
MOST_TARGET_MS = 600_000

#: Milliseconds from the arrival of a request to its answer: a day.
MOST_TIMEOUT_MS = 86_400_000

#: Rows that wait in the queue.
MOST_QUEUE_ROWS = 1 << 30

#: Batches that one device computes at the same time, in one thread each.
MOST_BATCHES_IN_FLIGHT = 1024

#: Weights of models. Times divided by them stay exact.
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0


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

    def up_to(self, rows: int) -> BatchSizes:
        """The sizes below `rows`, and `rows` itself as the largest; all sizes if none is larger."""
        if rows >= self.largest:
            return self
        return BatchSizes((*[size for size in self.allowed if size < rows], rows))

    @property
    def largest(self) -> int:
        return self.allowed[-1]

    def padded(self, rows: int) -> int:
        """The smallest allowed size for `rows` rows, which must not exceed the largest; 0 for 0."""
        return self.allowed[bisect_left(self.allowed, rows)] if rows else 0


def most_accepted(accepts: Callable[[int], bool], accepted: int, refused: int) -> int:
    """The largest number of rows that is accepted, by halving.

    Args:
        accepts: tries a number of rows; if one is accepted, all smaller ones are.
        accepted, refused: known numbers of rows, the first below the second.
    """
    # 1. Downwards, so that all refused calls together take no longer than the first.
    below = refused // 2
    while below > accepted and not accepts(below):
        below, refused = below // 2, below
    accepted = max(accepted, below)

    # 2. Between the largest accepted and the smallest refused number.
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if accepts(middle):
            accepted = middle
        else:
            refused = middle
    return accepted
