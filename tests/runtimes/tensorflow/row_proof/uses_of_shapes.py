"""Uses of operations that lay out, cut, join, take or set elements."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.runtimes.tensorflow.row_proof.drawing import ROWS_AXIS, Draw, Operand, Several, Shape, Use, made
from tests.runtimes.tensorflow.row_proof.uses import recipe


def size_of(each: int | Several) -> int:
    return each if isinstance(each, int) else 1


def _places(d: Draw, rank: int = 2) -> Operand:
    """An index matrix of rows: places, or their numbers beside values."""
    entries = d.tensor([ROWS_AXIS, *d.sizes(rank - 1)], tf.bool)
    column = d.tensor([ROWS_AXIS], tf.int32, below=2)
    return d.one(
        Operand(lambda x, u: tf.where(entries.make(x, u))),
        Operand(lambda x, u: tf.stack([tf.range(tf.shape(x)[0]), column.make(x, u)], 1)),
        Operand(lambda x, u: tf.concat([tf.range(tf.shape(x)[0])[:, None], column.make(x, u)[:, None]], 1)),
        Operand(lambda x, u: tf.range(tf.shape(x)[0])[:, None]),
    )


@recipe("Shape Size Rank ShapeN")
def shapes(d: Draw, operation: str) -> Use:
    value = d.any(d.one(tf.float32, tf.int32), 0)
    return d.call(operation, input=[value, d.any(low=0)] if operation == "ShapeN" else value)


def _factors(d: Draw, entries: int) -> Shape:
    """Axes of this many entries in all."""
    found: Shape = []
    while entries > 1 and len(found) < 2:
        found.append(d.one(*[n for n in range(1, entries + 1) if entries % n == 0]))
        entries //= int(found[-1])  # type: ignore[arg-type]  # it is a number
    return [*found, entries] if entries > 1 or d.chance(0.3) else found


@recipe("Reshape")
def reshape(d: Draw, operation: str) -> Use:
    """The axes before and behind the rows are cut anew, and joined with that of the rows; or mistaken."""
    rows = d.rows_axis()
    before, behind = d.one([], [], [2], [4], [2, 3]), d.one([], [4], [2, 3], [6, 2], [1, 4])
    shape: Shape = [*before, rows, *behind] if d.chance(0.9) else [*before, *behind]
    entries = [rows.outer, rows.block]
    for each in before:
        entries[0] *= each
    for each in behind:
        entries[1] *= each
    if d.chance(0.15):
        entries = [entries[0] * entries[1], 1]
    left, right = _factors(d, entries[0]), _factors(d, entries[1])
    middle = Several(left.pop() if left and d.chance(0.4) else 1, right.pop(0) if right and d.chance(0.4) else 1)  # type: ignore[arg-type]  # they are numbers
    wanted: list[Any] = [*left, middle, *right]
    if d.chance(0.6):
        wanted[len(left) if d.chance(0.7) else int(d.random.integers(len(wanted)))] = None
    return d.call(operation, tensor=d.tensor(shape), shape=d.dims(wanted, d.one(tf.int32, tf.int64)))


@recipe("ExpandDims")
def expand(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 3)
    value = d.tensor(shape) if d.chance(0.85) else d.strange()
    return d.call(operation, input=value, axis=d.whole(d.new_axis(shape)))


@recipe("Squeeze")
def squeeze(d: Draw, operation: str) -> Use:
    shape: Shape = [1 if d.chance(0.5) else each for each in d.shape(1, 4)]
    axes = [n for n, each in enumerate(shape) if (each == 1 and d.chance(0.6)) or d.chance(0.05)]
    value = d.tensor(shape) if d.chance(0.9) else _places(d)
    return d.call(operation, input=value, axis=[n - len(shape) if d.chance(0.3) else n for n in axes])


@recipe("Transpose ConjugateTranspose")
def transpose(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    order = [int(n) for n in d.random.permutation(len(shape))]
    return d.call(operation, x=d.tensor(shape, d.one(tf.float32, tf.complex64)), perm=d.whole(order))


@recipe("Pack")
def pack(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 3)
    count = d.one(1, 2, 4)
    values = [d.tensor(shape) if d.chance(0.9) else d.tensor(d.beside(shape)) for _ in range(count)]
    if d.chance(0.15):
        values = [d.one(d.strange(), d.whole(4), d.tensor([ROWS_AXIS], tf.int32)) for _ in range(count)]
    return d.call(operation, values=values, axis=d.new_axis(shape))


@recipe("ConcatV2 Concat")
def concat(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    values = []
    for _ in range(d.one(2, 2, 3)):
        other = list(shape)
        if d.chance(0.5) and isinstance(other[axis], int):
            other[axis] = d.one(1, 2, 3)
        if d.chance(0.2) and isinstance(other[axis], Several):
            other[axis] = d.one(d.rows_axis(), 1, 2)
        values.append(d.tensor(other))
    if d.chance(0.15):
        values = [d.one(d.strange(), d.whole([4, 2])) for _ in values]
        axis = d.one(0, -1)
    name = {"ConcatV2": "axis", "Concat": "concat_dim"}[operation]
    return d.call(operation, values=values, **{name: d.whole(axis, strange=0.02)})


@recipe("Unpack")
def unpack(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    count = size_of(shape[axis]) if d.chance(0.9) else d.one(1, 2, 4)
    return d.call(operation, value=d.tensor(shape), num=count, axis=axis)


@recipe("Split SplitV")
def split(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    each = shape[axis]
    dim = each if isinstance(each, int) else each.outer * each.block
    if operation == "Split":
        return d.call(
            operation,
            axis=d.whole(axis),
            value=d.tensor(shape),
            num_split=d.one(*[n for n in (1, 2, 3, 4) if dim % n == 0]),
        )
    first = d.one(*range(dim + 1))
    sizes = d.one([dim], [first, dim - first], [first, -1], [-1])
    return d.call(
        operation, value=d.tensor(shape), size_splits=d.whole(sizes), axis=d.whole(axis), num_split=len(sizes)
    )


@recipe("Fill")
def fill(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 3)
    value = d.one(d.tensor([]), d.whole(3), d.strange())
    return d.call(operation, dims=d.dims(shape), value=value)


@recipe("BroadcastTo")
def broadcast_to(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    other = d.beside(shape)
    if d.chance(0.3):
        other = [1 if isinstance(each, Several) else each for each in other]
    return d.call(operation, input=d.tensor(other), shape=d.dims(shape))


@recipe("Tile")
def tile(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    by: Shape = [d.one(1, 1, 2, 3) for _ in shape]
    if d.chance(0.25):
        by[int(d.random.integers(len(by)))] = d.rows_axis()
    value = d.tensor(shape) if d.chance(0.9) else Operand(lambda x, u: tf.range(tf.shape(x)[0]))
    return d.call(operation, input=value, multiples=d.dims(by))


@recipe("Slice")
def cut(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    begin, size = [], []
    for each in shape:
        dim = each if isinstance(each, int) else 1
        first = 0 if isinstance(each, Several) and d.chance(0.9) else int(d.random.integers(dim + 1))
        begin.append(first)
        size.append(
            -1
            if d.chance(0.4)
            else each
            if isinstance(each, Several) or d.chance(0.2)
            else d.one(*range(dim - first + 1))
        )
    value = d.tensor(shape) if d.chance(0.9) else d.strange()
    return d.call(operation, input=value, begin=d.whole(begin, strange=0.03), size=d.dims(size))


@recipe("StridedSlice")
def strided_slice(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    value = d.tensor(shape)
    if d.chance(0.1):
        value = d.one(d.strange(), _places(d))
    count = int(d.random.integers(1, len(shape) + 2))
    begin, end, steps = (
        [d.one(*options) for _ in range(count)]
        for options in ((0, 0, 1, -1, -2, 5), (0, 1, 2, 4, -1, 9, 2**31 - 1), (1, 1, 1, 2, -1))
    )
    masks = {
        name: sum(1 << n for n in range(count) if d.chance(share))
        for name, share in (("begin_mask", 0.5), ("end_mask", 0.5), ("new_axis_mask", 0.15), ("shrink_axis_mask", 0.15))
    }
    masks["ellipsis_mask"] = 1 << int(d.random.integers(count)) if d.chance(0.25) else 0
    if d.chance(0.15):
        end = [ROWS_AXIS if n == 0 else each for n, each in enumerate(end)]
    if d.chance(0.06):
        begin = [ROWS_AXIS if n == 0 else each for n, each in enumerate(begin)]
    return d.call(operation, input=value, begin=d.dims(begin), end=d.dims(end), strides=d.dims(steps), **masks)


@recipe("Gather GatherV2 ResourceGather")
def gather(d: Draw, operation: str) -> Use:
    params, place = d.shape(1, 4), 0
    batch = 0
    indices: Shape = d.shape(0, 2, rows=0.5)
    if operation == "GatherV2":
        place = d.axis(params)
        if d.chance(0.4) and len(params) > 1:
            batch = int(d.random.integers(1, len(params)))
            indices = [*params[:batch], *d.shape(0, 2, rows=0.1)]
            if d.chance(0.2):
                indices = d.beside(indices)
            place = int(d.random.integers(batch, len(params)))
    each = params[place]
    where = d.tensor(indices, tf.int32, below=size_of(each) if isinstance(each, int) else d.one(1, 2))
    if d.chance(0.15):
        where = d.one(
            Operand(lambda x, u: tf.range(tf.shape(x)[0])),
            d.strange(),
            Operand(lambda x, u: _places_of_second(d, x, u)),
        )
    if operation == "GatherV2":
        values = d.tensor(params) if d.chance(0.9) else d.one(_places(d), d.strange())
        return d.call(operation, params=values, indices=where, axis=d.whole(place), batch_dims=batch)
    if operation == "Gather":
        return d.call(operation, params=d.tensor(params), indices=where, validate_indices=True)
    fixed = [each if isinstance(each, int) else 4 for each in params]
    if d.chance(0.4) and isinstance(indices, list) and indices:
        batch = 1
        fixed = [size_of(indices[0]) if isinstance(indices[0], int) else 4, *fixed]
    table = variable(d, fixed)
    return d.call(operation, resource=table, indices=where, dtype=tf.float32, batch_dims=batch)


def _places_of_second(d: Draw, x: Any, u: Any) -> Any:
    return tf.cast(tf.where(x[:, :2] > -3.0)[:, 0], tf.int32)


def variable(d: Draw, shape: list[int]) -> Operand:
    """The handle of a variable, which holds a value where it is called."""
    value = d.tensor(shape)

    def make(x: Any, u: Any) -> Any:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=f"v{shape}")
        if tf.executing_eagerly():
            tf.raw_ops.AssignVariableOp(resource=handle, value=value.make(x, u))
        return handle

    return Operand(make)


@recipe("VarHandleOp ReadVariableOp VariableShape")
def read_variable(d: Draw, operation: str) -> Use:
    handle = variable(d, d.sizes(d.one(0, 1, 2, 3)))
    by = d.any(low=0, high=2)

    def use(x: Any, u: Any) -> list[Any]:
        if operation == "VariableShape":
            return [tf.raw_ops.VariableShape(input=handle.make(x, u))]
        return [tf.raw_ops.ReadVariableOp(resource=handle.make(x, u), dtype=tf.float32) * by.make(x, u)]

    return use


@recipe("Unique UniqueV2")
def unique(d: Draw, operation: str) -> Use:
    """What is computed of each distinct entry, for each entry."""
    shape = [ROWS_AXIS] if d.chance(0.6) else d.shape(1, 2)
    value = d.tensor(shape, d.one(tf.string, tf.int32))
    extra = {"axis": d.whole([d.axis(shape)] if d.chance(0.8) else [], strange=0.02)} if operation == "UniqueV2" else {}
    other = d.one(None, None, d.any(low=1, high=2))

    def use(x: Any, u: Any) -> list[Any]:
        call = getattr(tf.raw_ops, operation)
        values, index = call(x=value.make(x, u), **{name: made(each, x, u) for name, each in extra.items()})[:2]
        return [tf.gather(values if other is None else other.make(x, u), index)]

    return use


@recipe("GatherNd ResourceGatherNd")
def gather_nd(d: Draw, operation: str) -> Use:
    params = d.shape(1, 4)
    count = int(d.random.integers(1, len(params) + 1))
    bounds = [size_of(each) if isinstance(each, int) else 1 for each in params[:count]]
    where: Operand = d.tensor([*d.shape(0, 2, rows=0.6), count], tf.int32, below=max(1, min(bounds)))
    if d.chance(0.3):
        where = _places(d)
    if operation == "GatherNd":
        return d.call(operation, params=d.tensor(params), indices=where)
    table = variable(d, [each if isinstance(each, int) else 4 for each in params])
    return d.call(operation, resource=table, indices=where, dtype=tf.float32)


@recipe("Where")
def where(d: Draw, operation: str) -> Use:
    return d.call(operation, condition=d.any(d.one(tf.bool, tf.float32)))


@recipe("ScatterNd TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin")
def scatter(d: Draw, operation: str) -> Use:
    rank = d.one(1, 2)
    matrix = d.tensor([ROWS_AXIS, *d.sizes(rank - 1)], tf.bool)
    column = d.tensor([ROWS_AXIS], tf.int32, below=2)
    tail = d.sizes(d.one(0, 0, 1))
    kind = d.one("where", "where", "columns", "columns", "own", "values", "uniform")
    places: dict[str, Operand] = {
        "where": Operand(lambda x, u: tf.where(matrix.make(x, u))),
        "own": Operand(lambda x, u: tf.range(tf.shape(x)[0])[:, None]),
        "columns": Operand(lambda x, u: tf.stack([tf.range(tf.shape(x)[0]), column.make(x, u)], 1)),
        "values": d.tensor([ROWS_AXIS, 1], tf.int32, below=1),
        "uniform": d.tensor([2, 1], tf.int32, below=1),
    }
    full = d.tensor([ROWS_AXIS, 4, 4])

    def updates(x: Any, u: Any) -> Any:
        at = places[kind].make(x, u)
        if kind == "where":
            found = tf.gather(full.make(x, u)[:, 0, 0], at[:, 0])
        else:
            found = full.make(x, u)[:, 0, 0] if kind != "uniform" else tf.ones([2])
        return tf.ones([*[1 for _ in tail]]) * tf.reshape(found, [-1, *[1 for _ in tail]]) * tf.ones(tail)

    width = {"where": rank, "own": 1, "columns": 2, "values": 1, "uniform": 1}[kind]
    inner = [*[4] * (width - 1), *tail]
    target: Shape = [ROWS_AXIS if d.chance(0.9) else 4, *inner]
    if operation == "ScatterNd":
        return d.call(
            operation,
            indices=places[kind],
            updates=Operand(updates),
            shape=d.dims(target, tf.int64 if kind == "where" else tf.int32),
        )
    return d.call(operation, tensor=d.tensor(target), indices=places[kind], updates=Operand(updates))


@recipe("TopK TopKV2")
def top_k(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    k = int(d.random.integers(size_of(shape[-1]) + 1))
    return d.call(operation, input=d.tensor(shape), k=d.whole(k) if operation == "TopKV2" else k, sorted=d.chance(0.7))


@recipe("ReverseV2")
def reverse(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    return d.call(operation, tensor=d.tensor(shape), axis=d.whole(d.axes(shape), strange=0.02))


@recipe("Roll")
def roll(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    if d.chance(0.5):
        return d.call(operation, input=d.tensor(shape), shift=d.whole(d.one(1, -1, 4)), axis=d.whole(d.axis(shape)))
    axes = d.axes(shape)
    return d.call(operation, input=d.tensor(shape), shift=d.whole([d.one(1, -1, 2) for _ in axes]), axis=d.whole(axes))


@recipe("ReverseSequence")
def reverse_sequence(d: Draw, operation: str) -> Use:
    shape = d.shape(2, 4)
    sequence, batch = (int(n) for n in d.random.permutation(len(shape))[:2])
    lengths = [shape[batch]] if d.chance(0.8) else d.beside([shape[batch]])
    return d.call(
        operation,
        input=d.tensor(shape),
        seq_lengths=d.tensor(lengths, tf.int32, below=size_of(shape[sequence]) + 1),
        seq_dim=sequence,
        batch_dim=batch,
    )


@recipe("OneHot")
def one_hot(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 3)
    return d.call(
        operation,
        indices=d.tensor(shape, tf.int32),
        depth=d.whole(d.one(0, 1, 3, 4)),
        on_value=d.tensor([], mode="positive") if d.chance(0.9) else d.any(low=0, high=1),
        off_value=d.tensor([]),
        axis=int(d.random.integers(-1, len(shape) + 1)),
    )


@recipe("Pad PadV2 MirrorPad")
def pad(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    added = [[0, 0] if isinstance(each, Several) and d.chance(0.9) else [d.one(0, 1, 2), d.one(0, 1)] for each in shape]
    extra: dict[str, Any] = {}
    if operation == "PadV2":
        extra["constant_values"] = d.tensor([]) if d.chance(0.9) else d.any(low=0, high=1)
    if operation == "MirrorPad":
        extra["mode"] = d.one("REFLECT", "SYMMETRIC")
    return d.call(operation, input=d.tensor(shape), paddings=d.whole(added, strange=0.02), **extra)


@recipe("Range")
def count_up(d: Draw, operation: str) -> Use:
    def end() -> Operand:
        by = d.one(1, 1, 2)
        return d.one(d.whole(d.one(0, 4, 7)), Operand(lambda x, u: tf.shape(x)[0] * by), d.strange())

    return d.call(operation, start=d.whole(d.one(0, 0, 1)), limit=end(), delta=d.whole(d.one(1, 1, 2, -1)))


@recipe("LinSpace")
def lin_space(d: Draw, operation: str) -> Use:
    return d.call(
        operation,
        start=d.any(low=0, high=1, rows=0.2) if False else d.tensor([]),
        stop=d.tensor([]),
        num=d.whole(d.one(1, 3)),
    )


@recipe("Bitcast")
def bitcast(d: Draw, operation: str) -> Use:
    return d.call(
        operation, input=d.any(low=0), type=d.one(tf.int32, tf.uint32, tf.uint8, tf.int16, tf.float64, tf.int64)
    )


@recipe("Cast")
def cast(d: Draw, operation: str) -> Use:
    types = (tf.float32, tf.int32, tf.int64, tf.bool, tf.float16, tf.uint8)
    # A negative number as uint8 is what the processor makes of it, at one place or at another.
    value = d.any(d.one(*types), low=0, mode="positive") if d.chance(0.85) else d.strange(d.one(tf.int32, tf.int64))
    return d.call(operation, x=value, DstT=d.one(*types), Truncate=d.chance(0.2))


@recipe(
    "Identity StopGradient PreventGradient Snapshot CheckNumerics CheckNumericsV2 EnsureShape IdentityN ZerosLike "
    "OnesLike"
)
def same(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 4)
    value = d.tensor(shape) if d.chance(0.9) or "Numerics" in operation else d.strange()
    if operation == "IdentityN":
        return d.call(operation, input=[value, d.any(tf.string)])
    if operation == "EnsureShape":
        return d.call(
            operation,
            input=d.tensor(shape),
            shape=[each if isinstance(each, int) else d.one(None, None, 4) for each in shape],
        )
    name = {"CheckNumerics": "tensor", "CheckNumericsV2": "tensor", "ZerosLike": "x", "OnesLike": "x"}.get(
        operation, "input"
    )
    extra = {"message": "no"} if operation in ("CheckNumerics", "CheckNumericsV2") else {}
    return d.call(operation, **{name: value}, **extra)


@recipe("Const")
def constant(d: Draw, operation: str) -> Use:
    value = d.tensor(d.sizes(d.one(0, 1, 2)), d.one(tf.int32, tf.bool, tf.float32))
    return lambda x, u: [value.make(x, u)]


@recipe("Select SelectV2")
def select(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    condition = d.one(shape, shape[:1], [], d.beside(shape))
    names = ("x", "y") if operation == "Select" else ("t", "e")
    values = {name: d.tensor(shape if operation == "Select" or d.chance(0.5) else d.beside(shape)) for name in names}
    return d.call(operation, condition=d.tensor(condition, tf.bool), **values)


@recipe("ClipByValue")
def clip(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 4)
    bounds = [d.tensor(d.one([], shape, d.beside(shape))) for _ in range(2)]
    return d.call(operation, t=d.tensor(shape), clip_value_min=bounds[0], clip_value_max=bounds[1])
