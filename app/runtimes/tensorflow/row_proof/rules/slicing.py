"""Slice and StridedSlice, by their cuts of each axis.

Along the rows a cut must keep all of them in order; in a loop over rows it may take the row of the present iteration.
"""

from __future__ import annotations

from typing import NamedTuple

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Numbers,
    Offsets,
    Places,
    Rows,
    Size,
    Splits,
    Uniform,
    Value,
    entries_of,
    ints_of,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import NEXT_ROW, ROWS, Dim, Shape, has_space, symbol
from app.runtimes.tensorflow.row_proof.loops import is_this_row
from app.runtimes.tensorflow.row_proof.rules.shaping import full_shape, is_vector, laid_out, moved


class Cut(NamedTuple):
    """The cut of one axis: 'all' is kept, it is 'cut' from begin to end, or one place is taken ('one').

    begin, end: None if open, "?" if not known. stride: None if not known.
    """

    kind: str
    begin: Dim | str | None = None
    end: Dim | str | None = None
    stride: Dim | None = 1

    def is_all_of(self, dim: Dim) -> bool:
        whole = self.kind == "cut" and self.begin in (None, 0) and self.end in (None, dim) and self.stride == 1
        return self.kind == "all" or whole

    @property
    def takes_this_row(self) -> bool:
        """Whether it takes the row of the present iteration."""
        begins = not isinstance(self.begin, str | None) and is_this_row(Size((), (self.begin,)))
        if self.kind == "one":
            return begins
        return begins and self.end == symbol(NEXT_ROW) and self.stride == 1

    @property
    def numbers(self) -> list[Dim]:
        """The known begin, end and stride."""
        return [each for each in (self.begin, self.end, self.stride) if not isinstance(each, str | None)]

    @property
    def as_slice(self) -> slice | None:
        """The cut in numbers; None if they are not known."""
        known = isinstance(self.begin, int | None) and isinstance(self.end, int | None)
        return slice(self.begin, self.end, self.stride) if known and isinstance(self.stride, int) else None


# --- Slice ---


@rule("Slice")
def cut_by_size(call: Call, value: Value, begin: Value, size: Value) -> Results:
    _check_places(call, begin, size)
    shape = full_shape(value)
    if shape is None or isinstance(value, Places):
        raise call.unknown("what it cuts is not followed")
    begins, sizes = ints_of(begin), ints_of(size)
    cuts = [_cut_of(call, begins[n] if begins else "?", sizes[n] if sizes else "?") for n in range(len(shape))]
    return _of_vector(call, value, cuts[0]) if is_vector(value) else _cut(call, value, shape, cuts)


def _check_places(call: Call, *operands: Value) -> None:
    """Raises Finding if a place of a cut is no number that is known by sizes."""
    for each in operands:
        if not isinstance(each, Uniform | Size):
            raise call.depends(each, "cuts by the number of rows", "where it cuts depends on rows")


def _cut_of(call: Call, begin: Dim | str, size: Dim | str) -> Cut:
    if size == -1:
        return Cut("cut", begin, None)
    if begin == 0:
        return Cut("cut", None, size)
    if isinstance(begin, int) and isinstance(size, int):
        return Cut("cut", begin, begin + size)
    if size == 1 and not isinstance(begin, str) and is_this_row(Size((), (begin,))):
        return Cut("cut", begin, symbol(NEXT_ROW))
    if not isinstance(size, str) and has_space(size):
        raise call.unknown("how much it cuts depends on the number of rows")
    return Cut("cut", begin, "?")


# --- StridedSlice ---


@rule("StridedSlice")
def strided_slice(call: Call, value: Value, begin: Value, end: Value, strides: Value) -> Results:
    cuts = _cuts(call, begin, end, strides)
    if is_vector(value) and len(cuts) == 1 and cuts[0].kind in ("cut", "one"):
        return _of_vector(call, value, cuts[0])
    shape = full_shape(value)
    if isinstance(value, Splits):
        return _of_splits(call, value, cuts)
    if shape is None or isinstance(value, Size):
        raise call.unknown("what it cuts is not followed")
    each_axis = _for_each_axis(call, cuts, len(shape))
    return _of_places(call, value, each_axis) if isinstance(value, Places) else _cut(call, value, shape, each_axis)


def _of_splits(call: Call, value: Splits, cuts: list[Cut]) -> Value:
    """The first or the last row split, or those where rows begin or end."""
    cut = cuts[0] if len(cuts) == 1 else Cut("all")
    if cut.kind == "one" and cut.begin == 0:
        return Uniform((), (0,))
    if cut.kind == "one" and cut.begin == -1:
        return Size((), (symbol(value.entries),))
    ends = (cut.begin, cut.end) == (1, None)
    begins = cut.begin in (None, 0) and cut.end == -1
    if cut.kind == "cut" and cut.stride == 1 and (ends or begins):
        return Offsets(entries_of(value.of), value.entries, ends=ends)
    if whole := call.symbols.whole(value.of):
        space, count = whole
        if cut == Cut("cut", None, None, count):
            return Splits(value.entries, space)  # the entries of all parts of a row belong to the row
    raise call.unknown("it cuts the row splits of a ragged tensor")


def _cuts(call: Call, begin: Value, end: Value, strides: Value) -> list[Cut]:
    """The given cuts, in their order, with the masks applied."""
    _check_places(call, begin, end, strides)
    begins, ends, steps = ints_of(begin), ints_of(end), ints_of(strides)
    shape = begin.shape if isinstance(begin, Uniform | Size) else None
    count = len(begins) if begins is not None else shape[0] if shape else None
    if not isinstance(count, int):
        raise call.unknown("how many axes it cuts is not known")
    masks = [call.number(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis", "begin", "end")]
    found = []
    for n in range(count):
        ellipsis, new, one, open_begin, open_end = (bool(mask >> n & 1) for mask in masks)
        first = "?" if begins is None else begins[n]
        last = "?" if ends is None else ends[n]
        if ellipsis or new:
            cut = Cut("ellipsis" if ellipsis else "new")
        elif one:
            cut = Cut("one", first)
        else:
            cut = Cut("cut", None if open_begin else first, None if open_end else last, steps[n] if steps else None)
        found.append(cut)
    return found


def _for_each_axis(call: Call, cuts: list[Cut], rank: int) -> list[Cut]:
    """A cut for each axis; a 'new' cut belongs to no axis."""
    rest = [Cut("all")] * (rank - sum(cut.kind in ("cut", "one") for cut in cuts))
    found: list[Cut] = []
    for cut in cuts:
        found += rest if cut.kind == "ellipsis" else [cut]
    if all(cut.kind != "ellipsis" for cut in cuts):
        found += rest
    if sum(cut.kind != "new" for cut in found) != rank:
        raise call.unknown("it cuts more axes than there are")
    return found


# --- both ---


def _cut(call: Call, value: Value, shape: Shape, cuts: list[Cut]) -> Value:
    """The part of a tensor within these cuts."""
    rows = None if isinstance(value, Uniform) else laid_out(call, value)
    new: list[Dim] = []
    old, new_axis, this_row = 0, -1, False
    for cut in cuts:
        if cut.kind == "new":
            new.append(1)
            continue
        dim = shape[old]
        if rows is not None and old == rows.axis:
            new_axis, this_row = len(new), cut.takes_this_row and rows.plain and rows.space == ROWS
            new += _along_rows(call, cut, dim, this_row=this_row)
        else:
            new += _beside_rows(call, cut, dim)
        old += 1
    if rows is None:
        return Uniform(tuple(new))
    if not this_row:
        return moved(value, rows_at(tuple(new), new_axis, rows))
    if not isinstance(value, Rows):
        raise call.mixes("takes the place of a row as a value")
    return Uniform(tuple(new), None, True)


def _along_rows(call: Call, cut: Cut, dim: Dim, *, this_row: bool) -> list[Dim]:
    if this_row:
        return [] if cut.kind == "one" else [1]
    if cut.is_all_of(dim):
        return [dim]
    if cut.kind == "one" and isinstance(cut.begin, int):
        raise call.mixes("takes one place of the rows")
    # Reversed rows may be reversed again, and a large end may lie behind all rows.
    raise call.unknown("it takes some places of the rows, or turns them round")


def _beside_rows(call: Call, cut: Cut, dim: Dim) -> list[Dim]:
    """The sizes of the cut of an axis without rows: one, or none."""
    if any(map(has_space, cut.numbers)):
        raise call.mixes("cuts by the number of rows, or the place of a row")
    if cut.kind == "one":
        return []
    if cut.is_all_of(dim) or (cut.stride == -1 and cut.begin is None and cut.end is None):
        return [dim]
    if isinstance(dim, int) and cut.as_slice is not None:
        return [len(range(*cut.as_slice.indices(dim)))] if cut.stride else [call.symbols.fresh()]
    if isinstance(cut.begin, str) or isinstance(cut.end, str) or cut.stride is None:
        return [call.symbols.fresh()]
    key = ("slice", cut.begin is None, cut.end is None)
    return [call.symbols.derived(key, dim, *cut.numbers)]


def _of_vector(call: Call, value: Value, cut: Cut) -> Value:
    ints = ints_of(value) or ()
    if cut.kind == "one" and isinstance(cut.begin, int):
        return numbers_of((), (ints[cut.begin],))
    if cut.kind == "cut" and cut.as_slice is not None:
        kept = ints[cut.as_slice]
        return numbers_of((len(kept),), kept)
    if isinstance(value, Uniform) and not any(map(has_space, cut.numbers)):
        return Uniform(() if cut.kind == "one" else (call.symbols.fresh(),))
    raise call.unknown("where it cuts sizes is not known")


def _of_places(call: Call, value: Places, cuts: list[Cut]) -> Value:
    """The values of one column of an index matrix. Raises a Finding for other cuts, which are not followed."""
    shape = value.rows.shape
    *others, last = cuts
    columns = shape[-1]
    whole = len(cuts) == len(shape) and all(cut.is_all_of(dim) for cut, dim in zip(others, shape[:-1], strict=True))
    if not whole or last.kind != "one" or not isinstance(last.begin, int) or not isinstance(columns, int):
        raise call.unknown("it cuts the places of rows in a way that is not followed")
    rows = rows_at(shape[:-1], value.rows.axis, value.rows)
    return Numbers(rows, symbol(value.of)) if last.begin % columns == 0 else rows
