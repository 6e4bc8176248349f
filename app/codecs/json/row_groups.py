"""Rows of nested lists that differ in shape, in groups of equal shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.codecs.body_format import RowGroup
from app.codecs.json.nested_lists import rows

_LIST = {list}


def group_rows(columns: Mapping[str, list[Any]], dtypes: Mapping[str, np.dtype[Any]]) -> list[RowGroup]:
    """The groups of rows by shape, in the order in which the shapes first come.

    There are none if all rows have one shape, or the ranks differ. A group is read as a whole: a single row would take
    5 us, and may have three bytes.

    Args:
        columns: the rows of each input; all have the same number of rows.

    Raises:
        InvalidRequest, Unsupported: a row is not rectangular, or does not fit its type.
    """
    lengths = [level for column in columns.values() for level in _lengths(column) if len(set(level)) > 1]
    found: dict[tuple[int, ...], list[int]] = {}
    for number, form in enumerate(zip(*lengths, strict=True)):
        found.setdefault(form, []).append(number)
    if len(found) < 2:
        return []
    groups: list[RowGroup] = [
        (
            numbers,
            {name: rows([column[number] for number in numbers], dtypes[name]) for name, column in columns.items()},
        )
        for numbers in found.values()
    ]
    ranks = {tuple([array.ndim for array in inputs.values()]) for _, inputs in groups}
    return groups if len(ranks) == 1 else []


def _lengths(column: list[Any]) -> list[list[int]]:
    """The lengths of the rows' first lists, by level of nesting; empty if the rows are not nested equally deep."""
    levels: list[list[int]] = []
    while (kinds := set(map(type, column))) == _LIST:
        levels.append(list(map(len, column)))
        column = [row[0] if row else None for row in column]
    return [] if list in kinds else levels
