"""Operations that take or set elements by their places."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Index,
    Numbers,
    Offsets,
    Places,
    Rows,
    Size,
    Splits,
    Uniform,
    Value,
    all_uniform,
    constant,
    entries_of,
    ints_of,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, normal_axis, rule
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Dim, Shape, has_space, symbol
from app.runtimes.tensorflow.row_proof.loops import is_this_row
from app.runtimes.tensorflow.row_proof.rules.shaping import is_vector

# --- gathering ---


@rule("Gather GatherV2 ResourceGather")
def gather(call: Call, params: Value, indices: Value, axis: Value = Uniform((), (0,))) -> Results:  # noqa: B008 - it is frozen
    # 1. Sizes of a shape.
    batch = call.number("batch_dims")
    if isinstance(params, Size) or (is_vector(params) and isinstance(indices, Uniform) and indices.ints is not None):
        places, shape = constant(indices), indices.shape if isinstance(indices, Uniform) else None
        if places is None or shape is None or len(shape) > 1:
            raise call.unknown("which sizes it takes is not known")
        ints = ints_of(params) or ()
        return numbers_of(shape, tuple([ints[each] for each in places]))

    # 2. Numbers of rows, and places of rows and of distinct entries.
    # ResourceGather has no operand for its axis: it is the first one behind those of the batch.
    (place,) = (batch,) if call.node.op == "ResourceGather" else call.constant(axis, "axis")
    if isinstance(params, Rows) and is_this_row(indices) and batch == 0 and isinstance(indices, Size):
        return _this_row(call, params, indices, place)
    if isinstance(indices, Count | Size):
        raise call.mixes("takes entries by the number of rows, or the place of a row")
    if isinstance(params, Places) and isinstance(indices, Numbers):
        return _some_places(call, params, indices, place)
    if isinstance(params, Places):
        return _column(call, params, indices, place)
    if isinstance(indices, Index):
        return _of_distinct(call, params, indices, place)
    if isinstance(params, Splits) and isinstance(indices, Splits):
        return _splits_of_splits(call, params, indices, place)
    if isinstance(params, Numbers | Splits | Index | Offsets) or isinstance(indices, Places | Splits | Offsets):
        raise call.unknown("it takes entries of the places of rows")

    # 3. Entries of rows or of what all requests share.
    shape = call.shape(params)
    index_shape = indices.rows.shape if isinstance(indices, Numbers) else call.shape(indices)
    place = normal_axis(call, place, len(shape))
    batch = batch % (len(index_shape) + 1) if batch < 0 else batch
    new = (*shape[:place], *index_shape[batch:], *shape[place + 1 :])
    if isinstance(params, Uniform) and isinstance(indices, Uniform):
        return Uniform(new)
    if batch:
        return _gather_by_batch(call, params, indices, place, batch, new)
    if isinstance(params, Uniform) and isinstance(indices, Rows):
        return rows_at(new, place + indices.axis, indices)
    rows = call.rows(params)
    if isinstance(indices, Numbers):
        return _gather_by_number(call, rows, indices, place, new)
    if isinstance(indices, Rows):
        raise call.mixes("takes entries by the values of all rows")
    if place == rows.axis:
        raise call.mixes(f"takes places of the rows, axis {place} of its input")
    return rows_at(new, rows.axis + (len(index_shape) - 1 if rows.axis > place else 0), rows)


def _this_row(call: Call, params: Rows, indices: Size, axis: int) -> Value:
    """The row of the present iteration, in a loop over rows."""
    axis = normal_axis(call, axis, len(params.shape))
    if axis != params.axis or not params.plain or params.space != ROWS:
        raise call.unknown("it takes an entry by the place of a row")
    return Uniform((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]), None, True)


def _column(call: Call, params: Places, indices: Value, axis: int) -> Value:
    columns, column = params.rows.shape[-1], constant(indices)
    last = len(params.rows.shape) - 1
    if normal_axis(call, axis, last + 1) != last or column is None or len(column) != 1 or not isinstance(columns, int):
        raise call.unknown("it takes entries of the places of rows")
    shape = (*params.rows.shape[:-1], *(call.shape(indices)))
    rows = rows_at(shape, params.rows.axis, params.rows)
    return Numbers(rows, symbol(params.of)) if column[0] % columns == 0 else rows


def _splits_of_splits(call: Call, inner: Splits, outer: Splits, axis: int) -> Value:
    """The row splits of a ragged tensor whose two outermost dimensions are merged into one."""
    if inner.of != outer.entries or axis != 0:
        raise call.unknown("it takes entries of the row splits of another ragged tensor")
    return Splits(inner.entries, outer.of)


def _some_places(call: Call, params: Places, indices: Numbers, axis: int) -> Value:
    """The lines of an index matrix with these numbers: the lines of kept entries."""
    lines = params.rows
    if axis != 0 or lines.axis != 0 or not lines.plain or indices.limit != lines.shape[0]:
        raise call.mixes("takes places of rows by the places of others")
    if indices.rows.axis != 0 or len(indices.rows.shape) != 1:
        raise call.unknown("it takes places of rows in another order")
    return Places(rows_at((*indices.rows.shape, *lines.shape[1:]), 0, indices.rows), params.of)


def _gather_by_batch(call: Call, params: Value, indices: Value, axis: int, batch: int, new: Shape) -> Value:
    rows = [each for each in (params, indices) if isinstance(each, Rows)]
    if len(rows) < 2:
        raise call.unknown("it takes from rows and from what is the same for all rows, side by side")
    a, b = rows
    if a.axis != b.axis or a.layout != b.layout or a.axis >= batch or axis < batch:
        raise call.unknown("it takes entries from rows that are laid out differently")
    return rows_at(new, a.axis, a)


def _of_distinct(call: Call, params: Value, indices: Index, axis: int) -> Value:
    """For each entry, the value that was computed for the equal distinct entry."""
    rows = call.rows(params)
    axis = normal_axis(call, axis, len(rows.shape))
    if rows.space not in {indices.of, ROWS}:
        raise call.unknown("it takes distinct entries by the order of others")
    if rows.axis != axis or rows.space != indices.of or not rows.plain:
        raise call.mixes("takes entries by their order among all rows")
    new = (*rows.shape[:axis], *indices.rows.shape, *rows.shape[axis + 1 :])
    return rows_at(new, axis + indices.rows.axis, indices.rows)


@rule("Unique UniqueV2")
def unique(call: Call, value: Value, axis: Value = Uniform((1,), (0,))) -> Results:  # noqa: B008 - it is frozen
    """The distinct entries, and for each entry the number of the equal distinct entry."""
    if all_uniform(value, axis) and isinstance(value, Uniform):
        shape = value.shape
        return [Uniform(None if shape is None else (call.symbols.fresh(),) if len(shape) == 1 else None), Uniform()]
    rows = call.rows(value)
    places = call.constant(axis, "axis")
    if (
        rows.axis != 0
        or (places and normal_axis(call, places[0], len(rows.shape)) != 0)
        or (not places and len(rows.shape) != 1)
    ):
        raise call.mixes("compares the entries of all rows")
    space = call.symbols.new_space()
    return [entries_of(space, *rows.shape[1:]), Index(rows_at((rows.shape[0],), 0, rows), space)]


def _gather_by_number(call: Call, params: Rows, indices: Numbers, axis: int, new: Shape) -> Value:
    if axis != params.axis or params.shape[axis] != indices.limit or params.outer != 1:
        raise call.mixes("takes an entry by the place of a row")
    return rows_at(new, axis + indices.rows.axis, indices.rows)


@rule("GatherNd ResourceGatherNd")
def gather_nd(call: Call, params: Value, indices: Value) -> Results:
    if isinstance(indices, Count | Size):
        raise call.mixes("takes entries by the number of rows")
    shape = call.shape(params)
    index_shape = indices.rows.shape if isinstance(indices, Numbers | Places) else call.shape(indices)
    count = index_shape[-1]
    if not isinstance(count, int):
        raise call.unknown("how many axes it takes places of is not known")
    new = (*index_shape[:-1], *shape[count:])
    # 1. Of a uniform tensor, by places of any values.
    if isinstance(params, Uniform) and isinstance(indices, Uniform):
        return Uniform(new)
    if isinstance(params, Uniform) and isinstance(indices, Rows) and indices.axis < len(index_shape) - 1:
        return rows_at(new, indices.axis, indices)
    if isinstance(params, Uniform):
        raise call.mixes("takes entries by the places of rows")
    # 2. Of rows, by places that name their rows.
    rows = call.rows(params)
    if isinstance(indices, Places):
        if rows.axis != 0 or not rows.plain or rows.space != indices.of:
            raise call.mixes("takes entries by the places of rows")
        return rows_at(new, indices.rows.axis, indices.rows)
    if (
        isinstance(indices, Numbers)
        and count == 1
        and indices.rows.shape[-1] == 1
        and indices.rows.axis < len(index_shape) - 1
    ):
        if rows.axis != 0 or rows.outer != 1 or rows.shape[0] != indices.limit:
            raise call.mixes("takes an entry by the place of a row")
        return rows_at(new, indices.rows.axis, indices.rows)
    # 3. Of rows, by the same places of each row.
    if isinstance(indices, Uniform) and rows.axis >= count:
        return rows_at(new, rows.axis - count + len(index_shape) - 1, rows)
    raise call.mixes("takes entries of the rows by places that are the same for all, or by values of all rows")


# --- masks ---


@rule("Where")
def where(call: Call, condition: Value) -> Results:
    """The places of elements that are not 0: any number for each row."""
    if isinstance(condition, Uniform):
        shape = condition.shape
        return Uniform(None if shape is None else (call.symbols.fresh(), len(shape)))
    rows = call.rows(condition)
    if rows.axis != 0 or rows.outer != 1:
        raise call.unknown("the rows do not lie along axis 0, so it gives places of all rows in turn")
    if rows.block != 1:
        raise call.unknown("it gives places in an axis with several entries a row")
    space = call.symbols.new_space()
    return Places(entries_of(space, len(rows.shape)), rows.space)


# --- scattering ---


@rule("ScatterNd")
def scatter_nd(call: Call, indices: Value, updates: Value, shape: Value) -> Results:
    wanted = ints_of(shape)
    if all_uniform(indices, updates, shape):
        return Uniform(wanted)
    if wanted is None:
        raise call.unknown("the shape that it makes is not known")
    return _scattered(call, indices, updates, wanted)


def _scattered(call: Call, indices: Value, updates: Value, wanted: Shape) -> Rows:
    if isinstance(indices, Rows):
        raise call.mixes("sets entries by the values of all rows")
    if not isinstance(indices, Places):
        raise call.unknown("where it sets entries is not followed")
    rows = call.rows(updates)
    if (rows.axis, rows.layout) != (indices.rows.axis, indices.rows.layout) or rows.axis >= len(indices.rows.shape) - 1:
        raise call.unknown("its places and what it sets are laid out differently")
    if not wanted or wanted[0] != symbol(indices.of) or any(map(has_space, wanted[1:])):
        raise call.unknown("it does not make one row for each row")
    return Rows(wanted, 0, space=indices.of)


@rule("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin")
def scatter_into(call: Call, tensor: Value, indices: Value, updates: Value) -> Results:
    if all_uniform(tensor, indices, updates):
        return Uniform(call.shape(tensor))
    rows = call.rows(tensor)
    if rows.axis != 0 or not rows.plain:
        raise call.unknown("it sets entries of rows that do not lie along axis 0")
    return _scattered(call, indices, updates, rows.shape)


# --- order within an axis ---


@rule("TopK TopKV2")
def top_k(call: Call, value: Value, k: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    shape = call.shape(value)
    count = call.uniform(k, "number of entries") if call.node.op == "TopKV2" else Uniform((), (call.number("k"),))
    new = (*shape[:-1], call.size_of(count))
    return [call.along(value, [-1], mixes="takes the greatest of the rows, axis {} of its input", shape=new)] * 2


@rule("ReverseV2")
def reverse(call: Call, value: Value, axes: Value) -> Results:
    return call.along(value, call.constant(axes, "axes"), unknown="it turns round the rows, axis {} of its input")


@rule("Roll")
def roll(call: Call, value: Value, shift: Value, axes: Value) -> Results:
    call.uniform(shift, "shift")
    return call.along(value, call.constant(axes, "axes"), unknown="it shifts the rows, axis {} of its input")


@rule("ReverseSequence")
def reverse_sequence(call: Call, value: Value, lengths: Value) -> Results:
    shape = call.shape(value)
    sequence, batch = (
        normal_axis(call, call.number("seq_dim"), len(shape)),
        normal_axis(call, call.number("batch_dim"), len(shape)),
    )
    if isinstance(value, Uniform) and isinstance(lengths, Uniform):
        return Uniform(shape)
    rows = call.rows(call.along(value, [sequence], mixes="turns round the rows, axis {} of its input"))
    if isinstance(lengths, Rows) and (rows.axis != batch or lengths.axis != 0 or lengths.layout != rows.layout):
        raise call.unknown("its lengths are not one for each row")
    if isinstance(lengths, Uniform) and rows.axis == batch:
        raise call.unknown("its lengths are the same for all rows")
    return rows if isinstance(lengths, Rows | Uniform) else call.rows(lengths)


@rule("OneHot")
def one_hot(call: Call, indices: Value, depth: Value, on: Value, off: Value) -> Results:
    shape = call.shape(indices)
    if isinstance(depth, Count | Size):
        raise call.mixes("is as deep as there are rows")
    call.check_uniform("depth or value", depth, on, off)
    axis = call.number("axis", -1)
    axis = len(shape) if axis == -1 else axis
    new = (*shape[:axis], call.size_of(depth), *shape[axis:])
    return call.shaped(indices, new, lambda before: before + (axis <= before))


# --- padding ---


@rule("Pad PadV2 MirrorPad")
def pad(call: Call, value: Value, paddings: Value, fill: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    shape = call.shape(value)
    call.uniform(paddings, "paddings"), call.uniform(fill, "value")
    known = constant(paddings)
    if not isinstance(value, Uniform) and (known is None or len(known) != 2 * len(shape)):
        raise call.unknown("where it adds entries is not known")
    grown = [axis for axis in range(len(shape)) if known is None or any(known[2 * axis : 2 * axis + 2])]
    new = tuple([_padded(call, dim, known, axis) if axis in grown else dim for axis, dim in enumerate(shape)])
    return call.along(value, grown, unknown="it adds entries along the rows, axis {} of its input", shape=new)


def _padded(call: Call, dim: Dim, known: list[int] | None, axis: int) -> Dim:
    if known is None:
        return call.symbols.fresh()
    more = known[2 * axis] + known[2 * axis + 1]
    return dim + more if isinstance(dim, int) else call.size("+", dim, more)
