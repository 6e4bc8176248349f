"""Operations that compute with all numbers of an axis: sums, maxima and their places, running sums, softmax."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Ints,
    MoreRows,
    Rows,
    Size,
    Uniform,
    Value,
    constant,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, normal_axis, rule
from app.runtimes.tensorflow.row_proof.dimensions import product, spaces

OVER_ROWS = "runs over the rows, axis {} of its input"


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
    ones = tuple([1 if axis in places else dim for axis, dim in enumerate(shape)])
    found = call.along(value, places, mixes=OVER_ROWS, removes=not keep, shape=ones)
    if isinstance(found, Uniform) and isinstance(value, Uniform) and places:
        return Uniform(found.shape, _product_of(call, value))
    return found


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
    (place,) = call.constant(axis, "axis")
    return call.along(value, [place], mixes=OVER_ROWS, removes=True)


@rule("Cumsum Cumprod CumulativeLogsumexp")
def cumulate(call: Call, value: Value, axis: Value) -> Results:
    return call.along(value, call.constant(axis, "axis"), unknown="it adds up the rows, axis {} of its input")


@rule("Softmax LogSoftmax")
def softmax(call: Call, value: Value) -> Results:
    return call.along(value, [-1], mixes=OVER_ROWS)


@rule("L2Loss")
def whole(call: Call, value: Value) -> Results:
    if isinstance(value, Uniform):
        return Uniform(())
    raise call.mixes("runs over all rows")


@rule("Bincount HistogramFixedWidth RandomShuffle")
def all_rows(call: Call, *operands: Value) -> Results:
    raise call.mixes("looks at the entries of all rows at once")


@rule("NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5")
def suppress(call: Call, *operands: Value) -> Results:
    raise call.mixes("compares the boxes of all rows with each other")


@rule("DenseBincount")
def bincount(call: Call, values: Value, size: Value, weights: Value) -> Results:
    """The counts of whole numbers, for each row alone where the operand has two axes."""
    rows = call.rows(values)
    if rows.axis != 0 or len(rows.shape) != 2:
        raise call.mixes("counts over all rows")
    dim = call.size_of(call.uniform(size, "number of bins"))
    none = isinstance(weights, Uniform) and weights.shape is not None and product(weights.shape) == 0
    alike = isinstance(weights, Rows) and (weights.axis, weights.layout, len(weights.shape)) == (0, rows.layout, 2)
    if not (none or alike):
        raise call.unknown("its weights are not one for each number")
    return rows_at((rows.shape[0], dim), 0, rows)
