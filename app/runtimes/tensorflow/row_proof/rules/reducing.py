"""Operations that reduce many numbers to one: sums, maxima, places of maxima."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Ints,
    MoreRows,
    Rows,
    Size,
    Uniform,
    Value,
    all_uniform,
    constant,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, normal_axis, rule
from app.runtimes.tensorflow.row_proof.dimensions import Shape, product, spaces


@rule("Sum Mean Max Min Prod All Any EuclideanNorm ReduceJoin")
def reduce(call: Call, value: Value, axes: Value) -> Results:
    if isinstance(value, Size):
        return _of_sizes(call, value, axes)
    if isinstance(value, Count | MoreRows):
        return Count()
    shape = call.shape(value)
    if constant(axes) is None and isinstance(axes, Uniform) and isinstance(value, Uniform):
        return Uniform()
    places = {normal_axis(call, each, len(shape)) for each in call.constant(axes, "axis")}
    if call.node.op == "ReduceJoin" and not places:
        raise call.unknown("it names no axis")
    keep = call.flag("keep_dims")
    # The rows must not lie along a reduced axis.
    if isinstance(value, Uniform):
        return Uniform(_reduced(shape, places, keep), _product_of(call, value) if places else None)
    rows = call.rows(value)
    if rows.axis in places:
        raise call.mixes(f"runs over the rows, axis {rows.axis} of its input")
    return rows_at(
        _reduced(shape, places, keep), rows.axis if keep else rows.axis - sum(each < rows.axis for each in places), rows
    )


def _reduced(shape: Shape, places: set[int], keep: bool) -> Shape:
    if keep:
        return tuple([1 if axis in places else dim for axis, dim in enumerate(shape)])
    return tuple([dim for axis, dim in enumerate(shape) if axis not in places])


def _product_of(call: Call, value: Uniform) -> Ints | None:
    """The product of a vector of sizes that are known."""
    if call.node.op != "Prod" or value.ints is None or len(value.shape or ()) != 1:
        return None
    return (product(value.ints),)


def _of_sizes(call: Call, value: Size, axes: Value) -> Value:
    places = constant(axes)
    if value.shape == () or places == []:
        return value
    if call.node.op == "Prod" and places in ([0], [-1]):
        dim = product(value.ints)
        if len(spaces(dim)) <= 1:
            return numbers_of((1,) if call.flag("keep_dims") else (), (dim,))
    return Count()


@rule("ArgMax ArgMin")
def place_of_greatest(call: Call, value: Value, axis: Value) -> Results:
    if isinstance(value, Size | Count):
        raise call.mixes("compares with the number of rows")
    shape = call.shape(value)
    (place,) = call.constant(axis, "axis")
    place = normal_axis(call, place, len(shape))
    left = (*shape[:place], *shape[place + 1 :])
    if isinstance(value, Uniform):
        return Uniform(left)
    rows = call.rows(value)
    if rows.axis == place:
        raise call.mixes(f"runs over the rows, axis {place} of its input")
    return rows_at(left, rows.axis - (place < rows.axis), rows)


@rule("L2Loss")
def whole(call: Call, value: Value) -> Results:
    if isinstance(value, Uniform):
        return Uniform(())
    raise call.mixes("runs over all rows")


@rule("Bincount HistogramFixedWidth RandomShuffle")
def all_rows(call: Call, *operands: Value) -> Results:
    """The operation looks at the entries of all rows."""
    if all_uniform(*operands):
        return Uniform()
    raise call.mixes("looks at the entries of all rows at once")


@rule("NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5")
def suppress(call: Call, *operands: Value) -> Results:
    if all_uniform(*operands):
        return Uniform()
    raise call.mixes("compares the boxes of all rows with each other")


@rule("DenseBincount")
def bincount(call: Call, values: Value, size: Value, weights: Value) -> Results:
    """The counts of whole numbers, for each row alone where the operand has two axes."""
    if isinstance(values, Uniform):
        return Uniform()
    rows = call.rows(values)
    if rows.axis != 0 or len(rows.shape) != 2:
        raise call.mixes("counts over all rows")
    dim = call.size_of(call.uniform(size, "number of bins"))
    none = isinstance(weights, Uniform) and weights.shape is not None and product(weights.shape) == 0
    alike = isinstance(weights, Rows) and (weights.axis, weights.layout, len(weights.shape)) == (0, rows.layout, 2)
    if not (none or alike):
        raise call.unknown("its weights are not one for each number")
    return rows_at((rows.shape[0], dim), 0, rows)
