"""Operations over the last axes, which compute matrices or vectors one by one."""

from __future__ import annotations

import tensorflow as tf

from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Uniform, Value, all_uniform, constant
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape
from app.runtimes.tensorflow.row_proof.rules.elementwise import broadcast
from app.runtimes.tensorflow.row_proof.rules.linear import for_images


@rule("Cholesky MatrixBandPart MatrixInverse")
def of_matrices(call: Call, value: Value, *band: Value) -> Results:
    call.check_uniform("band", *band)
    return _last_axes(call, value, 2)


def _last_axes(call: Call, value: Value, count: int, shape: Shape | None = None) -> Value:
    """The result of an operation over the last axes, of the same shape or one with others in their place."""
    return call.along(value, range(-count, 0), mixes="computes over the rows, axis {} of its input", shape=shape)


@rule("FFT IFFT FFT2D IFFT2D FFT3D IFFT3D")
def transform(call: Call, value: Value) -> Results:
    return _last_axes(call, value, int(call.node.op[-2]) if call.node.op.endswith("D") else 1)


@rule("RFFT IRFFT")
def transform_real(call: Call, value: Value, length: Value) -> Results:
    call.uniform(length, "length")
    last: Dim
    if known := constant(length):
        last = known[0] // 2 + 1 if call.node.op == "RFFT" else known[0]
    else:
        last = call.symbols.fresh()
    return _last_axes(call, value, 1, (*call.shape(value)[:-1], last))


@rule("Cross")
def cross(call: Call, a: Value, b: Value) -> Results:
    result = broadcast(call, a, b)
    return _last_axes(call, result, 1)


@rule("MatrixDiagV3 MatrixDiagV2")
def make_diagonals(call: Call, value: Value, k: Value, height: Value, width: Value, fill: Value) -> Results:
    """A matrix for each vector, or each band, of the last axes."""
    call.check_uniform("place or size", k, height, width, fill)
    shape = call.shape(value)
    if constant(k) != [0]:
        raise call.unknown("it makes other diagonals than the main one")
    sides: list[Dim] = [shape[-1], shape[-1]]
    if constant(height) != [-1] or constant(width) != [-1]:
        sides = [call.symbols.fresh(), call.symbols.fresh()]
    return _last_axes(call, value, 1, (*shape[:-1], *sides))


@rule("MatrixDiagPartV3 MatrixDiagPartV2")
def take_diagonals(call: Call, value: Value, k: Value, fill: Value) -> Results:
    call.uniform(k, "place"), call.uniform(fill, "value")
    shape = call.shape(value)
    if constant(k) != [0]:
        raise call.unknown("it takes other diagonals than the main one")
    side = shape[-1] if shape[-1] == shape[-2] else call.symbols.fresh()
    return _last_axes(call, value, 2, (*shape[:-2], side))


@rule("Bitcast")
def bitcast(call: Call, value: Value) -> Results:
    """A cast between types of equal size. Casts between other types add or remove a last axis."""
    from_type, to_type = (tf.as_dtype(call.attributes[name].type) for name in ("T", "type"))
    if from_type.size != to_type.size:
        raise call.unknown("it changes the number of dimensions")
    return broadcast(call, value)


@rule("LowerBound UpperBound")
def search(call: Call, sorted_values: Value, values: Value) -> Results:
    """The places of values in the same row of the sorted values."""
    if all_uniform(sorted_values, values):
        return Uniform(call.shape(values))
    unlike = "it searches in rows that are laid out differently"
    rows, found = _pair(call, sorted_values, values, unlike)
    if len(rows.shape) != 2:
        raise call.unknown(unlike)
    return found


@rule("InTopK InTopKV2")
def in_top(call: Call, predictions: Value, targets: Value, k: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    call.uniform(k, "number")
    if all_uniform(predictions, targets):
        return Uniform(call.shape(targets))
    return _pair(call, predictions, targets, "its targets are not one for each row")[1]


@rule("ExtractImagePatches")
def patches(call: Call, value: Value) -> Results:
    shape = call.shape(value)
    if call.numbers("ksizes")[0] != 1 or call.numbers("strides")[0] != 1 or call.numbers("rates")[0] != 1:
        raise call.mixes("takes patches over rows")
    return for_images(call, value, (shape[0], call.symbols.fresh(), call.symbols.fresh(), call.symbols.fresh()))


@rule("SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(call: Call, logits: Value, labels: Value) -> Results:
    """A loss for each row, and its gradient for each logit."""
    first, second = _pair(call, logits, labels, "its labels are not one for each row")
    return [second, first]


def _pair(call: Call, a: Value, b: Value, unlike: str) -> tuple[Rows, Rows]:
    """Two operands with rows along axis 0 that are laid out alike."""
    first, second = call.rows(a), call.rows(b)
    if first.axis != 0 or second.axis != 0 or first.layout != second.layout:
        raise call.unknown(unlike)
    return first, second
