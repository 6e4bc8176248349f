"""Sums and the like of entries with equal numbers, and sparse tensors, whose entries have the place of a row.

Entries are added to their row if their numbers are the places of rows. Operations that make rows up to the last number
leave out rows without entries at the end; so each row must have an entry (SparseFillEmptyRows).
"""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Index,
    Numbers,
    Places,
    Rows,
    Size,
    Taint,
    Uniform,
    Value,
    all_uniform,
    constant,
    entries_of,
    ints_of,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Shape, has_space, spaces, symbol


@rule("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentJoin")
def unsorted_segments(call: Call, value: Value, numbers: Value, count: Value) -> Results:
    shape = call.shape(value)
    if isinstance(numbers, Uniform) and isinstance(count, Uniform):
        return _by_fixed_numbers(call, value, shape, numbers, count)
    space = _space_of_rows(call, value, numbers)
    if space is None:
        raise call.mixes("adds up entries of all rows by their values")
    if not isinstance(count, Size) or count.ints != (symbol(space),):
        raise call.unknown("it does not make one row for each row")
    return entries_of(space, *shape[1:])


def _by_fixed_numbers(call: Call, value: Value, shape: Shape, numbers: Uniform, count: Uniform) -> Value:
    first = call.shape(numbers)
    new = (call.size_of(count), *shape[len(first) :])
    if isinstance(value, Rows) and value.axis < len(first):
        raise call.mixes("adds up rows by numbers that are the same for all")
    return call.shaped(value, new, lambda before: before - len(first) + 1)


def _space_of_rows(call: Call, value: Value, numbers: Value) -> int | None:
    """The space of the rows to which `numbers` assigns the entries of `value`; None without numbers of rows."""
    if not isinstance(numbers, Numbers) or not isinstance(value, Rows):
        return None
    lie = numbers.rows
    if lie.axis != 0 or len(lie.shape) != 1 or value.axis != 0 or lie.layout != value.layout:
        raise call.unknown("its numbers and what it adds up are laid out differently")
    found = spaces(numbers.limit)
    if len(found) != 1 or numbers.limit != symbol(found[0]):
        raise call.unknown("its numbers are not the places of rows")
    return found[0]


@rule("""
    SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd SegmentSumV2 SegmentMaxV2 SegmentMinV2 SegmentProdV2
""")
def segments(call: Call, value: Value, numbers: Value, *count: Value) -> Results:
    space = _space_of_rows(call, value, numbers)
    if space is None and isinstance(numbers, Rows) and isinstance(value, Rows) and numbers.axis == value.axis == 0:
        raise call.mixes("adds up rows that have the same number, whoever sent them")
    if space is None or count:
        raise call.unknown("it adds up entries by numbers that are not followed")
    return _one_each(call, space, call.rows(value).space, call.shape(value)[1:])


def _one_each(call: Call, space: int, entries: int, shape: Shape) -> Rows:
    if not call.symbols.is_full(entries):
        raise call.unknown("it leaves out rows at the end that have no entries")
    return entries_of(space, *shape)


@rule("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN")
def sparse_segments(call: Call, params: Value, indices: Value, numbers: Value) -> Results:
    """The sums by numbers of params[indices]: rows of a table, or values of distinct entries."""
    if not isinstance(numbers, Numbers) or len(numbers.rows.shape) != 1:
        raise call.unknown("it adds up entries by numbers that are not followed")
    shape = call.shape(params)
    if isinstance(params, Uniform) and isinstance(indices, Rows):
        taken: Value = indices
    elif (
        isinstance(indices, Index)
        and isinstance(params, Rows)
        and params.axis == 0
        and params.plain
        and params.space == indices.of
    ):
        taken = indices.rows
    else:
        raise call.unknown("it adds up entries of the rows by their places")
    space = _space_of_rows(call, taken, numbers)
    assert space is not None
    return _one_each(call, space, call.rows(taken).space, shape[1:])


# --- sparse tensors ---


@rule("SparseFillEmptyRows")
def fill_empty(call: Call, indices: Value, values: Value, shape: Value, default: Value) -> Results:
    """A sparse tensor with an added entry in each empty row."""
    call.uniform(default, "default")
    places, rows = sparse_entries(call, indices, values)
    wanted = ints_of(shape)
    if wanted is None or wanted[0] != symbol(places.of):
        raise call.unknown("its shape does not say one row for each row")
    space = call.symbols.new_space()
    call.symbols.fill(space)
    filled = Places(entries_of(space, places.rows.shape[-1]), places.of)
    order = Taint("unknown", f"{call.name}: the order of its entries is not followed")
    return [filled, entries_of(space, *rows.shape[1:]), entries_of(places.of), order]


def sparse_entries(call: Call, indices: Value, values: Value) -> tuple[Places, Rows]:
    """The places of a sparse tensor, and its values, one for each place."""
    rows = call.rows(values)
    if isinstance(indices, Places) and len(indices.rows.shape) == 2:
        lie = indices.rows
        if lie.axis == rows.axis == 0 and lie.layout == rows.layout and rows.plain:
            return indices, rows
    raise call.unknown("its entries are not those of rows")


@rule("SparseReshape")
def sparse_reshape(call: Call, indices: Value, shape: Value, wanted: Value) -> Results:
    """A shape that keeps the rows, and the columns of the index matrix."""
    before, after = ints_of(shape), ints_of(wanted)
    if not isinstance(indices, Places) or before is None or after is None or not isinstance(shape, Size):
        raise call.unknown("its entries are not those of rows")
    if before == after or (
        len(before) == len(after) == 2 and before[0] == symbol(indices.of) and (after[0], after[1]) == (-1, before[1])
    ):
        return [indices, shape]
    raise call.unknown("it lays out sparse entries differently")


@rule("SparseToDense")
def to_dense(call: Call, indices: Value, shape: Value, values: Value, default: Value) -> Results:
    wanted = ints_of(shape)
    if all_uniform(indices, shape, values, default):
        return Uniform(wanted)
    call.uniform(default, "default")
    places, _ = sparse_entries(call, indices, values)
    columns = places.rows.shape[-1]
    if not wanted or wanted[0] != symbol(places.of) or any(map(has_space, wanted[1:])) or len(wanted) != columns:
        raise call.unknown("it does not make one row of a fixed length for each row")
    return entries_of(places.of, *wanted[1:])


@rule("SparseTensorDenseMatMul")
def sparse_product(call: Call, indices: Value, values: Value, shape: Value, dense: Value) -> Results:
    """The product of a sparse matrix, with one row for each row, and a matrix that is the same for all rows."""
    places, _ = sparse_entries(call, indices, values)
    matrix = call.shape(call.uniform(dense, "matrix"))
    wanted = ints_of(shape)
    if call.flag("adjoint_a") or call.flag("adjoint_b") or wanted is None or wanted[0] != symbol(places.of):
        raise call.unknown("it sums over the rows, or its shape is not known")
    return entries_of(places.of, matrix[1])


@rule("SparseReduceSum SparseReduceMax")
def sparse_sum(call: Call, indices: Value, values: Value, shape: Value, axes: Value) -> Results:
    places, _ = sparse_entries(call, indices, values)
    wanted, summed = ints_of(shape), constant(axes)
    if wanted is None or wanted[0] != symbol(places.of) or summed is None or len(wanted) != 2:
        raise call.unknown("its shape or axes are not known")
    if [each % 2 for each in summed] != [1]:
        raise call.mixes("runs over all rows")
    return entries_of(places.of, *((1,) if call.flag("keep_dims") else ()))
