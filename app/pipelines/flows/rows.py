"""Sets of rows that went different ways, and the join of their values, in order.

A set of rows is None for all rows of a request, or the ascending numbers of some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from app.core.errors import InferenceFailed
from app.core.inference import Array, TensorSpec

Rows = Array | None

NO_ROWS: Array = np.empty(0, np.intp)


def intersection(sets: Iterable[Rows]) -> Rows:
    """The rows that are in all sets."""
    found: Rows = None
    for rows in sets:
        if rows is not None and rows is not found:
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
    return found


def union(sets: Sequence[Rows]) -> Rows:
    """The rows that are in any set."""
    known = [rows for rows in sets if rows is not None]
    if len(known) < len(sets):
        return None
    return known[0] if len(known) == 1 else np.unique(np.concatenate(known))


def pick(array: Array, present: Rows, rows: Rows) -> Array:
    """Rows `rows` of a request, from an array that holds its rows `present`, which include them."""
    if present is rows:
        return array
    if present is None:
        return array[rows]
    assert rows is not None  # noqa: S101 - fewer are not all
    return array if present.size == rows.size else array[np.searchsorted(present, rows)]


def join(parts: Sequence[tuple[Array, Rows]], rest: object, rows: Rows, count: int, spec: TensorSpec) -> Array:
    """The values of rows from several parts: [rows, ...]. A row is that of the first part that has it, else `rest`.

    Args:
        parts: arrays, with the rows of the request that they have.
        rows: the wanted ones, of the `count` of a request.
        spec: the shape of a row where there are no parts; a free dimension has size 1 then.

    Raises InferenceFailed: rows of different parts differ in shape, or a row is in no part and there is no `rest`.
    """
    # 1. Part by part, the rows that are still missing.
    wanted = np.arange(count) if rows is None else rows
    left = np.ones(wanted.size, bool)
    joined: Array | None = None
    for array, present in parts:
        has, places = _places(present, wanted)
        has &= left
        if not has.any():
            continue
        if joined is None:
            joined = np.empty((wanted.size, *array.shape[1:]), array.dtype)
        elif joined.shape[1:] != array.shape[1:]:
            raise InferenceFailed(
                f"Rows of {spec.name!r} come from different steps and differ in shape: "
                f"{list(joined.shape[1:])} and {list(array.shape[1:])}"
            )
        joined[has] = array[places[has]]
        left &= ~has
        if not left.any():
            return joined
    if rest is None and wanted.size:
        raise InferenceFailed(f"Rows of {spec.name!r} were computed by no step")

    # 2. The constant in all other rows.
    if joined is None:
        sizes = parts[0][0].shape[1:] if parts else [1 if size is None else size for size in (spec.shape or ())[1:]]
        joined = np.empty((wanted.size, *sizes), spec.dtype)
    if rest is not None:
        joined[left] = rest
    return joined


def _places(present: Rows, wanted: Array) -> tuple[Array, Array]:
    """The wanted rows that are in `present` (a mask), and their places there."""
    if present is None:
        return np.ones(wanted.size, bool), wanted
    if not present.size:
        return np.zeros(wanted.size, bool), wanted
    places = np.minimum(np.searchsorted(present, wanted), present.size - 1)
    return present[places] == wanted, places
