"""Nested JSON lists to arrays.

Lists are flattened level by level with functions that loop in C; Python loops over elements only to find a misfit.
`scalars.py` checks types and ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from app.codecs.arrays import MAX_RANK
from app.codecs.json.long_arrays import Numbers
from app.codecs.json.parsing import quote
from app.codecs.json.scalars import Misfit, from_numbers, vector
from app.core.errors import InvalidRequest
from app.core.inference import Array

_LIST = {list}


def tensor(value: object, dtype: np.dtype[Any]) -> Array:
    """The array of one JSON value: a scalar, or nested lists, rectangular.

    Raises:
        InvalidRequest: an element does not fit; the text quotes it.
        Unsupported: JSON cannot represent this type.
    """
    if isinstance(value, Numbers):
        array = from_numbers(value, dtype)
        if array is not None:
            return array
        value = value.expanded()
    shape, leaves = _flatten([value])
    return vector(leaves, dtype).reshape(shape[1:])


def rows(values: Sequence[object] | Numbers, dtype: np.dtype[Any], key: str = "") -> Array:
    """The array [len(values), ...] with `values` as its rows, which must have equal shapes.

    Args:
        key: the input's name, if the instances are objects; for error texts.

    Raises:
        InvalidRequest, Unsupported: as `tensor`; the text names the row.
    """
    if isinstance(values, Numbers):
        array = from_numbers(values, dtype)
        if array is not None:
            return array
        values = values.expanded()
    shape = [len(values)]
    try:
        shape, leaves = _flatten(values)
        return vector(leaves, dtype).reshape(shape)
    except _Ragged as error:
        raise _fault_of_row(values, error.row, dtype, key) from error
    except Misfit as error:
        raise _fault_of_row(values, error.index // prod(shape[1:]), dtype, key) from error


def column(values: Sequence[object], dtype: np.dtype[Any], key: str) -> Array:
    """The array of the values that instances have under the name `key`, as by `rows`; some or all may be Numbers."""
    if Numbers not in map(type, values):
        return rows(values, dtype, key)
    array = _stack(values, dtype)
    if array is not None:
        return array
    return rows([value.expanded() if isinstance(value, Numbers) else value for value in values], dtype, key)


def _stack(values: Sequence[object], dtype: np.dtype[Any]) -> Array | None:
    """The array of Numbers that fit the type and have equal shapes; None for other values."""
    arrays: list[Array] = []
    for value in values:
        array = from_numbers(value, dtype) if isinstance(value, Numbers) else None
        if array is None or array.shape != (arrays or [array])[0].shape:
            return None
        arrays.append(array)
    return np.stack(arrays)


class _Ragged(InvalidRequest):
    """A row is nested differently from the first row."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def _flatten(values: Sequence[Any]) -> tuple[list[int], Sequence[Any]]:
    """The shape of the array with these rows, and its elements in order.

    Checks that lists of a level have equal lengths and that no scalar is among lists; `vector` checks that no list is
    among scalars. Raises _Ragged.
    """
    shape = [len(values)]
    while values and type(values[0]) is list:
        size = len(values[0])
        alike = len(values) == 1 or (set(map(type, values)) == _LIST and set(map(len, values)) == {size})
        if len(shape) > MAX_RANK or not alike:
            raise _ragged(shape, values)
        shape.append(size)
        values = values[0] if len(values) == 1 else list(chain.from_iterable(values))
    return shape, values


def _ragged(shape: list[int], values: Sequence[Any]) -> _Ragged:
    """The error for the first of `values` that is not a list as long as the first one, or for too many levels."""
    level, size = len(shape) - 1, len(values[0])
    if level >= MAX_RANK:
        return _Ragged(0, f"Encountered list at unexpected level: {level} expected < {MAX_RANK}")
    index = next(i for i, value in enumerate(values) if type(value) is not list or len(value) != size)
    value = values[index]
    row = index // prod(shape[1:])
    if type(value) is list:
        text = f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {size}"
    else:
        text = f"JSON Value: {quote(value)} found at incorrect level: {level} in the JSON DOM. Expected a list"
    return _Ragged(row, text)


def _fault_of_row(values: Sequence[Any], row: int, dtype: np.dtype[Any], key: str) -> InvalidRequest:
    """The error for `row`: row 0 or this row is not a tensor by itself, or this row has another shape than row 0."""
    arrays = []
    for index in (0, row):
        try:
            arrays.append(tensor(values[index], dtype))
        except InvalidRequest as error:
            return _in_row(index, key, str(error))
    expected, got = arrays
    if expected.size != got.size:
        return _in_row(row, key, f"Expecting tensor size: {expected.size} but got: {got.size}")
    return _in_row(row, key, f"Expecting shape {_brackets(expected)} but got: {_brackets(got)}")


def _in_row(row: int, key: str, text: str) -> InvalidRequest:
    place = f"{row} key: {key}" if key else str(row)
    return InvalidRequest(f"Failed to process element: {place} of 'instances' list. Error: INVALID_ARGUMENT: {text}")


def _brackets(array: Array) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"
