"""Operations that keep a sparse tensor, made within the graph or sent by callers (sparse_inputs.py).

Its entries have the place of a row. Operations that make dense rows of it are in segments.py.
"""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Uniform, Value, ints_of
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import symbol
from app.runtimes.tensorflow.row_proof.rules.segments import sparse_entries


@rule("SparseReorder")
def reorder(call: Call, indices: Value, values: Value, shape: Value) -> Results:
    """The entries in the order of places: entries of a row stay behind those of the rows before it."""
    return sparse_entries(call, indices, values)


@rule("SparseSoftmax")
def sparse_softmax(call: Call, indices: Value, values: Value, shape: Value) -> Results:
    """A softmax over the last axis: there are two at least, so the rows are another one."""
    return sparse_entries(call, indices, values)[1]


@rule("SparseDenseCwiseMul SparseDenseCwiseDiv SparseDenseCwiseAdd")
def with_dense(call: Call, indices: Value, values: Value, shape: Value, dense: Value) -> Results:
    """An entry meets the element of the dense tensor at its place, or at its place within the row."""
    places, rows = sparse_entries(call, indices, values)
    sizes, columns = call.shape(dense), places.rows.shape[-1]
    wanted = ints_of(shape)
    if not isinstance(columns, int) or wanted is None or wanted[0] != symbol(places.of):
        raise call.unknown("its shape does not say one row for each row")
    if isinstance(dense, Uniform) and (len(sizes) < columns or (len(sizes) == columns and sizes[0] == 1)):
        return rows
    form = (dense.axis, dense.space, dense.plain) if isinstance(dense, Rows) else None
    if form == (0, places.of, True) and len(sizes) == columns:
        return rows
    raise call.unknown("its dense tensor is not the same for all rows, and has not one row for each")
