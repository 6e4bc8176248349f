"""Operations over the last axes, each matrix or vector by itself."""

from __future__ import annotations

import tensorflow as tf

from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape
from app.runtimes.tensorflow.row_proof.rules.elementwise import broadcast
from app.runtimes.tensorflow.row_proof.values import Uniform, Value, constant, ints_of, rows_at


@rule("MatrixBandPart")
def band(call: Call, value: Value, lower: Value, upper: Value) -> Results:
    call.uniform(lower, "band"), call.uniform(upper, "band")
    return _last_axes(call, value, 2)


@rule("Cholesky MatrixInverse")
def of_matrices(call: Call, value: Value) -> Results:
    return _last_axes(call, value, 2)


def _last_axes(call: Call, value: Value, count: int) -> Value:
    """What is computed over the last axes and keeps the shape."""
    shape = call.shape(value)
    if isinstance(value, Uniform):
        return Uniform(shape)
    rows = call.rows(value)
    if rows.axis >= len(shape) - count:
        raise call.mixes(f"computes over the rows, axis {rows.axis} of its input")
    return rows


@rule("FFT IFFT FFT2D IFFT2D FFT3D IFFT3D")
def transform(call: Call, value: Value) -> Results:
    return _last_axes(call, value, int(call.node.op[-2]) if call.node.op.endswith("D") else 1)


@rule("RFFT IRFFT")
def transform_real(call: Call, value: Value, length: Value) -> Results:
    call.uniform(length, "length")
    known = ints_of(length)
    result = _last_axes(call, value, 1)
    size = known[0] if known else None
    if isinstance(size, int):
        last: Dim = size // 2 + 1 if call.node.op == "RFFT" else size
    else:
        last = call.symbols.fresh()
    if isinstance(result, Uniform):
        return Uniform((*call.shape(result)[:-1], last))
    rows = call.rows(result)
    return rows_at((*rows.shape[:-1], last), rows.axis, rows)


@rule("Cross")
def cross(call: Call, a: Value, b: Value) -> Results:
    result = broadcast(call, a, b)
    return _last_axes(call, result, 1)


@rule("MatrixDiagV3 MatrixDiagV2")
def make_diagonals(call: Call, value: Value, k: Value, height: Value, width: Value, fill: Value) -> Results:
    """A matrix for each vector, or each band, of the last axes."""
    for each in (k, height, width, fill):
        call.uniform(each, "place or size")
    shape = call.shape(value)
    if constant(k) != [0]:
        raise call.unknown("it makes other diagonals than the main one")
    sides: list[Dim] = [shape[-1] if constant(side) == [-1] else call.symbols.fresh() for side in (height, width)]
    if constant(height) != [-1] or constant(width) != [-1]:
        sides = [call.symbols.fresh(), call.symbols.fresh()]
    return _reshaped_last(call, value, 1, (*shape[:-1], *sides))


@rule("MatrixDiagPartV3 MatrixDiagPartV2")
def take_diagonals(call: Call, value: Value, k: Value, fill: Value) -> Results:
    call.uniform(k, "place"), call.uniform(fill, "value")
    shape = call.shape(value)
    if constant(k) != [0]:
        raise call.unknown("it takes other diagonals than the main one")
    side = shape[-1] if shape[-1] == shape[-2] else call.symbols.fresh()
    return _reshaped_last(call, value, 2, (*shape[:-2], side))


def _reshaped_last(call: Call, value: Value, count: int, new: Shape) -> Value:
    """What is computed over the last axes and gives others in their place."""
    kept = _last_axes(call, value, count)
    return Uniform(new) if isinstance(kept, Uniform) else rows_at(new, call.rows(kept).axis, call.rows(kept))


@rule("Bitcast")
def bitcast(call: Call, value: Value) -> Results:
    """Between types of equal size; others add or remove a last axis."""
    from_type, to_type = (_bytes_of(call.attributes[name].type) for name in ("T", "type"))
    if from_type != to_type:
        raise call.unknown("it changes the number of dimensions")
    return broadcast(call, value)


def _bytes_of(type_number: int) -> int:
    return int(tf.as_dtype(type_number).size)


@rule("LowerBound UpperBound")
def search(call: Call, sorted_values: Value, values: Value) -> Results:
    """Each row of values in the same row of the sorted ones."""
    shape = call.shape(values)
    if isinstance(sorted_values, Uniform) and isinstance(values, Uniform):
        return Uniform(shape)
    a, b = call.rows(sorted_values), call.rows(values)
    if a.axis != 0 or b.axis != 0 or len(a.shape) != 2 or a.layout != b.layout:
        raise call.unknown("it searches in rows that are laid out differently")
    return b


@rule("InTopK InTopKV2")
def in_top(call: Call, predictions: Value, targets: Value, k: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    call.uniform(k, "number")
    if isinstance(predictions, Uniform) and isinstance(targets, Uniform):
        return Uniform(call.shape(targets))
    a, b = call.rows(predictions), call.rows(targets)
    if a.axis != 0 or b.axis != 0 or a.layout != b.layout:
        raise call.unknown("its targets are not one for each row")
    return b


@rule("ExtractImagePatches")
def patches(call: Call, value: Value) -> Results:
    shape = call.shape(value)
    if call.numbers("ksizes")[0] != 1 or call.numbers("strides")[0] != 1 or call.numbers("rates")[0] != 1:
        raise call.mixes("takes patches over rows")
    new = (shape[0], call.symbols.fresh(), call.symbols.fresh(), call.symbols.fresh())
    if isinstance(value, Uniform):
        return Uniform(new)
    rows = call.rows(value)
    if rows.axis != 0:
        raise call.unknown("the rows do not lie along axis 0")
    return rows_at(new, 0, rows)


@rule("SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(call: Call, logits: Value, labels: Value) -> Results:
    """A loss for each row."""
    a, b = call.rows(logits), call.rows(labels)
    if a.axis != 0 or b.axis != 0 or a.layout != b.layout:
        raise call.unknown("its labels are not one for each row")
    return [b, a]
