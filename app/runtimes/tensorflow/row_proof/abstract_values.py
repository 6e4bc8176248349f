"""Abstract values of tensors, as seen from a request a, a request b, and a call for both (a ++ b).

With t(a) for the tensor in a call for a:
- Uniform: t(a) = t(b) = t(a ++ b). In a loop over rows, with `of_row`: the same for a row, whatever the other rows are.
- Rows: t(a ++ b) = t(a) ++ t(b) along one axis, which is laid out as [outer, space, block]. All other axes have equal
  sizes in the three calls. Lengths and the like are Rows, too.
- Size: whole numbers that are products of uniform numbers and the number of rows; at most a vector.
- Numbers: the places of rows, t(a ++ b) = t(a) ++ (t(b) + the number of places in a), laid out as Rows.
- Places: an index matrix [..., k], such as that of Where: its first column is the place of a row, others are as Rows.
- Index: for each entry, the number of its distinct value, such as that of Unique: `of` is the space of these.
- Splits: row splits of a ragged tensor: `entries` is the space of its values.
- Offsets: the begins or the ends of the rows of a ragged tensor, t(a ++ b) = t(a) ++ (t(b) + the number of entries in
  a), laid out as Rows; from 0 to the number of entries.
- MovedOffsets, Stack, PartPlaces: steps of tf.concat and tf.stack of ragged tensors along axis 1. A Stack is ragged
  tensors one behind the other: values or row splits. PartPlaces are the places of the rows of a stack.
- Count: depends on the number of rows, or of their entries, in some other way.
- ListOf: a TensorList or TensorArray whose elements are all alike, or (`by_rows`) one for each row.
- Sink: the list that a loop over rows fills, one element in each iteration.
- MoreRows: the condition of a loop over rows.
- Taint: mixes, or unknown, with the reason.

`origins` are bits, one for each input of the signature that has rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Dim, Product, Shape, has_space, product, symbol, times

Ints = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Uniform:
    """The same tensor for all requests.

    shape: None if the rank is not known. ints: the elements, if they are known (whole numbers or booleans).
    """

    shape: Shape | None = None
    ints: Ints | None = None
    of_row: bool = False

    @property
    def origins(self) -> int:
        """No input."""
        return 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows along one axis of several; `shape[axis]` is outer * space * block."""

    shape: Shape
    axis: int = 0
    outer: Dim = 1
    block: Dim = 1
    space: int = ROWS
    origins: int = 0

    @property
    def before(self) -> Dim:
        """The number of repetitions of all rows in memory."""
        return times(product(self.shape[: self.axis]), self.outer)

    @property
    def behind(self) -> Dim:
        """The number of elements of one row side by side in memory."""
        return times(self.block, product(self.shape[self.axis + 1 :]))

    @property
    def layout(self) -> tuple[Dim, int, Dim]:
        return self.outer, self.space, self.block

    @property
    def plain(self) -> bool:
        """Whether the axis holds exactly one entry for each row of its space."""
        return self.outer == 1 and self.block == 1


@dataclass(frozen=True, slots=True)
class Size:
    """Whole numbers, at least one of which grows with the rows."""

    shape: Shape
    ints: Ints
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """The places of rows. rows: the layout. limit: the number of places, such as `2 * ROWS`; all numbers are below.

    counted: whether they are all numbers from 0 to the limit, in order.
    """

    rows: Rows
    limit: Dim
    origins: int = 0
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """An index matrix. rows: the layout; the columns are the last axis. of: the space of the first column's places."""

    rows: Rows
    of: int = ROWS
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """Numbers of distinct values. rows: the layout. of: the space of the distinct values, in no certain order."""

    rows: Rows
    of: int
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Splits:
    """Row splits [rows + 1]: the begin of each row's entries. `entries`: the space of the entries."""

    entries: int
    of: int = ROWS
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Offsets:
    """Places between entries, one for each row, such as row splits without the first one. `entries`: their space.

    ends: whether these are the row splits without the first one.
    """

    rows: Rows
    entries: int
    origins: int = 0
    ends: bool = False


@dataclass(frozen=True, slots=True)
class MovedOffsets:
    """The ends of the rows of a ragged tensor that comes behind the entries of the spaces `behind` (sorted)."""

    entries: int
    of: int
    behind: tuple[int, ...]
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """Ragged tensors one behind the other: the space of each one's entries, and the values or the rows of the splits.

    values: the shape of a value; None for row splits. of: the space of the rows of each, for row splits.
    """

    entries: tuple[int, ...]
    values: Shape | None = None
    of: int = 0
    origins: int = 0


@dataclass(frozen=True, slots=True)
class PartPlaces:
    """The places of the rows of a stack: [parts, rows], or `by_row` [rows, parts], or that as a vector (`flat`)."""

    parts: int
    of: int
    by_row: bool = False
    flat: bool = False
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """A number that depends on the number of rows or entries."""

    origins: int = 0


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of tensors. element: None if none was set yet. length: None if it is uniform, but not known."""

    element: Value | None
    length: Dim | None = None
    by_rows: bool = False
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """The list that a loop over rows fills. `token`: its variable. `item`: the element that this iteration has set."""

    token: int
    item: Value | None = None
    origins: int = 0


@dataclass(frozen=True, slots=True)
class MoreRows:
    """A condition that is true as long as rows are left."""

    origins: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """A tensor that no other kind of value describes; `reason` names the operation that made it."""

    verdict: Literal["mixes", "unknown"]
    reason: str
    origins: int = 0


Concatenation = MovedOffsets | Stack | PartPlaces
Value = (
    Uniform
    | Rows
    | Size
    | Numbers
    | Places
    | Index
    | Splits
    | Offsets
    | Concatenation
    | Count
    | ListOf
    | Sink
    | MoreRows
    | Taint
)


def all_uniform(*values: Value) -> bool:
    return all(isinstance(each, Uniform) for each in values)


def rows_dim(outer: Dim, space: int, block: Dim) -> Dim:
    return times(times(outer, symbol(space)), block)


def rows_at(shape: Shape, axis: int, like: Rows) -> Rows:
    """Rows of this shape whose axis `axis` is laid out as that of `like`."""
    return Rows(shape, axis, like.outer, like.block, like.space)


def entries_of(space: int, *sizes: Dim) -> Rows:
    """Rows [space, sizes], one entry for each row or entry of a space."""
    return Rows((symbol(space), *sizes), 0, space=space)


def numbers_of(shape: Shape, ints: Ints) -> Uniform | Size:
    """The value of known whole numbers: uniform, if none depends on the number of rows."""
    return Size(shape, ints) if any(map(has_space, ints)) else Uniform(shape, ints)


def ints_of(value: Value) -> Ints | None:
    return value.ints if isinstance(value, Uniform | Size) else None


def constant(value: Value) -> list[int] | None:
    """The elements, if they are the same in all calls of the model."""
    found = ints_of(value)
    if found is None or any(isinstance(each, Product) for each in found):
        return None
    return [each for each in found if isinstance(each, int)]


def with_origins(value: Value, origins: int) -> Value:
    if isinstance(value, Uniform) or value.origins == origins:
        return value
    return replace(value, origins=origins)
