"""Which dimension of an output follows which of an input's, and by which rule: the model is run at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile

from app.batching.shapes.padding import OutputShape
from app.batching.shapes.size_rules import FollowedSize, followed_size

#: By the name of a free dimension.
Sizes = Mapping[str, int]

#: The shape of each output of one row; None where the model rejects such sizes.
OutputShapes = Mapping[str, tuple[int, ...]]
ShapesAt = Callable[[Sizes], OutputShapes | None]

#: A rule is looked for in the outputs for so many sizes in a row: one that repeats within half as many is found.
_SERIES = 64

#: So many sizes are too few to tell a rule from chance.
_LEAST_SERIES = 8


class NotUnderstood(Exception):
    """Requests of different shapes cannot share a call; the text says why."""


def followed_shapes(shapes_at: ShapesAt, small: Sizes, large: Sizes) -> dict[str, OutputShape]:
    """The shape of each output, by the names of the inputs' dimensions.

    Args:
        small, large: sizes that the model takes; no two of one are equal.

    Raises:
        NotUnderstood: a dimension follows no rule, or several inputs.
    """
    before, after = shapes_at(small), shapes_at(large)
    if before is None or after is None:
        raise NotUnderstood("the model rejects now what it took before")
    following = _Following(shapes_at, small, large)
    return {name: following.shape(name, before[name], after[name]) for name in before}


class _Following:
    def __init__(self, shapes_at: ShapesAt, small: Sizes, large: Sizes) -> None:
        self._shapes_at = shapes_at
        self._small = small
        self._large = large
        self._equal = {(small[each], large[each]): each for each in small}
        self._series: dict[str, dict[int, OutputShapes]] = {}

    def shape(self, output: str, before: tuple[int, ...], after: tuple[int, ...]) -> OutputShape:
        if len(before) != len(after):
            raise NotUnderstood(f"the rank of output {output!r} changes with the size of the inputs")
        return tuple(
            [self._dimension(output, axis, pair) for axis, pair in enumerate(zip(before, after, strict=True)) if axis]
        )

    def _dimension(self, output: str, axis: int, pair: tuple[int, int]) -> int | str | FollowedSize:
        if pair[0] == pair[1]:
            return pair[0]
        if pair in self._equal:
            return self._equal[pair]
        rules = [rule for each in self._small if (rule := self._rule(output, axis, each)) is not None]
        if len(rules) == 1 and rules[0].of(self._large[rules[0].dimension]) == pair[1]:
            return rules[0]
        sizes = ", ".join(f"{small} and {large}" for small, large in self._equal)
        raise NotUnderstood(
            f"output {output!r} has a dimension that changes with the inputs' by no rule that was found: "
            f"{pair[0]} and {pair[1]} for {sizes}"
        )

    def _rule(self, output: str, axis: int, dimension: str) -> FollowedSize | None:
        """How an output's dimension changes where this one of the inputs' does, and no other."""
        if dimension not in self._series:
            self._series[dimension] = dict(sorted(self._run_series(dimension)))
        series = self._series[dimension]
        if any(len(shapes[output]) <= axis for shapes in series.values()):
            return None
        sizes = [shapes[output][axis] for shapes in series.values()]
        least, most_less = min(series), min(self._small[dimension] - min(series), len(sizes) - _LEAST_SERIES)
        # The smallest inputs may be too small for anything to come out, and follow another rule.
        rules = (followed_size(dimension, least + less, sizes[less:]) for less in range(most_less + 1))
        return next((rule for rule in rules if rule is not None), None)

    def _run_series(self, dimension: str) -> Iterator[tuple[int, OutputShapes]]:
        """The outputs for sizes in a row around the small one, as far as the model takes them."""
        middle = self._small[dimension]
        least = max(1, middle - _SERIES // 2)
        for sizes in (range(middle, least + _SERIES), range(middle - 1, least - 1, -1)):
            found = ((size, self._shapes_at({**self._small, dimension: size})) for size in sizes)
            for size, shapes in takewhile(lambda each: each[1] is not None, found):
                assert shapes is not None  # noqa: S101 - takewhile saw to it
                yield size, shapes
