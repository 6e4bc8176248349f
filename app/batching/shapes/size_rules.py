"""Size rules: an output's dimension follows from an input's, as half of it (a stride), twice, two less. No I/O.

For every composition of convolution, pooling and repetition the sizes are periodic: with `period` more in, `rise` more
come out. So the sizes of one period define the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FollowedSize:
    """A rule: `sizes` are the output sizes for inputs of `least`, `least + 1` and so on, for one period."""

    dimension: str
    least: int
    sizes: tuple[int, ...]
    rise: int

    @property
    def period(self) -> int:
        return len(self.sizes)

    def of(self, size: int) -> int:
        periods, index = divmod(size - self.least, self.period)
        return self.sizes[index] + periods * self.rise

    def __str__(self) -> str:
        if self.period > 1:
            return f"~{self.rise}/{self.period}*{self.dimension}"
        factor = "" if self.rise == 1 else f"{self.rise}*"
        more = self.sizes[0] - self.rise * self.least
        return f"{factor}{self.dimension}{more:+d}" if more else f"{factor}{self.dimension}"


def followed_size(dimension: str, least: int, sizes: Sequence[int]) -> FollowedSize | None:
    """The rule behind the sizes for inputs of `least`, `least + 1` and so on; None if they do not show one twice."""
    for period in range(1, len(sizes) // 2 + 1):
        rises = {later - size for size, later in zip(sizes, sizes[period:], strict=False)}
        if len(rises) == 1 and (rise := rises.pop()) > 0:
            return FollowedSize(dimension, least, tuple(sizes[:period]), rise)
    return None
