"""How far apart the sizes of a free dimension may lie in one call. Pure.

A narrow bucket wastes little on padding and fills slowly; a wide one the other way round. The ladder (8, 10, 12,
14, 16, 20, 24, 28, 32, 40, ...: four steps for each doubling) is narrow, since neighbours join a batch that is not full
where that saves time (company.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

#: Sizes up to this are alike: a call costs the same for any of them.
_LEAST = 8


@dataclass(frozen=True, slots=True)
class ShapeBuckets:
    """The largest size of each bucket, ascending; none takes the ladder, which does not end."""

    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.sizes and (self.sizes[0] < 1 or list(self.sizes) != sorted(set(self.sizes))):
            raise ValueError(f"shape buckets must be positive and ascending, not {self.sizes}")

    @classmethod
    def of(cls, sizes: Sequence[int]) -> ShapeBuckets:
        return cls(tuple(sizes))

    def top(self, size: int) -> int:
        """The largest size of the bucket that holds `size`: what no bucket holds, and nothing at all, stays alone."""
        if not size:
            return 0
        if not self.sizes:
            return _ladder(size)
        place = bisect_left(self.sizes, size)
        return self.sizes[place] if place < len(self.sizes) else size


def _ladder(size: int) -> int:
    step = max(1 << (size - 1).bit_length() >> 3, 1)
    return max(_LEAST, -(-size // step) * step)
