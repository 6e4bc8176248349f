"""Rows that differ in shape, by their shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from app.core.inference import Array

#: The inputs of a group, name -> [rows, ...], with the places of its rows in the request.
RowGroup = tuple[Sequence[int], dict[str, Array]]


def group_rows(rows: Sequence[Mapping[str, Array]]) -> list[RowGroup]:
    """Rows, each [1, ...], by their shapes, in the order in which the shapes first come; none if that helps nothing.

    It helps if they have the same inputs of the same rank, and more than one shape.
    """
    found: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(tuple([(name, array.shape) for name, array in row.items()]), []).append(number)
    kinds = {tuple([(name, len(shape)) for name, shape in form]) for form in found}
    if len(found) < 2 or len(kinds) > 1:
        return []
    return [
        (numbers, {name: np.concatenate([rows[number][name] for number in numbers]) for name in rows[0]})
        for numbers in found.values()
    ]
