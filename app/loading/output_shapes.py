"""The rules by which dimensions of outputs follow dimensions of inputs (batching/shapes/size_rules.py).

The model is called at few sizes, at most 24 for each free dimension:
1. The output of strides, pooling and repetition never shrinks as the input grows. So if two sizes give the same output
   size, all between them do: of a stride of 16 only the sizes where the output grows are looked for, by bisection.
2. Windows of 8, 16, 32 and 64 sizes in a row are tried. The rule is the shortest period that repeats in one of them.
3. A rule must also hold at sizes beyond the window. How far it holds below the window is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from app.batching.shapes.padding import OutputShape
from app.batching.shapes.size_rules import FollowedSize, followed_size

#: By the name of a free dimension.
Sizes = Mapping[str, int]

#: The shape of each output of one row.
OutputShapes = Mapping[str, tuple[int, ...]]

#: From sizes to the outputs' shapes; None if the model rejects such sizes.
ShapesAt = Callable[[Sizes], OutputShapes | None]

#: Lengths of windows. A rule repeats within half of one; fewer sizes than the first may be chance. Chosen.
_WINDOWS = (8, 16, 32, 64)

#: Calls of the model for one free dimension. Chosen: strides of 2 to 32 take 13 to 20. Of the 7,630
#: compositions of three strides and repetitions up to 3, all but 17 are found: two strides of 3 around a repetition.
_MAX_CALLS = 24


class NotUnderstood(Exception):
    """Requests of different shapes cannot share a call; the text says why."""


class _NoRule(Exception):
    """No rule was found in the calls that were allowed."""


def followed_shapes(shapes_at: ShapesAt, small: Sizes, large: Sizes) -> dict[str, OutputShape]:
    """The shape of each output without its rows, by the names of the inputs' dimensions.

    Args:
        small, large: sizes that the model accepts; within each, no two sizes are equal.

    Raises:
        NotUnderstood: a dimension follows no rule, or follows several inputs.
    """
    before, after = shapes_at(small), shapes_at(large)
    if before is None or after is None:
        raise NotUnderstood("the model rejects sizes that it accepted before")
    following = _Following(shapes_at, small, large, before)
    return {name: following.shape(name, before[name], after[name]) for name in before}


class _Following:
    """The search for the rules of all outputs, from their shapes at two sizes."""

    def __init__(self, shapes_at: ShapesAt, small: Sizes, large: Sizes, before: OutputShapes) -> None:
        self._small = small
        self._large = large
        self._equal = {(small[each], large[each]): each for each in small}
        self._series = {each: _Series(shapes_at, small, each, before) for each in small}

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
        # Neither fixed nor a size of the inputs: a rule of exactly one dimension must explain it.
        rules = []
        for series in self._series.values():
            try:
                rules.append(series.rule(output, axis))
            except _NoRule:
                continue
        if len(rules) == 1 and rules[0].of(self._large[rules[0].dimension]) == pair[1]:
            return rules[0]
        sizes = ", ".join(f"{small} and {large}" for small, large in self._equal)
        raise NotUnderstood(
            f"output {output!r} has a dimension that changes with the inputs' by no rule that was found: "
            f"{pair[0]} and {pair[1]} for {sizes}"
        )


class _Series:
    """The shapes of all outputs at different sizes of one dimension, the others being small; each size is one call."""

    def __init__(self, shapes_at: ShapesAt, small: Sizes, dimension: str, shapes: OutputShapes) -> None:
        self._middle = small[dimension]
        self._shapes_at = shapes_at
        self._small = small
        self._dimension = dimension
        self._known: dict[int, OutputShapes | None] = {self._middle: shapes}

    def _at(self, size: int) -> OutputShapes | None:
        """Raises _NoRule if all calls are used up."""
        if size not in self._known:
            if len(self._known) > _MAX_CALLS:
                raise _NoRule
            self._known[size] = self._shapes_at({**self._small, self._dimension: size})
        return self._known[size]

    def rule(self, output: str, axis: int) -> FollowedSize:
        """The rule by which a dimension of an output follows this one of the inputs. Raises _NoRule."""
        size_at = partial(self._size_at, output, axis)
        largest: int | None = None
        for length in _WINDOWS:
            # 1. The window begins at a size that the model accepts, or ends at the largest that it accepts.
            low = self._middle
            high = low + length - 1
            if largest is None and size_at(high) is None:
                largest = last_size(low, high, lambda size: size_at(size) is not None)
            if largest is not None:
                high = min(high, largest)
                low = max(1, high - length + 1)
            if high - low + 1 < _WINDOWS[0]:
                continue

            # 2. The rule behind its sizes, which must hold beyond it.
            rule = followed_size(self._dimension, low, list(_sizes(size_at, low, high)))
            beyond = (high + 1, high + length // 2 + 1, 2 * high + 1)
            if rule is not None and all(size_at(size) in {None, rule.of(size)} for size in beyond):
                return _down(size_at, rule)
        raise _NoRule

    def _size_at(self, output: str, axis: int, size: int) -> int | None:
        """The output's size; None if the model rejects the input's."""
        shapes = self._at(size)
        if shapes is None:
            return None
        if len(shapes[output]) <= axis:
            raise _NoRule
        return shapes[output][axis]


def _sizes(size_at: Callable[[int], int | None], low: int, high: int) -> Iterator[int]:
    """The output's sizes for inputs from `low` to `high`, both included."""
    first, last = size_at(low), size_at(high)
    if first is None or last is None or last < first:
        raise _NoRule
    if first == last:
        yield from [first] * (high - low + 1)
    elif high - low == 1:
        yield from (first, last)
    else:
        middle = (low + high) // 2
        yield from _sizes(size_at, low, middle)
        yield from list(_sizes(size_at, middle, high))[1:]


def _down(size_at: Callable[[int], int | None], rule: FollowedSize) -> FollowedSize:
    """The same rule, from the least size where it holds. The search ends when all calls are used up."""
    low, high = 1, rule.least
    try:
        while low < high:
            middle = (low + high) // 2
            if size_at(middle) == rule.of(middle):
                high = middle
            else:
                low = middle + 1
    except _NoRule:
        pass
    return FollowedSize(rule.dimension, high, tuple([rule.of(high + more) for more in range(rule.period)]), rule.rise)


def last_size(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest size from `low`, for which it holds, to `high`, for which it does not, found by bisection."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
