"""Shape buckets: the ranges of sizes of a free dimension that share a lane. No I/O.

A narrow bucket needs little padding and fills slowly; a wide one the other way round. The default (8, 10, 12, 14, 16,
20, 24, 28, 32, 40, ...: four for each doubling) is narrow, since buckets are merged if that saves time (merging.py).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

#: Sizes up to this share a bucket: a call costs the same for any of them. Chosen.
_LEAST = 8


@dataclass(frozen=True, slots=True)
class ShapeBuckets:
    """The largest size of each bucket, ascending; without any, the default buckets, which have no end."""

    sizes: tuple[int, ...] = ()

    def top(self, size: int) -> int:
        """The largest size of the bucket of `size`; `size` itself if it is 0 or in no bucket."""
        if not size:
            return 0
        if not self.sizes:
            return _default_top(size)
        index = bisect_left(self.sizes, size)
        return self.sizes[index] if index < len(self.sizes) else size


def _default_top(size: int) -> int:
    step = max(1 << size.bit_length() >> 3, 1)
    return max(_LEAST, -(-size // step) * step)
