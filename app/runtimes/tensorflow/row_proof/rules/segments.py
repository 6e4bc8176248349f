"""Sums and the like of entries that have the same number, and sparse tensors, whose entries have the place of a row.

Entries are added to their own row if their numbers are the places of rows. Operations that make as many rows as the
last number says leave out rows without entries at the end; so each row must have an entry (SparseFillEmptyRows).
"""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Shape, has_space, spaces, symbol
from app.runtimes.tensorflow.row_proof.values import (
    Index,
    Numbers,
    Places,
    Rows,
    Size,
    Taint,
    Uniform,
    Value,
    constant,
    ints_of,
    rows_at,
)


def all_uniform(*values: Value) -> bool:
    return all(isinstance(each, Uniform) for each in values)


@rule("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentJoin")
def unsorted_segments(call: Call, value: Value, numbers: Value, count: Value) -> Results:
    shape = call.shape(value)
    if isinstance(numbers, Uniform) and isinstance(count, Uniform):
        return _by_fixed_numbers(call, value, shape, numbers, count)
    own = _of_own_rows(call, value, numbers)
    if own is None:
        raise call.mixes("adds up entries of all rows by their values")
    if not isinstance(count, Size) or count.ints != (symbol(own),):
        raise call.unknown("it does not make one row for each row")
    return Rows((symbol(own), *shape[1:]), 0, space=own)


def _by_fixed_numbers(call: Call, value: Value, shape: Shape, numbers: Uniform, count: Uniform) -> Value:
    first, known = call.shape(numbers), ints_of(count)
    size = known[0] if known and call.symbols.is_size(known[0]) else call.symbols.fresh()
    new = (size, *shape[len(first) :])
    if isinstance(value, Uniform):
        return Uniform(new)
    rows = call.rows(value)
    if rows.axis < len(first):
        raise call.mixes("adds up rows by numbers that are the same for all")
    return rows_at(new, rows.axis - len(first) + 1, rows)


def _of_own_rows(call: Call, value: Value, numbers: Value) -> int | None:
    """The space of the rows that the entries of `value` belong to, if `numbers` say so for each; else None."""
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
    if all_uniform(value, numbers, *count):
        return Uniform()
    own = _of_own_rows(call, value, numbers)
    if own is None and isinstance(numbers, Rows) and isinstance(value, Rows) and numbers.axis == value.axis == 0:
        raise call.mixes("adds up rows that have the same number, whoever sent them")
    if own is None or count:
        raise call.unknown("it adds up entries by numbers that are not followed")
    return _one_each(call, own, call.rows(value).space, call.shape(value)[1:])


def _one_each(call: Call, own: int, entries: int, shape: Shape) -> Rows:
    if not call.symbols.is_full(entries):
        raise call.unknown("it leaves out rows at the end that have no entries")
    return Rows((symbol(own), *shape), 0, space=own)


@rule("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN")
def sparse_segments(call: Call, params: Value, indices: Value, numbers: Value) -> Results:
    """params[indices], added up by numbers: of rows of a table, or of what was computed of each distinct entry."""
    if all_uniform(params, indices, numbers):
        return Uniform()
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
    own = _of_own_rows(call, taken, numbers)
    assert own is not None
    return _one_each(call, own, call.rows(taken).space, shape[1:])


# --- sparse tensors ---


@rule("SparseFillEmptyRows")
def fill_empty(call: Call, indices: Value, values: Value, shape: Value, default: Value) -> Results:
    """Gives rows without entries one."""
    if all_uniform(indices, values, shape, default):
        return Uniform()
    call.uniform(default, "default")
    rows = sparse_entries(call, indices, values)
    assert isinstance(indices, Places)
    wanted = ints_of(shape)
    if wanted is None or wanted[0] != symbol(indices.of):
        raise call.unknown("its shape does not say one row for each row")
    space = call.symbols.new_space()
    call.symbols.fill(space)
    columns = indices.rows.shape[-1]
    places = Places(Rows((symbol(space), columns), 0, space=space), indices.of)
    empty = Rows((symbol(indices.of),), 0, space=indices.of)
    order = Taint("unknown", f"{call.name}: the order of its entries is not followed")
    return [places, Rows((symbol(space), *rows.shape[1:]), 0, space=space), empty, order]


def sparse_entries(call: Call, indices: Value, values: Value) -> Rows:
    """The values of a sparse tensor, one for each of its places."""
    rows = call.rows(values)
    lies = isinstance(indices, Places) and indices.rows.axis == 0 and len(indices.rows.shape) == 2
    if (
        not lies
        or not isinstance(indices, Places)
        or rows.axis != 0
        or rows.layout != indices.rows.layout
        or not rows.plain
    ):
        raise call.unknown("its entries are not those of rows")
    return rows


@rule("SparseReshape")
def sparse_reshape(call: Call, indices: Value, shape: Value, wanted: Value) -> Results:
    """One that keeps the rows, and the columns of the index matrix."""
    if all_uniform(indices, shape, wanted):
        return [Uniform(), Uniform()]
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
    sparse_entries(call, indices, values)
    return _dense_rows(call, indices, wanted)


def _dense_rows(call: Call, indices: Value, wanted: Shape | None) -> Rows:
    assert isinstance(indices, Places)
    if (
        not wanted
        or wanted[0] != symbol(indices.of)
        or any(map(has_space, wanted[1:]))
        or len(wanted) != indices.rows.shape[-1]
    ):
        raise call.unknown("it does not make one row of a fixed length for each row")
    return Rows(wanted, 0, space=indices.of)


@rule("SparseTensorDenseMatMul")
def sparse_product(call: Call, indices: Value, values: Value, shape: Value, dense: Value) -> Results:
    """A row of the sparse matrix for each row, times a matrix that is the same for all."""
    if all_uniform(indices, values, shape, dense):
        return Uniform()
    sparse_entries(call, indices, values)
    assert isinstance(indices, Places)
    matrix = call.shape(call.uniform(dense, "matrix"))
    wanted = ints_of(shape)
    if call.flag("adjoint_a") or call.flag("adjoint_b") or wanted is None or wanted[0] != symbol(indices.of):
        raise call.unknown("it sums over the rows, or its shape is not known")
    return Rows((symbol(indices.of), matrix[1]), 0, space=indices.of)


@rule("SparseReduceSum SparseReduceMax")
def sparse_sum(call: Call, indices: Value, values: Value, shape: Value, axes: Value) -> Results:
    if all_uniform(indices, values, shape, axes):
        return Uniform()
    sparse_entries(call, indices, values)
    assert isinstance(indices, Places)
    wanted, places = ints_of(shape), constant(axes)
    if wanted is None or wanted[0] != symbol(indices.of) or places is None or len(wanted) != 2:
        raise call.unknown("its shape or axes are not known")
    if [each % 2 for each in places] != [1]:
        raise call.mixes("runs over all rows")
    return Rows((symbol(indices.of), 1) if call.flag("keep_dims") else (symbol(indices.of),), 0, space=indices.of)
