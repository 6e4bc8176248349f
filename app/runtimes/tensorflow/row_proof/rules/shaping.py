"""Operations that lay the same elements out differently, join tensors, or read shapes."""

from __future__ import annotations

from dataclasses import replace

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Index,
    Ints,
    ListOf,
    MovedOffsets,
    Numbers,
    Offsets,
    PartPlaces,
    Places,
    Rows,
    Size,
    Splits,
    Stack,
    Taint,
    Uniform,
    Value,
    all_uniform,
    constant,
    ints_of,
    numbers_of,
    rows_at,
    rows_dim,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, normal_axis, rule
from app.runtimes.tensorflow.row_proof.dimensions import (
    Dim,
    Shape,
    divided,
    has_space,
    is_space,
    product,
    spaces,
    symbol,
    times,
)
from app.runtimes.tensorflow.row_proof.rules.elementwise import text

#: The longest vector of whole numbers that is followed. Chosen.
MAX_INTS = 64

# --- shapes ---


@rule("Shape ShapeN", takes_all=True)
def shape_of(call: Call, *values: Value) -> Results:
    return [_shape_of(call, each) for each in values]


def _shape_of(call: Call, value: Value) -> Value:
    if isinstance(value, Uniform) and value.of_row:
        shape = value.shape
        known = shape is not None and all(isinstance(each, int) for each in shape)
        return Uniform(None if shape is None else (len(shape),), shape if known else None, True)
    found = full_shape(value)
    if found is not None:
        return numbers_of((len(found),), found)
    if isinstance(value, Uniform):
        return Uniform()
    if isinstance(value, Splits):
        return Size((1,), (call.symbols.one_more(symbol(value.of)),))
    return _of_hidden(call, value)


def full_shape(value: Value) -> Shape | None:
    if isinstance(value, Uniform | Rows | Size):
        return value.shape
    return value.rows.shape if isinstance(value, Numbers | Places | Index | Offsets) else None


def is_vector(value: Value) -> bool:
    """Whether it is a vector of whole numbers that are known."""
    return (
        isinstance(value, Size | Uniform)
        and value.ints is not None
        and value.shape is not None
        and len(value.shape) == 1
    )


def moved(value: Value, rows: Rows) -> Value:
    """The value with its rows laid out anew."""
    if isinstance(value, Numbers):
        return replace(value, rows=rows, counted=False)
    return replace(value, rows=rows) if isinstance(value, Index) else rows


def laid_out(call: Call, value: Value) -> Rows:
    """The layout of the rows of a tensor whose elements are only moved about."""
    return value.rows if isinstance(value, Numbers | Index) else call.rows(value)


def _of_hidden(call: Call, value: Value) -> Value:
    """The shape of a tensor whose shape is not followed."""
    reason = value.reason if isinstance(value, Taint) else "the shape of its operand is not known"
    return Taint("unknown", f"{call.name}: {reason}", value.origins)


@rule("Size Rank", takes_all=True)
def size_or_rank(call: Call, value: Value) -> Results:
    shape = full_shape(value)
    if shape is None:
        return Uniform(()) if isinstance(value, Uniform) else _of_hidden(call, value)
    if call.node.op == "Rank":
        return Uniform((), (len(shape),))
    if isinstance(value, Uniform) and value.of_row:
        return Uniform((), None, True)
    return numbers_of((), (product(shape),))


# --- reshape ---


@rule("Reshape")
def reshape(call: Call, value: Value, shape: Value) -> Results:
    wanted = ints_of(shape)
    if wanted is None:
        return _of_unknown_shape(call, value, shape)
    ints = ints_of(value)
    if ints is not None and isinstance(value, Size | Uniform) and value.shape is not None and len(wanted) <= 1:
        return numbers_of((len(ints),) if wanted else (), ints)
    if isinstance(value, Uniform):
        return _of_uniform(call, value, wanted)
    if isinstance(value, Places) and value.rows.axis == 0 and value.rows.shape[1:] == (1,) and wanted == (-1,):
        return Numbers(rows_at(value.rows.shape[:1], 0, value.rows), symbol(value.of))
    if places := _of_parts(value, wanted):
        return places
    return moved(value, _reshaped(call, laid_out(call, value), wanted))


def _of_parts(value: Value, wanted: Ints) -> PartPlaces | None:
    """The places of the rows of a stack, if it is those that are reshaped."""
    if isinstance(value, PartPlaces) and value.by_row and wanted == (-1,):
        return replace(value, flat=True)
    if isinstance(value, Numbers) and value.counted and len(wanted) == 2 and wanted[1] == -1:
        parts = wanted[0]
        if isinstance(parts, int) and parts > 1 and value.limit == times(symbol(value.rows.space), parts):
            return PartPlaces(parts, value.rows.space)
    return None


def _of_unknown_shape(call: Call, value: Value, shape: Value) -> Uniform:
    """The result of the shape `shape`, whose sizes are not known."""
    if isinstance(value, Uniform) and isinstance(shape, Uniform):
        return Uniform(_unknown_shape(call, shape))
    raise call.unknown("the shape that it makes is not known")


def _unknown_shape(call: Call, shape: Uniform) -> Shape | None:
    """A shape of unknown sizes, as many as the vector `shape` has elements; None if that is not known."""
    if shape.shape is None or len(shape.shape) != 1 or not isinstance(shape.shape[0], int):
        return None
    return tuple([call.symbols.fresh() for _ in range(shape.shape[0])])


def _of_uniform(call: Call, value: Uniform, wanted: Ints) -> Value:
    if any(map(has_space, wanted)):
        raise call.unknown("it makes rows of what is the same for all rows")
    if -1 not in wanted:
        return Uniform(_sizes(call, wanted))
    total = None if value.shape is None else product(value.shape)
    return Uniform(_sizes(call, _resolved(call, total, wanted)))


def _sizes(call: Call, dims: Shape) -> Shape:
    """The shape; a number in it that may be below 0, such as -1, is no size."""
    return tuple([dim if call.symbols.is_size(dim) else call.symbols.fresh() for dim in dims])


def _resolved(call: Call, total: Dim | None, wanted: Ints) -> Shape:
    """The shape with the size in place of -1."""
    if -1 not in wanted:
        return wanted
    place = wanted.index(-1)
    others = product((*wanted[:place], *wanted[place + 1 :]))
    left = None if total is None else divided(total, others)
    if left is None:
        if total is None or has_space(total) or has_space(others):
            raise call.unknown("it may join rows or parts of them: what -1 stands for is not known")
        left = call.size("/", total, others)
    return (*wanted[:place], left, *wanted[place + 1 :])


def _reshaped(call: Call, value: Rows, wanted: Ints) -> Rows:
    """The same elements in memory: before * space * behind, cut into axes anew."""
    shape = _resolved(call, product(value.shape), wanted)
    with_rows = [axis for axis, dim in enumerate(shape) if has_space(dim)]
    if len(with_rows) != 1:
        raise call.unknown("it makes a fixed number of rows" if not with_rows else "it makes rows along two axes")
    axis = with_rows[0]
    dim = shape[axis]
    outer = divided(value.before, product(shape[:axis]))
    block = None if outer is None else divided(dim, times(outer, symbol(value.space)))
    if outer is None or block is None or times(block, product(shape[axis + 1 :])) != value.behind:
        raise call.unknown("it may join rows or parts of them")
    return Rows(shape, axis, outer, block, value.space)


@rule("ExpandDims")
def expand(call: Call, value: Value, axis: Value) -> Results:
    if isinstance(value, Size) and value.shape == ():
        return Size((1,), value.ints)
    (place,) = call.constant(axis, "axis")
    shape = full_shape(value)
    if shape is None:
        raise call.unknown("the number of dimensions of its operand is not known")
    place = normal_axis(call, place, len(shape) + 1)
    new = (*shape[:place], 1, *shape[place:])
    if isinstance(value, Uniform):
        return Uniform(new, value.ints if value.shape == () else None)
    rows = laid_out(call, value)
    return moved(value, rows_at(new, rows.axis + (place <= rows.axis), rows))


@rule("Squeeze")
def squeeze(call: Call, value: Value) -> Results:
    axes = call.numbers("squeeze_dims")
    if isinstance(value, Places):
        return squeezed_places(call, value, axes)
    shape = full_shape(value)
    if shape is None:
        raise call.unknown("the number of dimensions of its operand is not known")
    if not axes:
        if not isinstance(value, Uniform) or not all(isinstance(each, int) for each in shape):
            raise call.unknown("it removes whatever axes have one entry, among them that of a lone row")
        axes = [axis for axis, dim in enumerate(shape) if dim == 1]
    gone = {normal_axis(call, each, len(shape)) for each in axes}
    left = tuple([dim for axis, dim in enumerate(shape) if axis not in gone])
    if isinstance(value, Uniform):
        return Uniform(left, value.ints if len(left) < 2 else None)
    if isinstance(value, Size):
        return Size(left, value.ints)
    rows = laid_out(call, value)
    if rows.axis in gone:
        raise call.unknown("it removes the axis of the rows: it takes a single row only")
    return moved(value, rows_at(left, rows.axis - sum(each < rows.axis for each in gone), rows))


def squeezed_places(call: Call, value: Places, axes: list[int]) -> Value:
    """The first column, if there is no other."""
    rank = len(value.rows.shape)
    if [normal_axis(call, each, rank) for each in axes] == [rank - 1] and value.rows.shape[-1] == 1:
        return Numbers(rows_at(value.rows.shape[:-1], value.rows.axis, value.rows), symbol(value.of))
    raise call.unknown("it removes an axis of the places of rows")


@rule("Transpose ConjugateTranspose")
def transpose(call: Call, value: Value, permutation: Value) -> Results:
    if isinstance(value, PartPlaces) and not value.by_row and constant(permutation) == [1, 0]:
        return replace(value, by_row=True)
    shape = call.shape(value)
    order = [normal_axis(call, each, len(shape)) for each in call.constant(permutation, "permutation")]
    if sorted(order) != list(range(len(shape))):
        raise call.unknown("its permutation is none")
    return call.shaped(value, tuple([shape[each] for each in order]), order.index)


# --- joining and splitting ---


@rule("Pack")
def pack(call: Call, *values: Value) -> Results:
    if all(isinstance(each, Uniform | Size) and each.shape == () for each in values):
        ints = [ints_of(each) for each in values]
        if not all_uniform(*values):
            # A uniform number that is not known is any number.
            return Size((len(values),), tuple([each[0] if each else call.symbols.any_number() for each in ints]))
        known = [each[0] for each in ints if each]
        return Uniform((len(values),), tuple(known) if len(known) == len(values) <= MAX_INTS else None)
    if isinstance(values[0], Numbers):
        return _places(call, values[0], values[1:], call.number("axis"), new_axis=True)
    first = values[0] if all_uniform(*values) else _alike(call, values)
    shape = call.shape(first)
    axis = normal_axis(call, call.number("axis"), len(shape) + 1)
    return call.shaped(first, (*shape[:axis], len(values), *shape[axis:]), lambda before: before + (axis <= before))


def _places(call: Call, numbers: Numbers, others: tuple[Value, ...], axis: int, *, new_axis: bool = False) -> Value:
    """The index matrix of the places of rows, and of the places along other axes beside them.

    new_axis: the axis of its columns is a new one of all operands.
    """
    rows, space = numbers.rows, spaces(numbers.limit)[0]
    alike = [each for each in others if isinstance(each, Rows) and (each.axis, each.layout) == (rows.axis, rows.layout)]
    columns = [(*each.shape, 1) if new_axis else each.shape for each in (rows, *alike)]
    last = len(columns[0]) - 1
    if (
        len(alike) < len(others)
        or any(shape[:-1] != columns[0][:-1] for shape in columns)
        or normal_axis(call, axis, last + 1) != last
        or rows.axis == last
        or columns[0][last] != 1
        or symbol(space) != numbers.limit
    ):
        raise call.unknown("it joins the places of rows with other numbers")
    return Places(rows_at(_concat_shape(call, columns, last), rows.axis, rows), space)


def _alike(call: Call, values: tuple[Value, ...]) -> Rows:
    """The rows of each operand, which lie along the same axis in the same way."""
    if any(isinstance(each, Count | Size | Numbers | Places | Index | Splits | Offsets | ListOf) for each in values):
        raise call.unknown("it joins rows with places or numbers of rows")
    rows = [each for each in values if isinstance(each, Rows)]
    if len(rows) < len(values):
        raise call.unknown("it joins rows with what is the same for all rows")
    if any(len(each.shape) != len(rows[0].shape) or each.axis != rows[0].axis for each in rows):
        raise call.mixes("joins rows that lie along two axes")
    if any((each.space, each.block) != (rows[0].space, rows[0].block) for each in rows):
        raise call.unknown("it joins rows that are laid out differently")
    return rows[0]


@rule("ConcatV2 Concat")
def concat(call: Call, *operands: Value) -> Results:
    values, where = (operands[:-1], operands[-1]) if call.node.op == "ConcatV2" else (operands[1:], operands[0])
    (axis,) = call.constant(where, "axis")
    # 1. Places and sizes.
    if isinstance(values[0], Numbers):
        return _places(call, values[0], values[1:], axis)
    if axis == 0 and (stack := _stacked(values)):
        return stack
    with_sizes = any(isinstance(each, Size) for each in values)
    if all(map(is_vector, values)):
        flat = tuple([each for vector in map(ints_of, values) for each in vector or ()])
        if with_sizes or len(flat) <= MAX_INTS:
            return numbers_of((len(flat),), flat)
    elif with_sizes:
        raise call.unknown("it joins sizes with numbers that are not known")
    # 2. Rows beside each other, along another axis.
    rows = values[0] if all_uniform(*values) else _alike(call, values)
    shapes = [call.shape(each) for each in values]
    axis = normal_axis(call, axis, len(shapes[0]))
    if not isinstance(rows, Rows) or axis != rows.axis:
        if len({each.outer for each in values if isinstance(each, Rows)}) > 1:
            raise call.unknown("it joins rows that are laid out differently")
        return call.shaped(rows, _concat_shape(call, shapes, axis))
    # 3. Rows behind each other: all rows are repeated.
    outer: Dim = 0
    for each in values:
        outer = _plus(call, outer, call.rows(each).outer)
    dim = rows_dim(outer, rows.space, rows.block)
    return Rows((*rows.shape[:axis], dim, *rows.shape[axis + 1 :]), axis, outer, rows.block, rows.space)


def _stacked(values: tuple[Value, ...]) -> Stack | None:
    """The values or the row splits of ragged tensors one behind the other; None if these are others."""
    first = values[0]
    if isinstance(first, Splits):
        entries = [first.entries]
        for each in values[1:]:
            if not isinstance(each, MovedOffsets) or each.of != first.of or each.behind != tuple(sorted(entries)):
                return None
            entries.append(each.entries)
        return Stack(tuple(entries), None, first.of)
    rows = [each for each in values if isinstance(each, Rows) and each.axis == 0 and each.plain]
    inner = {each.shape[1:] for each in rows}
    if len(rows) < len(values) or len(inner) > 1 or len({each.space for each in rows}) == 1:
        return None
    shape = inner.pop()
    return None if any(map(has_space, shape)) else Stack(tuple([each.space for each in rows]), shape)


def _concat_shape(call: Call, shapes: list[Shape], axis: int) -> Shape:
    dim: Dim = 0
    for shape in shapes:
        dim = _plus(call, dim, shape[axis])
    return (*shapes[0][:axis], dim, *shapes[0][axis + 1 :])


def _plus(call: Call, a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else call.size("+", *sorted((a, b), key=str))


@rule("Unpack")
def unpack(call: Call, value: Value) -> Results:
    count = call.number("num")
    if isinstance(value, Size):
        return [numbers_of((), (each,)) for each in value.ints]
    if isinstance(value, Uniform) and value.ints and value.shape is not None and len(value.shape) == 1:
        return [Uniform((), (value.ints[number],)) for number in range(count)]
    apart = f"takes apart the rows, axis {{}} of its input, into {count}"
    return [call.along(value, [call.number("axis")], mixes=apart, removes=True)] * count


@rule("Split SplitV")
def split(call: Call, *operands: Value) -> Results:
    count = call.number("num_split")
    value, sizes, where = (operands[1], None, operands[0]) if call.node.op == "Split" else operands
    (axis,) = call.constant(where, "axis")
    if isinstance(value, Size):
        raise call.unknown("it splits sizes")
    shape = call.shape(value)
    axis = normal_axis(call, axis, len(shape))
    parts = _parts(call, shape[axis], count, sizes)
    rows = value if isinstance(value, Uniform) else call.rows(value)
    if isinstance(rows, Uniform) or axis != rows.axis:
        return [call.shaped(rows, (*shape[:axis], part, *shape[axis + 1 :])) for part in parts]
    outer = divided(rows.outer, count) if sizes is None else None
    if outer is None and count > 1:
        raise call.mixes(f"splits the rows, axis {axis} of its input, into {count}")
    if outer is None:
        raise call.unknown("it splits rows")
    dim = rows_dim(outer, rows.space, rows.block)
    part = Rows((*shape[:axis], dim, *shape[axis + 1 :]), axis, outer, rows.block, rows.space)
    return [part] * count


def _parts(call: Call, dim: Dim, count: int, sizes: Value | None) -> list[Dim]:
    if sizes is None:
        exact = divided(dim, count)
        return [call.size("//", dim, count) if exact is None else exact] * count
    call.uniform(sizes, "sizes")
    known = ints_of(sizes) or ()
    return [
        known[number]
        if number < len(known) and known[number] != -1 and call.symbols.is_size(known[number])
        else call.symbols.fresh()
        for number in range(count)
    ]


# --- repetition ---


@rule("Fill")
def fill(call: Call, dims: Value, value: Value) -> Results:
    wanted = ints_of(dims)
    if not isinstance(value, Uniform):
        raise call.depends(value, "fills with the number of rows", "it fills with a value of rows")
    if wanted is None:
        return Uniform(_unknown_shape(call, call.uniform(dims, "shape")))
    if not any(map(has_space, wanted)):
        count = 1 if not wanted else wanted[0] if len(wanted) == 1 and isinstance(wanted[0], int) else MAX_INTS + 1
        known = value.ints is not None and isinstance(count, int) and count <= MAX_INTS
        return Uniform(_sizes(call, wanted), (value.ints or ()) * count if known and isinstance(count, int) else None)
    return _repeated_uniform(call, wanted)


def _repeated_uniform(call: Call, shape: Shape) -> Rows:
    """Equal rows: their order along the axis does not matter."""
    with_rows = [axis for axis, dim in enumerate(shape) if has_space(dim)]
    if len(with_rows) != 1:
        raise call.unknown("it makes rows along two axes")
    axis = with_rows[0]
    dim = shape[axis]
    found = spaces(dim)
    block = divided(dim, symbol(found[0])) if len(found) == 1 else None
    if block is None or not is_space(found[0]):
        raise call.unknown("it makes another number of rows")
    return Rows(shape, axis, 1, block, found[0])


@rule("BroadcastTo")
def broadcast_to(call: Call, value: Value, shape: Value) -> Results:
    wanted = ints_of(shape)
    if wanted is None:
        return _of_unknown_shape(call, value, shape)
    if isinstance(value, Uniform):
        if not any(map(has_space, wanted)):
            return Uniform(wanted)
        rows = _repeated_uniform(call, wanted)
        beside = rows.axis - len(wanted) + len(call.shape(value))
        if beside >= 0 and call.shape(value)[beside] != 1:
            raise call.unknown(f"it makes rows of an axis that has {text(call.shape(value)[beside])} entries, not 1")
        return rows
    rows = laid_out(call, value)
    axis = rows.axis + len(wanted) - len(rows.shape)
    if axis < 0 or wanted[axis] != rows.shape[rows.axis] or sum(map(has_space, wanted)) != 1:
        raise call.unknown("it repeats rows, or makes rows along two axes")
    return moved(value, rows_at(wanted, axis, rows))


@rule("Tile")
def tile(call: Call, value: Value, multiples: Value) -> Results:
    times_each = ints_of(multiples)
    shape = value.rows.shape if isinstance(value, Numbers | Index) else call.shape(value)
    if times_each is None:
        if isinstance(value, Uniform) and isinstance(multiples, Uniform):
            return Uniform(tuple([call.symbols.fresh() for _ in shape]))
        raise call.unknown("how often it repeats is not known")
    new = tuple([times(dim, by) for dim, by in zip(shape, times_each, strict=True)])
    if isinstance(value, Uniform):
        return _repeated_uniform(call, new) if any(map(has_space, times_each)) else Uniform(_sizes(call, new))
    rows = laid_out(call, value)
    if any(map(has_space, times_each)):
        raise call.mixes("repeats by the number of rows")
    by = times_each[rows.axis]
    if by == 0:
        raise call.unknown("it repeats rows 0 times")
    return moved(value, Rows(new, rows.axis, times(rows.outer, by), rows.block, rows.space))
