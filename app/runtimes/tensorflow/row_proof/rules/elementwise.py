"""Operations that compute an element from the elements at the same place, after broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Index,
    Ints,
    MoreRows,
    MovedOffsets,
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
    ints_of,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import (
    ROWS,
    Dim,
    Product,
    Shape,
    broadcast_dim,
    divided,
    has_space,
    is_space,
    spaces,
    times,
)
from app.runtimes.tensorflow.row_proof.loops import more_rows, next_row


def broadcast(call: Call, *operands: Value) -> Rows | Uniform:
    """The result of an operation that broadcasts its operands: axes are aligned from the last one."""
    _no_counts(call, operands)
    rows = [each for each in operands if isinstance(each, Rows)]
    shapes = [call.shape(each) for each in operands]
    if not rows:
        return Uniform(_broadcast_shape(call, shapes))
    rank = max(map(len, shapes))
    axis = _one_axis(call, rows, rank)
    for operand, shape in zip(operands, shapes, strict=True):
        beside = axis - rank + len(shape)
        if not isinstance(operand, Rows) and beside >= 0 and shape[beside] != 1:
            raise call.unknown(
                f"it combines rows with a tensor whose axis {beside} has {text(shape[beside])} entries, not 1"
            )
    new = list(_broadcast_shape(call, [_with_one(each, rank, axis) for each in shapes]))
    new[axis] = rows[0].shape[rows[0].axis]
    return rows_at(tuple(new), axis, rows[0])


def text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else "an unknown number of"


def _no_counts(call: Call, operands: tuple[Value, ...]) -> None:
    for each in operands:
        if isinstance(each, Count | Size | MoreRows) and any(isinstance(other, Rows) for other in operands):
            raise call.mixes("computes with the number of rows, or the place of a row")
        if isinstance(each, Numbers | Places | Index | Splits | Offsets):
            if any(isinstance(other, Rows) for other in operands):
                raise call.mixes("computes with the places of rows")
            raise call.unknown("it computes with the places of rows")


def _one_axis(call: Call, rows: list[Rows], rank: int) -> int:
    axes = {rank - len(each.shape) + each.axis for each in rows}
    if len(axes) > 1:
        raise call.mixes("combines each row with all rows: they lie along two axes")
    if len({each.layout for each in rows}) > 1:
        raise call.unknown("it combines rows that are laid out differently")
    return axes.pop()


def _with_one(shape: Shape, rank: int, axis: int) -> Shape:
    """The shape with one entry in place of the rows."""
    beside = axis - rank + len(shape)
    return shape if beside < 0 else (*shape[:beside], 1, *shape[beside + 1 :])


def _broadcast_shape(call: Call, shapes: list[Shape]) -> Shape:
    result: Shape = ()
    for shape in shapes:
        longer, shorter = (result, shape) if len(result) >= len(shape) else (shape, result)
        first = len(longer) - len(shorter)
        joined = [broadcast_dim(call.symbols, a, b) for a, b in zip(longer[first:], shorter, strict=True)]
        result = (*longer[:first], *joined)
    return result


@rule("""
    Abs Acos Acosh Asin Asinh Atan Atanh BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e
    BesselK1 BesselK1e BesselY0 BesselY1 Ceil ComplexAbs Conj Angle Real Imag Cos Cosh Dawsn Digamma Elu Erf Erfc Erfinv
    Exp Expint Expm1 Floor FresnelCos FresnelSin Gelu Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p
    LogicalNot Ndtri Neg PopulationCount Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus
    Softsign Spence Sqrt Square Tan Tanh
    AsString DecodeBase64 EncodeBase64 StringLength StringLower StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper StaticRegexFullMatch StaticRegexReplace UnicodeScript
    UnicodeTranscode CaseFoldUTF8 NormalizeUTF8 Bucketize

    AddN Atan2 Betainc BitwiseAnd BitwiseOr BitwiseXor Complex DivNoNan FloorMod Igamma Igammac LeftShift LogicalOr
    Mod MulNoNan NextAfter Polygamma Pow RealDiv RightShift SquaredDifference Substr TruncateDiv TruncateMod Xdivy
    Xlog1py Xlogy Zeta StringJoin SelectV2 ClipByValue
""")
def of_elements(call: Call, *operands: Value) -> Results:
    """An element follows from the elements at its place, whatever they are."""
    if all(isinstance(each, Size | Count | Uniform) for each in operands) and not all_uniform(*operands):
        return Count()
    return broadcast(call, *operands)


@rule("Cast")
def cast(call: Call, value: Value) -> Results:
    """Whole numbers stay known between the integer types that sizes have."""
    whole = {3, 9}  # DT_INT32, DT_INT64
    if (
        isinstance(value, Size | Numbers | Index | Splits | Offsets | Uniform)
        and {call.attributes["SrcT"].type, call.attributes["DstT"].type} <= whole
    ):
        return value
    return of_elements(call, value)


@rule("ZerosLike OnesLike", takes_all=True)
def filled_like(call: Call, value: Value) -> Results:
    if isinstance(value, Rows):
        return value
    if isinstance(value, Uniform):
        return Uniform(value.shape, None, value.of_row)
    raise call.unknown("the shape that it fills is not known")


@rule("RegexFullMatch RegexReplace")
def match(call: Call, value: Value, pattern: Value, *rewrite: Value) -> Results:
    call.uniform(pattern, "pattern")
    call.check_uniform("replacement", *rewrite)
    return broadcast(call, value)


@rule("Select")
def select(call: Call, condition: Value, a: Value, b: Value) -> Results:
    """A condition of rank 1 chooses rows; it is aligned from the first axis."""
    if isinstance(condition, Size | Count):
        raise call.mixes("chooses by the number of rows")
    rank = len(call.shape(condition))
    if rank in (0, len(call.shape(a))):
        return broadcast(call, condition, a, b)
    result = broadcast(call, a, b)
    if (
        isinstance(condition, Rows)
        and isinstance(result, Rows)
        and rank == 1
        and result.axis == 0
        and condition.layout == result.layout
    ):
        return result
    if isinstance(condition, Uniform) and isinstance(result, Uniform):
        return result
    raise call.unknown("it chooses rows by a vector that is no value for each row")


# --- of numbers that may be sizes ---


@rule("Add AddV2")
def add(call: Call, a: Value, b: Value) -> Results:
    return next_row(a, b) or _moved_offsets(call, a, b) or _moved_offsets(call, b, a) or of_numbers(call, a, b)


def _moved_offsets(call: Call, ends: Value, size: Value) -> MovedOffsets | None:
    """The ends of the rows of a ragged tensor that comes behind others, whose entries `size` counts."""
    if not isinstance(ends, Offsets) or not ends.ends or not isinstance(size, Size) or size.shape != ():
        return None
    behind = call.symbols.summed(size.ints[0])
    return MovedOffsets(ends.entries, ends.rows.space, behind) if behind else None


@rule("Sub Mul Div FloorDiv Maximum Minimum")
def of_numbers(call: Call, a: Value, b: Value) -> Results:
    if isinstance(a, Offsets) and isinstance(b, Offsets) and call.node.op == "Sub":
        return _lengths(call, a, b)
    if call.node.op == "Mul" and isinstance(a, Splits) and constant(b) == [1]:
        return a  # of rows with one entry each
    return _known_numbers(call, a, b) or of_elements(call, a, b)


def _lengths(call: Call, ends: Offsets, begins: Offsets) -> Rows:
    """The lengths of the rows of a ragged tensor."""
    if (ends.rows, ends.entries) != (begins.rows, begins.entries):
        raise call.unknown("it computes with the places of rows")
    return ends.rows


def _known_numbers(call: Call, a: Value, b: Value) -> Value | None:
    """The numbers, if those of both operands are known and the results are followed."""
    xs, ys = ints_of(a), ints_of(b)
    if xs is None or ys is None or (len(xs) != len(ys) and 1 not in (len(xs), len(ys))):
        return None
    if len(call_shape(a)) > 1 or len(call_shape(b)) > 1:
        return None
    count = max(len(xs), len(ys)) if len(xs) and len(ys) else 0
    pairs = zip(xs * (count if len(xs) == 1 else 1), ys * (count if len(ys) == 1 else 1), strict=False)
    computed = [_ARITHMETIC[call.node.op](call, x, y) for x, y in pairs]
    found = tuple([each for each in computed if each is not None])
    if len(found) < len(computed):
        return None
    return numbers_of(() if call_shape(a) == call_shape(b) == () else (count,), found)


def call_shape(value: Value) -> Shape:
    return value.shape if isinstance(value, Uniform | Size) and value.shape is not None else (1, 1)


def _product(call: Call, x: Dim, y: Dim) -> Dim | None:
    """The product of two dimensions; None if both are numbers of rows, since such a product does not add up."""
    found = times(x, y)
    return found if len(spaces(found)) < 2 else None


def _sum(call: Call, x: Dim, y: Dim) -> Dim | None:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if 0 in (x, y):
        return y if x == 0 else x
    for one, other in ((x, y), (y, x)):
        if one == 1 and isinstance(other, Product) and other.factor > 0 and _is_one_space(other):
            return call.symbols.one_more(other)
    if x == y:
        return times(x, 2)
    return call.symbols.total(x, y) or _uniform_size(call, "+", *sorted((x, y), key=str))


def _is_one_space(dim: Product) -> bool:
    return len(dim.symbols) == 1 and is_space(dim.symbols[0])


def _difference(call: Call, x: Dim, y: Dim) -> Dim | None:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    if y == 0:
        return x
    if y == 1 and (less := call.symbols.one_less(x)):
        return less
    return 0 if x == y else _uniform_size(call, "-", x, y)


def _quotient(call: Call, x: Dim, y: Dim) -> Dim | None:
    if y == 0:
        return None
    if isinstance(x, int) and isinstance(y, int):
        return x // y if call.node.op == "FloorDiv" or x % y == 0 else None
    exact = divided(x, y)
    return _uniform_size(call, "//" + call.node.op, x, y) if exact is None else exact


def _extreme(call: Call, x: Dim, y: Dim) -> Dim | None:
    name, extreme = ("max", max) if call.node.op == "Maximum" else ("min", min)
    if isinstance(x, int) and isinstance(y, int):
        return extreme(x, y)
    return x if x == y else _uniform_size(call, name, *sorted((x, y), key=str))


def _uniform_size(call: Call, key: str, x: Dim, y: Dim) -> Dim | None:
    """The size that follows from two; None if one depends on the number of rows."""
    return None if has_space(x) or has_space(y) else call.size(key, x, y)


_ARITHMETIC: Mapping[str, Callable[[Call, Dim, Dim], Dim | None]] = {
    "Add": _sum, "AddV2": _sum, "Sub": _difference, "Mul": _product, "Div": _quotient, "FloorDiv": _quotient,
    "Maximum": _extreme, "Minimum": _extreme,
}  # fmt: skip


# --- comparisons ---


@rule("Equal NotEqual Greater GreaterEqual Less LessEqual ApproximateEqual")
def compare(call: Call, a: Value, b: Value) -> Results:
    if call.node.op == "Less":
        more = more_rows(a, b)
        if more is not None:
            return more
    if isinstance(a, Size | Count | Uniform) and isinstance(b, Size | Count | Uniform):
        return _compare_numbers(call, a, b)
    return broadcast(call, a, b)


_COMPARISONS = {
    "Equal": lambda x, y: x == y, "NotEqual": lambda x, y: x != y, "Greater": lambda x, y: x > y,
    "GreaterEqual": lambda x, y: x >= y, "Less": lambda x, y: x < y, "LessEqual": lambda x, y: x <= y,
}  # fmt: skip


def _compare_numbers(call: Call, a: Value, b: Value) -> Value:
    known, other = constant(a), constant(b)
    compared = _COMPARISONS.get(call.node.op)
    if compared and known is not None and other is not None and len(known) == len(other) == 1:
        return Uniform(broadcast(call, a, b).shape, (int(compared(known[0], other[0])),))
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return broadcast(call, a, b)
    xs, ys = ints_of(a), ints_of(b)
    if xs and ys and len(xs) == len(ys) == 1 and xs == ys and call_shape(a) == call_shape(b) == () and compared:
        return Uniform((), (int(compared(1, 1)),))
    return (
        _beside_constant(call.node.op, xs, ys) if call_shape(a) == call_shape(b) == () and xs and ys else None
    ) or Count()


_MIRRORED = {"Greater": "Less", "Less": "Greater", "GreaterEqual": "LessEqual", "LessEqual": "GreaterEqual"}


def _beside_constant(operation: str, xs: Ints, ys: Ints) -> Value | None:
    """A size beside a constant: there is at least one row, so some comparisons have one result for all requests."""
    (x,), (y,) = xs, ys
    if isinstance(x, int):
        x, y, operation = y, x, _MIRRORED.get(operation, operation)
    if not isinstance(x, Product) or not isinstance(y, int) or spaces(x) != [ROWS] or operation not in _COMPARISONS:
        return None
    if y == 0 and len(x.symbols) > 1:
        return Uniform(())  # the sign of the other factors decides
    if (
        len(x.symbols) > 1
        or x.factor < 1
        or y > x.factor
        or (y == x.factor and operation not in ("GreaterEqual", "Less"))
    ):
        return None
    return Uniform((), (int(operation in ("Greater", "GreaterEqual", "NotEqual")),))


@rule("LogicalAnd")
def both(call: Call, a: Value, b: Value) -> Results:
    if isinstance(a, MoreRows) and isinstance(b, MoreRows):
        return a
    for one, other in ((a, b), (b, a)):
        if isinstance(one, MoreRows) and constant(other) == [1]:
            return one
    return of_elements(call, a, b)
