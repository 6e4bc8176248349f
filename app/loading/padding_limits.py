"""The sizes up to which padding is proven: padding that is neutral for short rows need not be so for long ones.

A ladder of sizes, each twice the one before, up to the largest bucket: at each rung rows of that size share calls with
rows of half of it and with short ones. Requests beyond the last rung where all got their answers are not padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from app.batching.shapes.buckets import ShapeBuckets
from app.loading.output_shapes import Sizes, last_size

#: Whether two rows of these sizes get the same answers in one call as alone; None if there is nothing to compare.
Agrees = Callable[[Sizes, Sizes], bool | None]

#: The last rung if the buckets have no end. Chosen: half a second of sound, and longer than most texts.
_LARGEST = 1 << 13


class ProvenSizes(NamedTuple):
    """The largest neutral size of each free dimension, and the reason why no larger one is; empty if all are."""

    sizes: dict[str, int]
    why: str = ""


def neutral_up_to(
    agrees: Agrees, affordable: Callable[[Sizes], bool], small: Sizes, large: Sizes, buckets: ShapeBuckets
) -> ProvenSizes:
    """The last rung of the ladder where all rows got their answers.

    Args:
        affordable: whether calls with rows of such sizes take little time and memory.
        small, large: sizes for which padding is known to be neutral.
    """

    def all_of(size: int) -> dict[str, int]:
        return dict.fromkeys(large, size)

    proven = dict(large)

    def holds(first: Sizes, second: Sizes) -> bool:  # rounding may make one of many answers differ by chance
        return bool(agrees(first, second) or agrees(first, second))

    for size in _rungs(max(large.values()), buckets):
        # 1. A rung that takes too long ends the ladder.
        if not affordable(all_of(size)):
            return ProvenSizes(proven, "longer ones take too long to try")

        # 2. The model may have a largest size. It is looked for, since the largest sizes gain most by shared calls.
        ends = agrees(small, all_of(size)) is None
        low = max(proven.values())
        top = last_size(low, size, lambda at: agrees(small, all_of(at)) is not None) if ends else size
        if top == low:
            break

        # 3. The rung counts if all rows get their answers.
        if not (holds(small, all_of(top)) and holds(proven, all_of(top))):
            return ProvenSizes(proven, "padding changes the answers of longer ones")
        proven = all_of(top)
        if ends:
            break
    return ProvenSizes(proven)


def _rungs(above: int, buckets: ShapeBuckets) -> Iterator[int]:
    """Powers of two, and the end of the last bucket."""
    last = buckets.sizes[-1] if buckets.sizes else _LARGEST
    size = 1 << above.bit_length()
    while size < last:
        yield size
        size *= 2
    if above < last:
        yield last
