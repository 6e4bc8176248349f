"""Uses of segments, sparse tensors, text, tables and lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.runtimes.tensorflow.row_proof.drawing import ROWS_AXIS, WORDS, Draw, Operand, Several, Shape, Use
from tests.runtimes.tensorflow.row_proof.uses import recipe


def _numbers(d: Draw, *, unsorted: bool = False) -> tuple[Operand, Shape]:
    """Numbers of segments, and the axis that they are of."""
    masked = d.tensor([ROWS_AXIS, 3], tf.bool)
    return d.one(
        (Operand(lambda x, u: tf.range(tf.shape(x)[0])), [ROWS_AXIS]),
        (Operand(lambda x, u: tf.cast(tf.where(masked.make(x, u))[:, 0], tf.int32)), ["masked", masked]),
        (d.tensor([ROWS_AXIS], tf.int32, below=3), [ROWS_AXIS]),
        (Operand(lambda x, u: tf.constant([0, 0, 1])), [3]),
        (Operand(lambda x, u: tf.range(2 * tf.shape(x)[0])), [Several(1, 2)]),
        *([(Operand(lambda x, u: tf.constant([[0, 1], [2, 1]])), [2, 2])] if unsorted else []),
    )


def _summed(d: Draw, first: Any, dtype: Any) -> Operand:
    tail = d.sizes(d.one(0, 1))
    if first[0] == "masked":
        full = d.tensor([ROWS_AXIS, 3, *tail], dtype)
        return Operand(lambda x, u: tf.boolean_mask(full.make(x, u), first[1].make(x, u)))
    if d.chance(0.15):
        tail = [ROWS_AXIS if not any(isinstance(each, Several) for each in first) else 2]
    return d.tensor([*first, *tail], dtype)


@recipe("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentJoin")
def unsorted_segments(d: Draw, operation: str) -> Use:
    numbers, first = _numbers(d, unsorted=True)
    value = _summed(d, first, tf.string if operation.endswith("Join") else tf.float32)
    count = d.one(Operand(lambda x, u: tf.shape(x)[0]), Operand(lambda x, u: tf.shape(x)[0]), d.whole(d.one(3, 4)))
    name = "inputs" if operation.endswith("Join") else "data"
    return d.call(operation, **{name: value}, segment_ids=numbers, num_segments=count)


@recipe("SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd SegmentSumV2 SegmentMaxV2 SegmentMinV2 SegmentProdV2")
def segments(d: Draw, operation: str) -> Use:
    numbers, first = _numbers(d)
    count = d.one(d.whole(3, strange=0), Operand(lambda x, u: tf.shape(x)[0]))
    more = {"num_segments": count} if operation.endswith("V2") else {}
    return d.call(operation, data=_summed(d, first, tf.float32), segment_ids=numbers, **more)


@recipe("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN")
def sparse_segments(d: Draw, operation: str) -> Use:
    numbers, first = _numbers(d)
    params = d.tensor([4, 2] if d.chance(0.8) else d.shape(1, 2))
    if first[0] == "masked":
        full = d.tensor([ROWS_AXIS, 3], tf.int32, below=4)
        taken: Operand = Operand(lambda x, u: tf.boolean_mask(full.make(x, u), first[1].make(x, u)))
    else:
        taken = d.tensor(first, tf.int32, below=4)
    return d.call(operation, data=params, indices=taken, segment_ids=numbers)


class _Sparse:
    """A sparse tensor: of rows, mostly."""

    def __init__(self, d: Draw, *, filled: bool | None = None) -> None:
        self.width = d.one(2, 3, 4)
        dense = d.tensor([ROWS_AXIS if d.chance(0.9) else 4, self.width])
        self.filled = d.chance(0.4) if filled is None else filled

        def parts(x: Any, u: Any) -> tuple[Any, Any, Any]:
            full = dense.make(x, u)
            at = tf.where(full > 0.0)
            values, shape = tf.gather_nd(full, at), tf.shape(full, tf.int64)
            if self.filled:
                at, values, *_ = tf.raw_ops.SparseFillEmptyRows(
                    indices=at, values=values, dense_shape=shape, default_value=tf.constant(0.5)
                )
            return at, values, shape

        self.parts = parts


@recipe("SparseReorder SparseSoftmax SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul")
def kept_sparse(d: Draw, operation: str) -> Use:
    tensor = _Sparse(d)
    dense = d.tensor(d.one([ROWS_AXIS, tensor.width], [tensor.width], [1, tensor.width], [1], []))
    call = getattr(tf.raw_ops, operation)

    def use(x: Any, u: Any) -> list[Any]:
        at, values, shape = tensor.parts(x, u)
        if operation == "SparseReorder":
            return list(call(input_indices=at, input_values=values, input_shape=shape))
        if operation == "SparseSoftmax":
            return [call(sp_indices=at, sp_values=values, sp_shape=shape)]
        return [call(sp_indices=at, sp_values=values, sp_shape=shape, dense=dense.make(x, u))]

    return use


@recipe("SparseFillEmptyRows SparseReshape SparseToDense SparseTensorDenseMatMul SparseReduceSum SparseReduceMax")
def sparse(d: Draw, operation: str) -> Use:
    tensor = _Sparse(d, filled=False if operation == "SparseFillEmptyRows" else None)
    default = d.tensor([])
    width = tensor.width
    wanted = d.dims(d.one([None, width], [ROWS_AXIS, width], [None, 1], [width, ROWS_AXIS]), tf.int64)
    size = d.dims(d.one([ROWS_AXIS, width], [ROWS_AXIS, width], [ROWS_AXIS, width + 1], [4, width]), tf.int64)
    matrix = d.tensor([width, 2])
    axes = d.one([1], [-1], [0], [0, 1], [])
    flags = {"adjoint_a": d.chance(0.2), "adjoint_b": False}
    keep, second, ops = d.chance(0.2), d.one(None, "sum", "dense", "segments"), tf.raw_ops

    def use(x: Any, u: Any) -> list[Any]:
        at, values, shape = tensor.parts(x, u)
        if operation == "SparseFillEmptyRows":
            return list(
                ops.SparseFillEmptyRows(indices=at, values=values, dense_shape=shape, default_value=default.make(x, u))
            )[:3]
        if operation == "SparseReshape":
            return list(ops.SparseReshape(input_indices=at, input_shape=shape, new_shape=wanted.make(x, u)))
        if operation == "SparseToDense":
            return [
                ops.SparseToDense(
                    sparse_indices=at,
                    output_shape=size.make(x, u),
                    sparse_values=values,
                    default_value=default.make(x, u),
                    validate_indices=True,
                )
            ]
        if operation == "SparseTensorDenseMatMul":
            return [
                ops.SparseTensorDenseMatMul(
                    a_indices=at, a_values=values, a_shape=size.make(x, u), b=matrix.make(x, u), **flags
                )
            ]
        call = getattr(ops, operation)
        found = [call(input_indices=at, input_values=values, input_shape=shape, reduction_axes=axes, keep_dims=keep)]
        if second == "segments":
            found.append(tf.math.segment_sum(values, at[:, 0]))
        return found

    return use


# --- text ---


@recipe("DecodeCSV")
def decode_csv(d: Draw, operation: str) -> Use:
    words = d.any(tf.string, 0, 3)
    default = Operand(lambda x, u: tf.constant(["d"]))
    fields = Operand(lambda x, u: tf.strings.regex_replace(words.make(x, u), ",", ""))
    return d.call(operation, records=fields, record_defaults=[default])


@recipe("DecodeRaw DecodePaddedRaw DecodeCompressed")
def decode_raw(d: Draw, operation: str) -> Use:
    words = d.any(tf.string, 0, 3)
    length = d.one(0, 0, 1)
    if operation == "DecodeCompressed":
        return d.call(operation, bytes=words)
    if operation == "DecodePaddedRaw":
        return d.call(operation, input_bytes=words, fixed_length=d.whole(d.one(1, 4)), out_type=tf.uint8)
    fixed = Operand(lambda x, u: tf.strings.substr(tf.strings.join([words.make(x, u), "xyzw"]), length, 4))
    return d.call(operation, bytes=d.one(words, fixed, fixed), out_type=d.one(tf.uint8, tf.int16))


@recipe("DecodeBase64")
def decode_base64(d: Draw, operation: str) -> Use:
    words = d.any(tf.string, 0, 3)
    return lambda x, u: [tf.io.decode_base64(tf.io.encode_base64(words.make(x, u)))]


@recipe("StringToNumber")
def to_number(d: Draw, operation: str) -> Use:
    numbers = d.any(tf.int32, 0, 4)
    return lambda x, u: [tf.strings.to_number(tf.strings.as_string(numbers.make(x, u)))]


@recipe("StringSplitV2 StringSplit")
def split(d: Draw, operation: str) -> Use:
    words = d.any(tf.string, 1, 2) if d.chance(0.3) else d.tensor([ROWS_AXIS if d.chance(0.9) else 3], tf.string)
    separator = Operand(lambda x, u: tf.constant(" "))
    if operation == "StringSplit":
        return d.call(operation, input=words, delimiter=separator, skip_empty=d.chance(0.5))
    return d.call(operation, input=words, sep=separator, maxsplit=d.one(-1, 1))


@recipe("Substr")
def substring(d: Draw, operation: str) -> Use:
    shape = d.shape(0, 3)
    words = d.tensor(shape, tf.string)
    longer = Operand(lambda x, u: tf.strings.join([words.make(x, u), "xyzw"]))
    side = d.one([], shape, d.beside(shape))
    return d.call(
        operation,
        input=longer,
        pos=d.tensor(side, tf.int32, below=3),
        len=d.tensor(side, tf.int32, below=3),
        unit=d.one("BYTE", "UTF8_CHAR"),
    )


@recipe("RegexReplace RegexFullMatch")
def regex(d: Draw, operation: str) -> Use:
    pattern = Operand(lambda x, u: tf.constant("[a1]"))
    if operation == "RegexFullMatch":
        return d.call(operation, input=d.any(tf.string, 0), pattern=pattern)
    return d.call(operation, input=d.any(tf.string, 0), pattern=pattern, rewrite=Operand(lambda x, u: tf.constant("z")))


@recipe("ParseExample ParseExampleV2")
def parse(d: Draw, operation: str) -> Use:
    """Examples of one feature, whose values lie in a constant table."""

    def example(*numbers: float) -> bytes:
        feature = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
        return tf.train.Example(features=tf.train.Features(feature={"a": feature})).SerializeToString()

    many = d.chance(0.5)
    texts = [example(*range(n % 4) if many else [float(n)]) for n in range(6)]
    numbers = d.tensor([ROWS_AXIS] if d.chance(0.9) else d.shape(1, 2), tf.int32, below=6)
    kind = d.one("dense", "sparse", "ragged") if operation.endswith("V2") else d.one("dense", "sparse")
    tail = [] if not many or d.chance(0.5) else [None]

    def use(x: Any, u: Any) -> list[Any]:
        serialized, names = tf.gather(tf.constant(texts), numbers.make(x, u)), tf.constant([], tf.string)
        dense = kind == "dense"
        if operation == "ParseExample":
            keys = {
                "sparse_keys": [] if dense else [tf.constant("a")],
                "dense_keys": [tf.constant("a")] if dense else [],
            }
            found = tf.raw_ops.ParseExample(
                serialized=serialized, names=names, **keys,
                dense_defaults=[tf.constant([], tf.float32)] if dense else [],
                sparse_types=[] if dense else [tf.float32], dense_shapes=[tail] if dense else [],
            )  # fmt: skip
        else:
            only = tf.constant(["a"])
            none = tf.constant([], tf.string)
            found = tf.raw_ops.ParseExampleV2(
                serialized=serialized, names=names, sparse_keys=only if kind == "sparse" else none,
                dense_keys=only if dense else none, ragged_keys=only if kind == "ragged" else none,
                dense_defaults=[tf.constant([], tf.float32)] if dense else [], num_sparse=int(kind == "sparse"),
                sparse_types=[tf.float32] if kind == "sparse" else [], dense_shapes=[tail] if dense else [],
                ragged_value_types=[tf.float32] if kind == "ragged" else [],
                ragged_split_types=[tf.int64] if kind == "ragged" else [],
            )  # fmt: skip
        return tf.nest.flatten(list(found))

    return use


# --- tables ---


@recipe("LookupTableFindV2 LookupTableSizeV2")
def look_up(d: Draw, operation: str) -> Use:
    keys = d.any(tf.string, 0)

    def use(x: Any, u: Any) -> list[Any]:
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="words")
        if tf.executing_eagerly():
            values = tf.range(len(WORDS), dtype=tf.int64)
            tf.raw_ops.LookupTableImportV2(table_handle=table, keys=tf.constant(WORDS), values=values)
        if operation == "LookupTableSizeV2":
            return [tf.raw_ops.LookupTableSizeV2(table_handle=table)]
        default = tf.constant(-1, tf.int64)
        return [tf.raw_ops.LookupTableFindV2(table_handle=table, keys=keys.make(x, u), default_value=default)]

    return use


# --- lists ---


@recipe("""
    TensorListReserve EmptyTensorList TensorListFromTensor TensorListGetItem TensorListSetItem TensorListStack
    TensorListConcat TensorListConcatV2 TensorListLength TensorListElementShape
""")
def lists(d: Draw, operation: str) -> Use:
    """A list of a tensor, or of elements that are set, and what is read of it."""
    shape = d.shape(2, 4)
    value = d.tensor(shape)
    from_tensor = d.chance(0.6) or operation == "TensorListFromTensor"
    place = d.whole(d.one(0, 1), strange=0.1)
    count = d.one(1, 2)
    second = d.tensor(shape[1:] if d.chance(0.7) else d.beside(shape[1:]))
    read = _READERS.get(operation, _stacked)

    def use(x: Any, u: Any) -> list[Any]:
        ops, whole = tf.raw_ops, value.make(x, u)
        element = [each if each is not None else -1 for each in whole.shape[1:].as_list()]
        if from_tensor:
            handle = ops.TensorListFromTensor(tensor=whole, element_shape=tf.constant(element, tf.int32))
        else:
            handle = _filled(operation, whole, count)
        if operation == "TensorListSetItem":
            handle = ops.TensorListSetItem(input_handle=handle, index=place.make(x, u), item=second.make(x, u))
        return read(handle, place.make(x, u))

    return use


def _filled(operation: str, element: Any, count: int) -> Any:
    """A list that has the element `count` times, or once at its end."""
    ops, open_shape = tf.raw_ops, tf.constant(-1)
    if operation == "EmptyTensorList":
        handle = ops.EmptyTensorList(
            element_shape=open_shape, max_num_elements=tf.constant(4), element_dtype=element.dtype
        )
        return ops.TensorListPushBack(input_handle=handle, tensor=element)
    handle = ops.TensorListReserve(
        element_shape=open_shape, num_elements=tf.constant(count), element_dtype=element.dtype
    )
    for number in range(count):
        handle = ops.TensorListSetItem(input_handle=handle, index=tf.constant(number), item=element)
    return handle


def _stacked(handle: Any, place: Any) -> list[Any]:
    return [tf.raw_ops.TensorListStack(input_handle=handle, element_shape=tf.constant(-1), element_dtype=tf.float32)]


def _joined(handle: Any, place: Any) -> list[Any]:
    open_shape, none = tf.constant(-1), tf.constant([], tf.int64)
    return list(
        tf.raw_ops.TensorListConcatV2(
            input_handle=handle, element_shape=open_shape, leading_dims=none, element_dtype=tf.float32
        )
    )


def _element(handle: Any, place: Any) -> list[Any]:
    return [
        tf.raw_ops.TensorListGetItem(
            input_handle=handle, index=place, element_shape=tf.constant(-1), element_dtype=tf.float32
        )
    ]


_READERS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "TensorListConcat": lambda handle, place: list(
        tf.raw_ops.TensorListConcat(input_handle=handle, element_dtype=tf.float32)
    ),
    "TensorListConcatV2": _joined,
    "TensorListElementShape": lambda handle, place: [
        tf.raw_ops.TensorListElementShape(input_handle=handle, shape_type=tf.int32)
    ],
    "TensorListGetItem": _element,
    "TensorListLength": lambda handle, place: [tf.raw_ops.TensorListLength(input_handle=handle)],
}
