"""What a value of the proof says of a tensor, beside the tensor in three calls: for a, for b, and for both (a ++ b).

`broken_law` states abstract_values.py in numpy. It looks at every value, not only at proven ones, so a rule is held to
its results of rows along any axis, of sizes and of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.core.agreement import agree
from app.core.inference import Array
from app.runtimes.tensorflow.row_proof.abstract_values import (
    Numbers,
    Offsets,
    Places,
    Rows,
    Size,
    Splits,
    Uniform,
    Value,
)
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Dim


class Calls:
    """The sizes of three calls: `rows` of a, b and both; symbols get the number that they first stand for.

    distinct: whether there may be distinct entries (Unique), whose order is not that of the requests.
    """

    def __init__(self, rows: tuple[int, int, int], known: dict[int, int], *, distinct: bool = False) -> None:
        self.rows = rows
        self.distinct = distinct
        self._known = known  # symbols that are the same for all requests, also in other calls

    def fits(self, dim: Dim, actual: int, call: int) -> bool:
        """Whether an axis of `actual` entries may have this size in a call (0, 1 or 2)."""
        if isinstance(dim, int):
            return dim == actual
        left, unknown = dim.factor, []
        for each in dim.symbols:
            if each == ROWS:
                left *= self.rows[call]
            elif each in self._known:
                left *= self._known[each]
            else:
                unknown.append(each)
        if not unknown:
            return left == actual
        if len(unknown) > 1 or unknown[0] < 0 or left == 0:
            return True
        self._known[unknown[0]] = actual // left
        return left * self._known[unknown[0]] == actual


Three = Sequence[Array]


def broken_law(value: Value, tensors: Three, calls: Calls, moved: Array | None = None) -> str | None:
    """What the value says that the tensors of the three calls are not; None if all is as it says.

    moved: the tensor for both, of inputs that differ in their last digits: what rounding alone changes may differ.
    """
    if isinstance(value, Uniform):
        return _uniform(value, tensors, calls)
    if isinstance(value, Rows):
        # Of no entries nothing is said: a convolution of no images gives them as they are.
        empty = value.space != ROWS and not all(tensor.size for tensor in tensors)
        return None if empty else _rows(value, tensors, calls, moved)
    if isinstance(value, Size):
        return _size(value, tensors, calls)
    if isinstance(value, Numbers):
        return _numbers(value, tensors, calls)
    if isinstance(value, Places):
        return _places(value, tensors, calls)
    return _ragged(value, tensors, calls)


def _ragged(value: Value, tensors: Three, calls: Calls) -> str | None:
    if isinstance(value, Splits) and not (calls.distinct and value.of != ROWS):
        return _splits(value, tensors, calls)
    if isinstance(value, Offsets) and not (calls.distinct and value.rows.space != ROWS):
        return _offsets(value, tensors, calls)
    return None  # of the others nothing follows for rows


def _uniform(value: Uniform, tensors: Three, calls: Calls) -> str | None:
    a, b, both = tensors
    if not (_equal(a, b) and _equal(a, both)):
        return "is not the same for all requests"
    if value.shape is not None and not _shaped(value.shape, a, 0, calls):
        return f"has the shape {a.shape}"
    if value.ints is not None and not _holds(value.ints, a, 0, calls):
        return f"holds {a.tolist()}"
    return None


def _shaped(shape: Sequence[Dim], tensor: Array, call: int, calls: Calls) -> bool:
    return len(shape) == tensor.ndim and all(
        calls.fits(dim, actual, call) for dim, actual in zip(shape, tensor.shape, strict=True)
    )


def _holds(ints: Sequence[Dim], tensor: Array, call: int, calls: Calls) -> bool:
    flat = [int(each) for each in tensor.flat]
    return len(flat) == len(ints) and all(calls.fits(dim, each, call) for dim, each in zip(ints, flat, strict=True))


def _size(value: Size, tensors: Three, calls: Calls) -> str | None:
    for call, tensor in enumerate(tensors):
        if not _shaped(value.shape, tensor, call, calls) or not _holds(value.ints, tensor, call, calls):
            return f"holds {tensor.tolist()} of the shape {tensor.shape}"
    return None


def _rows(value: Rows, tensors: Three, calls: Calls, moved: Array | None = None) -> str | None:
    for call, tensor in enumerate(tensors):
        if not _shaped(value.shape, tensor, call, calls):
            return f"has the shape {tensor.shape} in a call of {calls.rows[call]} rows"
    if value.space != ROWS and calls.distinct:
        return None
    if not isinstance(value.outer, int) or not isinstance(value.block, int):
        return None
    a, b, both = [_laid_out(value, tensor) for tensor in tensors]
    if a is None or b is None or both is None:
        return "its axis is not laid out as it says"
    if a.shape[: value.axis + 1] != b.shape[: value.axis + 1] or a.shape[value.axis + 2 :] != b.shape[value.axis + 2 :]:
        return f"has the shapes {a.shape} and {b.shape}"
    other = None if moved is None or moved.shape != tensors[2].shape else moved.reshape(both.shape)
    return (
        None if _equal(both, np.concatenate([a, b], value.axis + 1), other) else "differs from its rows computed apart"
    )


def _laid_out(value: Rows, tensor: Array) -> Array | None:
    """The axis of the rows as three: [outer, rows, block]."""
    assert isinstance(value.outer, int)
    assert isinstance(value.block, int)
    before, dim, behind = tensor.shape[: value.axis], tensor.shape[value.axis], tensor.shape[value.axis + 1 :]
    entries = value.outer * value.block
    if not entries or dim % entries:
        return None
    return tensor.reshape((*before, value.outer, dim // entries, value.block, *behind))


def _numbers(value: Numbers, tensors: Three, calls: Calls) -> str | None:
    if isinstance(value.limit, int) or value.limit.symbols != (ROWS,):
        return None  # no law of another space is stated here
    a, b, both = tensors
    first = value.limit.factor * calls.rows[0]  # the places of b begin here
    return _rows(value.rows, (a, b, np.where(both >= first, both - first, both)), calls)


def _places(value: Places, tensors: Three, calls: Calls) -> str | None:
    moved = [each.copy() for each in tensors]
    if value.of == ROWS:
        column = moved[2][..., 0]
        moved[2][..., 0] = np.where(column >= calls.rows[0], column - calls.rows[0], column)
    return _rows(value.rows, moved, calls) if value.of == ROWS else None


def _splits(value: Splits, tensors: Three, calls: Calls) -> str | None:
    for call, tensor in enumerate(tensors):
        if value.of == ROWS and len(tensor) != calls.rows[call] + 1:
            return f"are {len(tensor)} row splits in a call of {calls.rows[call]} rows"
    a, b, both = tensors
    return None if _equal(both, np.concatenate([a, b[1:] + a[-1]])) else "are not the row splits of both"


def _offsets(value: Offsets, tensors: Three, calls: Calls) -> str | None:
    """The offsets of b are all moved by the number of a's entries, which is at least the greatest offset of a."""
    a, b, both = tensors
    moved = both[len(a) :] - b if len(both) == len(a) + len(b) else None
    if moved is None or (value.rows.space == ROWS and len(a) != calls.rows[0]):
        return f"are {len(both)} offsets"
    if not _equal(both[: len(a)], a) or (len(a) and len(b) and (np.ptp(moved) or moved[0] < a.max())):
        return "are not the offsets of both"
    return None


def _equal(expected: Array, actual: Array, moved: Array | None = None) -> bool:
    if expected.dtype.kind == "O":
        return expected.shape == actual.shape and bool(np.all(expected == actual))
    beside = None if moved is None else {"": moved}
    return agree({"": expected}, {"": np.asarray(actual, expected.dtype)}, moved=beside)


def is_proven(value: Any) -> bool:
    return isinstance(value, Rows) and value.axis == 0 and value.space == ROWS and value.plain
