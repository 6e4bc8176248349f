"""The join of two values into one: after a branch, and between iterations of a loop that all requests run in step."""

from __future__ import annotations

from collections.abc import Callable

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Concatenation,
    Count,
    Index,
    ListOf,
    Numbers,
    Offsets,
    Places,
    Rows,
    Sink,
    Size,
    Splits,
    Taint,
    Uniform,
    Value,
    rows_dim,
)
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape, Symbols, symbol

#: Gives the size in place of two that differ; its argument is the number of the axis.
NewDim = Callable[[int], Dim]


def join(a: Value, b: Value, new_dim: NewDim) -> Value:
    """The value of a tensor that is a or b, where the choice is the same for all requests that share a call."""
    if a == b:
        return a
    if isinstance(a, Taint) or isinstance(b, Taint):
        taints = [each for each in (a, b) if isinstance(each, Taint)]
        return next((each for each in taints if each.verdict == "mixes"), taints[0])
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return Uniform(_shape(a.shape, b.shape, new_dim), None, a.of_row or b.of_row)
    if isinstance(a, Rows) and isinstance(b, Rows):
        return _rows(a, b, new_dim)
    if isinstance(a, Uniform | Size | Count) and isinstance(b, Uniform | Size | Count):
        return Count(a.origins | b.origins)
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return _lists(a, b, new_dim)
    if isinstance(a, Sink) and isinstance(b, Sink) and a.token == b.token and a.item and b.item:
        return Sink(a.token, join(a.item, b.item, new_dim), a.origins | b.origins)
    return Taint("unknown", "branches or turns of a loop give values of different kinds", a.origins | b.origins)


def _rows(a: Rows, b: Rows, new_dim: NewDim) -> Value:
    if len(a.shape) != len(b.shape) or a.axis != b.axis or a.layout != b.layout:
        return Taint("unknown", "branches or turns of a loop lay rows out differently", a.origins | b.origins)
    shape = _shape(a.shape, b.shape, new_dim)
    assert shape is not None
    return Rows(shape, a.axis, a.outer, a.block, a.space, a.origins | b.origins)


def _lists(a: ListOf, b: ListOf, new_dim: NewDim) -> Value:
    origins = a.origins | b.origins
    length = a.length if a.length == b.length else None
    if a.element is None or b.element is None:
        filled = a if b.element is None else b
        if filled.by_rows:
            return Taint("unknown", "a list has an element for each row in one branch or turn alone", origins)
        return ListOf(filled.element, length, filled.by_rows, origins)
    if a.by_rows != b.by_rows:
        return Taint("unknown", "a list has an element for each row in one branch or turn alone", origins)
    element = join(a.element, b.element, new_dim)
    return element if isinstance(element, Taint) else ListOf(element, length, a.by_rows, origins)


def _shape(a: Shape | None, b: Shape | None, new_dim: NewDim) -> Shape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple([x if x == y else new_dim(axis) for axis, (x, y) in enumerate(zip(a, b, strict=True))])


def outside(value: Value, symbols: Symbols, level: int, new_dim: NewDim) -> Value:
    """The value without sizes that belong to loops of `level` or deeper ones."""

    def inner(dim: Dim) -> bool:
        return symbols.level_of(dim) >= level

    def shape_of(shape: Shape) -> Shape:
        return tuple([new_dim(axis) if inner(dim) else dim for axis, dim in enumerate(shape)])

    if isinstance(value, Uniform):
        ints = None if value.ints and any(map(inner, value.ints)) else value.ints
        shape = value.shape if value.shape is None else shape_of(value.shape)
        return value if (ints, shape) == (value.ints, value.shape) else Uniform(shape, ints, value.of_row)
    if isinstance(value, Rows):
        if inner(rows_dim(value.outer, value.space, value.block)):
            return Taint("unknown", "a loop changes how rows are laid out", value.origins)
        return Rows(shape_of(value.shape), value.axis, value.outer, value.block, value.space, value.origins)
    if isinstance(value, ListOf):
        element = outside(value.element, symbols, level, new_dim) if value.element else None
        length = None if value.length is not None and inner(value.length) else value.length
        return element if isinstance(element, Taint) else ListOf(element, length, value.by_rows, value.origins)
    if isinstance(value, Sink):
        item = outside(value.item, symbols, level, new_dim) if value.item else None
        return item if isinstance(item, Taint) else Sink(value.token, item, value.origins)
    if isinstance(value, Size) and any(map(inner, value.ints)):
        return Taint("unknown", "a loop changes a size", value.origins)
    if isinstance(value, Concatenation):
        return Taint("unknown", "a loop joins ragged tensors", value.origins)
    if isinstance(value, Numbers | Places | Index | Splits | Offsets) and any(map(inner, _spaces_in(value))):
        return Taint("unknown", "a loop changes how many entries there are", value.origins)
    return value


def _spaces_in(value: Numbers | Places | Index | Splits | Offsets) -> list[Dim]:
    if isinstance(value, Numbers):
        return [*value.rows.shape, value.rows.outer, value.rows.block, value.limit]
    if isinstance(value, Places | Index):
        return [*value.rows.shape, value.rows.outer, value.rows.block, symbol(value.of)]
    if isinstance(value, Offsets):
        return [*value.rows.shape, symbol(value.entries)]
    return [symbol(value.entries), symbol(value.of)]
