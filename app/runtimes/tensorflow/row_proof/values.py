"""What a tensor of a graph may be, seen from a request a, a request b, and a call for both (a ++ b).

With t(a) for the tensor in a call for a:
- Uniform: t(a) = t(b) = t(a ++ b). In a loop over rows, with `of_row`: the same for a row whatever is computed beside
  it.
- Rows: t(a ++ b) = t(a) ++ t(b) along one axis, which is laid out as [outer, space, block]. All other axes have equal
  sizes in the three calls.
- Size: whole numbers that are products of uniform numbers and the number of rows; at most a vector.
- Numbers: the places of rows, t(a ++ b) = t(a) ++ (t(b) + the number of places in a), laid out as Rows.
- Places: an index matrix [..., k] as of Where: its first column is the place of a row, the others are as Rows.
- Index: of each entry, which of the distinct ones it is, as of Unique: `of` is their space.
- Splits: row splits of a ragged tensor: `entries` is the space of its values.
- Lengths and the like are Rows.
- Count: depends on the number of rows, or of their entries, in some other way.
- ListOf: a TensorList or TensorArray whose elements are all alike, or (`by_rows`) one for each row.
- Sink: the list that a loop over rows fills, one element a turn.
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
    """shape: None if the rank is not known. ints: the elements, if they are known (whole numbers or booleans)."""

    shape: Shape | None = None
    ints: Ints | None = None
    of_row: bool = False


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
        """The number of times that all rows are repeated, as it lies in memory."""
        return times(product(self.shape[: self.axis]), self.outer)

    @property
    def behind(self) -> Dim:
        """The number of elements of one row that lie side by side in memory."""
        return times(self.block, product(self.shape[self.axis + 1 :]))

    @property
    def layout(self) -> tuple[Dim, int, Dim]:
        return self.outer, self.space, self.block

    @property
    def plain(self) -> bool:
        """Whether its axis holds exactly one entry for each of its space."""
        return self.outer == 1 and self.block == 1


@dataclass(frozen=True, slots=True)
class Size:
    """Whole numbers, at least one of which grows with the rows."""

    shape: Shape
    ints: Ints
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """rows: how the numbers lie. limit: how many places there are, such as `2 * ROWS`; all numbers are below."""

    rows: Rows
    limit: Dim
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """rows: how the lines lie; the last axis are the columns. of: the space of the first column's places."""

    rows: Rows
    of: int = ROWS
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """rows: how the entries lie. of: the space of the distinct ones, whose order says nothing."""

    rows: Rows
    of: int
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Splits:
    """[rows + 1]: where the entries of each row begin. `entries`: the space of these."""

    entries: int
    of: int = ROWS
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """A number that depends on how many rows or entries there are."""

    origins: int = 0


@dataclass(frozen=True, slots=True)
class ListOf:
    """element: None if none was set yet. length: None if it is not known; then it is uniform all the same."""

    element: Value | None
    length: Dim | None = None
    by_rows: bool = False
    origins: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """`token`: the variable of the loop. `item`: what this turn has set."""

    token: int
    item: Value | None = None
    origins: int = 0


@dataclass(frozen=True, slots=True)
class MoreRows:
    """True as long as rows are left."""

    origins: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """Nothing better is known; `reason` names the operation."""

    verdict: Literal["mixes", "unknown"]
    reason: str
    origins: int = 0


Value = Uniform | Rows | Size | Numbers | Places | Index | Splits | Count | ListOf | Sink | MoreRows | Taint

#: The rows of a plain tensor of rank 1.
SCALAR: Shape = ()


def rows_dim(outer: Dim, space: int, block: Dim) -> Dim:
    return times(times(outer, symbol(space)), block)


def rows_at(shape: Shape, axis: int, like: Rows) -> Rows:
    """Rows of this shape whose axis `axis` is laid out as that of `like`."""
    return Rows(shape, axis, like.outer, like.block, like.space)


def numbers_of(shape: Shape, ints: Ints) -> Uniform | Size:
    """Whole numbers that are known: uniform, if none depends on the number of rows."""
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
