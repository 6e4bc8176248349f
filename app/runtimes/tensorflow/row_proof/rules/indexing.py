"""Operations that take or set elements by their places."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.call import Call, Results, normal_axis, rule
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape, divided, has_space, product, symbol, times
from app.runtimes.tensorflow.row_proof.loops import is_turn
from app.runtimes.tensorflow.row_proof.rules.shaping import full_shape, laid_out, moved
from app.runtimes.tensorflow.row_proof.values import (
    Count,
    Ints,
    Numbers,
    Places,
    Rows,
    Size,
    Splits,
    Uniform,
    Value,
    constant,
    ints_of,
    numbers_of,
    rows_at,
)

# --- slices ---


@rule("Slice")
def cut(call: Call, value: Value, begin: Value, size: Value) -> Results:
    begins, sizes = ints_of(begin), ints_of(size)
    if isinstance(value, Size) or (
        isinstance(value, Uniform) and value.ints is not None and len(value.shape or ()) == 1
    ):
        first, count = constant(begin), constant(size)
        ints = ints_of(value) or ()
        if first is None or count is None:
            raise call.unknown("where it cuts sizes is not known")
        found = ints[first[0] :] if count[0] == -1 else ints[first[0] : first[0] + count[0]]
        return numbers_of((len(found),), found)
    shape = full_shape(value) if isinstance(value, Numbers) else call.shape(value)
    assert shape is not None
    rows = None if isinstance(value, Uniform) else laid_out(call, value)
    new: list[Dim] = []
    for axis, dim in enumerate(shape):
        first_ = begins[axis] if begins else None
        count_ = sizes[axis] if sizes else None
        if rows and axis == rows.axis:
            if not (first_ == 0 and count_ in (-1, dim)):
                raise (
                    call.mixes(f"cuts axis {axis}, the rows")
                    if _fixed(first_) and _fixed(count_)
                    else call.unknown("it may cut rows")
                )
            new.append(dim)
        else:
            if (rows or True) and any(
                not isinstance(each, Uniform) and each is not begin and each is not size for each in ()
            ):
                raise call.unknown("where it cuts is not known")
            new.append(_cut_size(call, dim, first_, count_))
    for each in (begin, size):
        if not isinstance(each, Uniform | Size):
            raise call.unknown("where it cuts depends on rows")
    _no_size_beside(call, rows, begins, sizes)
    return Uniform(tuple(new)) if rows is None else moved(value, rows_at(tuple(new), rows.axis, rows))


def _fixed(dim: Dim | None) -> bool:
    return isinstance(dim, int)


def _no_size_beside(call: Call, rows: Rows | None, *vectors: Ints | None) -> None:
    """Rejects a cut of another axis by the number of rows."""
    for vector in vectors:
        for axis, dim in enumerate(vector or ()):
            if has_space(dim) and (rows is None or axis != rows.axis):
                raise call.mixes("cuts by the number of rows, or the place of a row")


def _cut_size(call: Call, dim: Dim, begin: Dim | None, count: Dim | None) -> Dim:
    if count is None or begin is None:
        return call.symbols.fresh()
    if count != -1:
        return count if call.symbols.is_size(count) else call.symbols.fresh()
    if begin == 0:
        return dim
    if isinstance(dim, int) and isinstance(begin, int):
        return dim - begin
    return call.symbols.fresh()


@rule("StridedSlice")
def strided_slice(call: Call, value: Value, begin: Value, end: Value, strides: Value) -> Results:
    spec = _Spec(call, begin, end, strides)
    if isinstance(value, Size) or (
        isinstance(value, Uniform) and value.ints is not None and len(value.shape or ()) == 1
    ):
        return _of_vector(call, value, spec)
    if isinstance(value, Splits):
        return _of_splits(call, value, spec)
    if isinstance(value, Places):
        return _of_places(call, value, spec)
    shape = full_shape(value)
    if shape is None:
        raise call.unknown("the number of dimensions of its operand is not known")
    rows = None if isinstance(value, Uniform) else laid_out(call, value)
    entries = spec.entries(len(shape))
    new: list[Dim] = []
    new_axis = -1
    turn = False
    old = 0
    for kind, number in entries:
        if kind == "new":
            new.append(1)
            continue
        dim = shape[old]
        if rows is not None and old == rows.axis:
            if kind == "shrink" and spec.is_turn(number) and rows.plain:
                turn = True
            else:
                spec.check_all_rows(kind, number, dim)
                new_axis = len(new)
                new.append(dim)
        else:
            size = spec.size(kind, number, dim)
            if size is not None:
                new.append(size)
        old += 1
    spec.check_no_sizes(rows)
    if rows is None:
        return Uniform(tuple(new))
    if turn:
        return Uniform(tuple(new), None, True) if isinstance(value, Rows) else _turn_of(call, value)
    return moved(value, rows_at(tuple(new), new_axis, rows))


def _turn_of(call: Call, value: Value) -> Value:
    raise call.mixes("takes the place of a row as a value")


class _Spec:
    """The begins, ends and strides of a StridedSlice. An element that is not known is None."""

    def __init__(self, call: Call, begin: Value, end: Value, strides: Value) -> None:
        self.call = call
        for each in (begin, end, strides):
            if not isinstance(each, Uniform | Size):
                raise (
                    call.mixes("cuts by the number of rows")
                    if isinstance(each, Count)
                    else call.unknown("where it cuts depends on rows")
                )
        self.begin, self.end, self.strides = ints_of(begin), ints_of(end), ints_of(strides)
        shape = begin.shape if isinstance(begin, Uniform | Size) else None
        count = len(self.begin) if self.begin is not None else shape[0] if shape else None
        if not isinstance(count, int):
            raise call.unknown("how many axes it cuts is not known")
        self.count = count
        names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        self.begins, self.ends, self.ellipsis, self.new, self.shrink = (call.number(name) for name in names)
        self._rows_entry = -1

    def entries(self, rank: int) -> list[tuple[str, int]]:
        """For each axis what is done with it: 'all', 'new', 'shrink' or 'cut', and the number in begin, end, strides."""
        found: list[tuple[str, int]] = []
        used = sum(not self.new >> n & 1 and not self.ellipsis >> n & 1 for n in range(self.count))
        for n in range(self.count):
            if self.ellipsis >> n & 1:
                found += [("all", -1)] * (rank - used)
            elif self.new >> n & 1:
                found.append(("new", n))
            else:
                found.append(("shrink" if self.shrink >> n & 1 else "cut", n))
        if not self.ellipsis:
            found += [("all", -1)] * (rank - used)
        if sum(kind != "new" for kind, _ in found) != rank:
            raise self.call.unknown("it cuts more axes than there are")
        return found

    def _bounds(self, number: int) -> tuple[Dim | None, Dim | None, Dim | None]:
        """Begin, end and stride; a masked end is None, as is one that is not known."""
        begin = self.begin[number] if self.begin is not None else None
        end = self.end[number] if self.end is not None else None
        return begin, end, self.strides[number] if self.strides is not None else None

    def is_turn(self, number: int) -> bool:
        begin = self._bounds(number)[0]
        if begin is None or not is_turn(Size((), (begin,))):
            return False
        self._rows_entry = number
        return True

    def check_all_rows(self, kind: str, number: int, dim: Dim) -> None:
        """Rejects a cut that leaves some rows out, or turns them round."""
        if kind == "all":
            return
        self._rows_entry = number
        begin, end, stride = self._bounds(number)
        from_first = bool(self.begins >> number & 1) or begin == 0
        to_last = bool(self.ends >> number & 1) or (end is not None and end == dim)
        if kind == "cut" and from_first and to_last and stride == 1:
            return
        text = (
            "takes one place of the rows" if kind == "shrink" else "takes some places of the rows, or turns them round"
        )
        known = stride is not None and (kind == "cut" or begin is not None)
        raise (
            self.call.mixes(text)
            if known and kind == "shrink"
            else self.call.mixes(text)
            if known and stride != 1
            else self._part(begin, end, text)
        )

    def _part(self, begin: Dim | None, end: Dim | None, text: str) -> Exception:
        constant_ = isinstance(begin, int) and isinstance(end, int)
        return self.call.mixes(text) if constant_ else self.call.unknown(f"it {text}")

    def check_no_sizes(self, rows: Rows | None) -> None:
        """Rejects cuts of other axes by the number of rows."""
        for vector, mask in ((self.begin, self.begins), (self.end, self.ends | self.shrink), (self.strides, 0)):
            for number, dim in enumerate(vector or ()):
                ignored = (mask | self.new | self.ellipsis) >> number & 1
                if has_space(dim) and number != self._rows_entry and not ignored:
                    raise self.call.mixes("cuts by the number of rows, or the place of a row")

    def size(self, kind: str, number: int, dim: Dim) -> Dim | None:
        """How many entries are left of an axis without rows; None if the axis goes."""
        if kind == "all":
            return dim
        if kind == "shrink":
            return None
        begin, end, stride = self._bounds(number)
        open_begin, open_end = bool(self.begins >> number & 1), bool(self.ends >> number & 1)
        if stride == 1 and (open_begin or begin == 0) and (open_end or (end is not None and end == dim)):
            return dim
        if (
            isinstance(dim, int)
            and isinstance(stride, int)
            and stride
            and (open_begin or isinstance(begin, int))
            and (open_end or isinstance(end, int))
        ):
            cut_ = slice(None if open_begin else begin, None if open_end else end, stride)
            return len(range(*cut_.indices(dim)))  # type: ignore[misc]  # all are int
        if stride == -1 and open_begin and open_end:
            return dim
        key = ("slice", begin if not open_begin else "", end if not open_end else "", stride)
        if (begin is None and not open_begin) or (end is None and not open_end) or stride is None:
            return self.call.symbols.fresh()
        return self.call.symbols.derived(key, dim, *[each for each in key[1:] if not isinstance(each, str)])  # type: ignore[misc]  # these are sizes


def _of_vector(call: Call, value: Size | Uniform, spec: _Spec) -> Value:
    """A cut of a vector of whole numbers that are known."""
    ints = ints_of(value) or ()
    if value.shape == () or spec.count != 1 or spec.new or spec.ellipsis:
        if isinstance(value, Uniform) and spec.count <= 2 and (spec.new or spec.ellipsis):
            return strided_slice(
                call,
                Uniform(value.shape),
                *[Uniform((spec.count,), each) for each in (spec.begin, spec.end, spec.strides)],
            )  # type: ignore[return-value]  # of one result
        raise call.unknown("it cuts sizes in a way that is not followed")
    begin, end, stride = (vector[0] if vector else None for vector in (spec.begin, spec.end, spec.strides))
    if spec.shrink & 1 and isinstance(begin, int):
        return numbers_of((), (ints[begin],))
    first = None if spec.begins & 1 else begin
    last = None if spec.ends & 1 else end
    if (
        not isinstance(first, int | None)
        or not isinstance(last, int | None)
        or not isinstance(stride, int)
        or spec.shrink
        or (begin is None and not spec.begins)
        or (end is None and not spec.ends)
    ):
        if isinstance(value, Uniform):
            return Uniform(() if spec.shrink else (call.symbols.fresh(),))
        raise call.unknown("where it cuts sizes is not known")
    found = ints[slice(first, last, stride)]
    return numbers_of((len(found),), found)


def _of_splits(call: Call, value: Splits, spec: _Spec) -> Value:
    raise call.unknown("it cuts the row splits of a ragged tensor")


def _of_places(call: Call, value: Places, spec: _Spec) -> Value:
    """One column of an index matrix."""
    shape = value.rows.shape
    entries = spec.entries(len(shape))
    kind, number = entries[-1]
    plain = all(
        each == "all" or (each == "cut" and spec.begins >> n & 1 and spec.ends >> n & 1) for each, n in entries[:-1]
    )
    if not plain or kind != "shrink" or spec.begin is None or not isinstance(spec.begin[number], int):
        raise call.unknown("it cuts the places of rows in a way that is not followed")
    column = spec.begin[number]
    rows = rows_at(shape[:-1], value.rows.axis, value.rows)
    columns = shape[-1]
    if not isinstance(column, int) or not isinstance(columns, int):
        raise call.unknown("it cuts the places of rows in a way that is not followed")
    return Numbers(rows, symbol(value.of)) if column % columns == 0 else rows


# --- gathering ---


@rule("Gather GatherV2 ResourceGather")
def gather(call: Call, params: Value, indices: Value, axis: Value = Uniform((), (0,))) -> Results:  # noqa: B008 - it is frozen
    batch = call.number("batch_dims")
    if isinstance(params, Size) or (
        isinstance(params, Uniform)
        and params.ints is not None
        and isinstance(indices, Uniform)
        and indices.ints is not None
        and len(params.shape or ()) == 1
    ):
        places = constant(indices)
        if places is None or isinstance(indices, Size) or len(indices.shape or ()) > 1:
            raise call.unknown("which sizes it takes is not known")
        ints = ints_of(params) or ()
        return numbers_of(indices.shape or (), tuple([ints[each] for each in places]))
    (place,) = call.constant(axis, "axis")
    if isinstance(params, Rows) and is_turn(indices) and batch == 0 and isinstance(indices, Size):
        return _row_of_turn(call, params, indices, place)
    if isinstance(indices, Count | Size):
        raise call.mixes("takes entries by the number of rows, or the place of a row")
    if isinstance(params, Places):
        return _column(call, params, indices, place)
    if isinstance(params, Numbers | Splits) or isinstance(indices, Places | Splits):
        raise call.unknown("it takes entries of the places of rows")
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
        raise call.mixes(f"takes places of axis {place}, the rows")
    return rows_at(new, rows.axis + (len(index_shape) - 1 if rows.axis > place else 0), rows)


def _row_of_turn(call: Call, params: Rows, indices: Size, axis: int) -> Value:
    """In a loop over rows: the row of the present turn."""
    axis = normal_axis(call, axis, len(params.shape))
    if axis != params.axis or not params.plain:
        raise call.mixes("takes an entry by the place of a row")
    return Uniform((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]), None, True)


def _column(call: Call, params: Places, indices: Value, axis: int) -> Value:
    columns, column = params.rows.shape[-1], constant(indices)
    last = len(params.rows.shape) - 1
    if normal_axis(call, axis, last + 1) != last or column is None or len(column) != 1 or not isinstance(columns, int):
        raise call.unknown("it takes entries of the places of rows")
    shape = (*params.rows.shape[:-1], *(call.shape(indices)))
    rows = rows_at(shape, params.rows.axis, params.rows)
    return Numbers(rows, symbol(params.of)) if column[0] % columns == 0 else rows


def _gather_by_batch(call: Call, params: Value, indices: Value, axis: int, batch: int, new: Shape) -> Value:
    rows = [each for each in (params, indices) if isinstance(each, Rows)]
    if len(rows) < 2:
        raise call.unknown("it takes from rows and from what is the same for all rows, side by side")
    a, b = rows
    if a.axis != b.axis or a.layout != b.layout or a.axis >= batch or axis < batch:
        raise call.unknown("it takes entries from rows that are laid out differently")
    return rows_at(new, a.axis, a)


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
    if isinstance(params, Uniform) and isinstance(indices, Uniform):
        return Uniform(new)
    if isinstance(params, Uniform) and isinstance(indices, Rows) and indices.axis < len(index_shape) - 1:
        return rows_at(new, indices.axis, indices)
    if isinstance(params, Uniform):
        raise call.mixes("takes entries by the places of rows")
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
    if isinstance(indices, Uniform) and rows.axis >= count:
        return rows_at(new, rows.axis - count + len(index_shape) - 1, rows)
    raise call.mixes("takes entries of the rows by places that are the same for all, or by values of all rows")


# --- masks ---


@rule("Where")
def where(call: Call, condition: Value) -> Results:
    """The places of what is not 0: as many for each row as it has."""
    if isinstance(condition, Uniform):
        shape = condition.shape
        return Uniform(None if shape is None else (call.symbols.fresh(), len(shape)))
    rows = call.rows(condition)
    if rows.axis != 0 or rows.outer != 1:
        raise call.unknown("the rows do not lie along axis 0, so it gives places of all rows in turn")
    if rows.block != 1:
        raise call.unknown("it gives places in an axis with several entries a row")
    space = call.symbols.new_space()
    return Places(Rows((symbol(space), len(rows.shape)), 0, space=space), rows.space)


# --- scattering ---


@rule("ScatterNd")
def scatter_nd(call: Call, indices: Value, updates: Value, shape: Value) -> Results:
    wanted = ints_of(shape)
    if all(isinstance(each, Uniform) for each in (indices, updates, shape)):
        return Uniform(wanted)
    if wanted is None:
        raise call.unknown("the shape that it makes is not known")
    return _scattered(call, indices, updates, wanted)


def _scattered(call: Call, indices: Value, updates: Value, wanted: Shape) -> Rows:
    if not isinstance(indices, Places):
        raise (
            call.mixes("sets entries by the values of all rows")
            if isinstance(indices, Rows)
            else call.unknown("where it sets entries is not followed")
        )
    rows = call.rows(updates)
    if (rows.axis, rows.layout) != (indices.rows.axis, indices.rows.layout) or rows.axis >= len(indices.rows.shape) - 1:
        raise call.unknown("its places and what it sets are laid out differently")
    if not wanted or wanted[0] != symbol(indices.of) or any(map(has_space, wanted[1:])):
        raise call.unknown("it does not make one row for each row")
    return Rows(wanted, 0, space=indices.of)


@rule("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin")
def scatter_into(call: Call, tensor: Value, indices: Value, updates: Value) -> Results:
    if all(isinstance(each, Uniform) for each in (tensor, indices, updates)):
        return Uniform(call.shape(tensor))
    rows = call.rows(tensor)
    if rows.axis != 0 or not rows.plain:
        raise call.unknown("it sets entries of rows that do not lie along axis 0")
    return _scattered(call, indices, updates, rows.shape)


@rule("SparseToDense")
def sparse_to_dense(call: Call, indices: Value, shape: Value, values: Value, default: Value) -> Results:
    wanted = ints_of(shape)
    if all(isinstance(each, Uniform) for each in (indices, shape, values, default)):
        return Uniform(wanted)
    call.uniform(default, "default")
    if wanted is None:
        raise call.unknown("the shape that it makes is not known")
    if not isinstance(values, Rows):
        raise call.unknown("it sets the same value for all rows")
    return _scattered(call, indices, values, wanted)


# --- order within an axis ---


@rule("TopK TopKV2")
def top_k(call: Call, value: Value, k: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    shape = call.shape(value)
    known = ints_of(call.uniform(k, "number of entries")) if call.node.op == "TopKV2" else (call.number("k"),)
    count = known[0] if known else call.symbols.fresh()
    new = (*shape[:-1], count if call.symbols.is_size(count) else call.symbols.fresh())
    if isinstance(value, Uniform):
        return [Uniform(new), Uniform(new)]
    rows = call.rows(value)
    if rows.axis == len(shape) - 1:
        raise call.mixes(f"takes the greatest of axis {rows.axis}, the rows")
    return [rows_at(new, rows.axis, rows)] * 2


@rule("ReverseV2")
def reverse(call: Call, value: Value, axes: Value) -> Results:
    return _along(call, value, call.constant(axes, "axes"), "turns round")


@rule("Roll")
def roll(call: Call, value: Value, shift: Value, axes: Value) -> Results:
    call.uniform(shift, "shift")
    return _along(call, value, call.constant(axes, "axes"), "shifts")


@rule("Cumsum Cumprod CumulativeLogsumexp")
def cumulate(call: Call, value: Value, axis: Value) -> Results:
    return _along(call, value, call.constant(axis, "axis"), "adds up")


@rule("Softmax LogSoftmax")
def softmax(call: Call, value: Value) -> Results:
    return _along(call, value, [-1], "runs over")


def _along(call: Call, value: Value, axes: list[int], verb: str) -> Value:
    shape = call.shape(value)
    places = {normal_axis(call, each, len(shape)) for each in axes}
    if isinstance(value, Uniform):
        return Uniform(shape)
    rows = call.rows(value)
    if rows.axis in places:
        raise call.mixes(f"{verb} axis {rows.axis}, the rows")
    return rows


@rule("ReverseSequence")
def reverse_sequence(call: Call, value: Value, lengths: Value) -> Results:
    shape = call.shape(value)
    sequence, batch = (
        normal_axis(call, call.number("seq_dim"), len(shape)),
        normal_axis(call, call.number("batch_dim"), len(shape)),
    )
    if isinstance(value, Uniform) and isinstance(lengths, Uniform):
        return Uniform(shape)
    rows = call.rows(value)
    if rows.axis == sequence:
        raise call.mixes(f"turns round axis {sequence}, the rows")
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
    for each in (depth, on, off):
        call.uniform(each, "depth or value")
    axis = call.number("axis", -1)
    axis = len(shape) if axis == -1 else axis
    known = ints_of(depth)
    count = known[0] if known and call.symbols.is_size(known[0]) else call.symbols.fresh()
    new = (*shape[:axis], count, *shape[axis:])
    if isinstance(indices, Uniform):
        return Uniform(new)
    rows = call.rows(indices)
    return rows_at(new, rows.axis + (axis <= rows.axis), rows)


# --- padding ---


@rule("Pad PadV2 MirrorPad")
def pad(call: Call, value: Value, paddings: Value, fill: Value = Uniform(())) -> Results:  # noqa: B008 - it is frozen
    shape = call.shape(value)
    call.uniform(paddings, "paddings"), call.uniform(fill, "value")
    known = constant(paddings)
    if isinstance(value, Uniform):
        return Uniform(tuple([_padded(call, dim, known, axis) for axis, dim in enumerate(shape)]))
    rows = call.rows(value)
    if known is None or len(known) != 2 * len(shape):
        raise call.unknown("where it adds entries is not known")
    if known[2 * rows.axis] or known[2 * rows.axis + 1]:
        raise call.unknown(f"it adds entries along axis {rows.axis}, the rows")
    return rows_at(
        tuple([_padded(call, dim, known, axis) if axis != rows.axis else dim for axis, dim in enumerate(shape)]),
        rows.axis,
        rows,
    )


def _padded(call: Call, dim: Dim, known: list[int] | None, axis: int) -> Dim:
    if known is None:
        return call.symbols.fresh()
    more = known[2 * axis] + known[2 * axis + 1]
    return dim if not more else dim + more if isinstance(dim, int) else call.size("+", dim, more)
