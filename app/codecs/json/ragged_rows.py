"""RaggedTensors as nested lists: `[[1, 2], [3]]` in place of values [1, 2, 3] and row splits [0, 2, 3], and back.

A RaggedTensor has a tensor of row splits for each of its ragged dimensions, outermost first. Its rows are lists nested
as deep; their elements are rectangular. Both directions take linear time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from app.codecs.json.long_arrays import Numbers
from app.codecs.json.nested_lists import tensor
from app.codecs.json.parsing import quote
from app.codecs.json.writing import jsonable
from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature, TensorSpec

_LIST = {list}


def nested_inputs(signature: ModelSignature, names: Mapping[str, Any] | None = None) -> Mapping[str, Sequence[str]]:
    """The ragged inputs that are given as nested lists, with the names of their row splits.

    Args:
        names: the inputs that were sent by name: an input whose row splits are among them has flat values. None: the
            inputs were sent in rows, which have no splits.
    """
    if names is None or not signature.ragged:
        return signature.ragged
    return {
        values: splits
        for values, splits in signature.ragged.items()
        if values in names and not any(name in names for name in splits)
    }


def without_splits(inputs: Mapping[str, TensorSpec], nested: Mapping[str, Sequence[str]]) -> Mapping[str, TensorSpec]:
    """The inputs that have to be sent, without the row splits of those in `nested`."""
    if not nested:
        return inputs
    implied = {name for splits in nested.values() for name in splits}
    return {name: spec for name, spec in inputs.items() if name not in implied}


def ragged_tensors(rows: Any, name: str, splits: Sequence[str], signature: ModelSignature) -> dict[str, Array]:
    """Values and row splits of one input, by their names.

    Args:
        rows: lists, nested at least as deep as there are row splits; parts may be Numbers or arrays.

    Raises:
        InvalidRequest: the text names the input, and the row that is nested otherwise or has a value that does not fit.
        Unsupported: JSON cannot represent this type.
    """
    level, found = _expanded(rows), dict[str, Array]()
    if type(level) is not list:
        raise InvalidRequest(f"Input {name!r}: expected a list of rows, but got: {quote(level)}")
    ends: list[list[int]] = []
    for depth, split in enumerate(splits, 1):
        if not set(map(type, level)) <= _LIST:
            level = list(map(_expanded, level))
        if not set(map(type, level)) <= _LIST:
            index = next(index for index, value in enumerate(level) if type(value) is not list)
            row, names = _row_of(index, ends), ", ".join(map(repr, splits))
            raise InvalidRequest(
                f"Input {name!r}: row {row} has {quote(level[index])} at depth {depth}; expected lists nested at least "
                f"{len(splits)} deep in each row, or values with their row splits {names}"
            )
        ends.append([0, *accumulate(map(len, level))])
        found[split] = np.array(ends[-1], signature.inputs[split].dtype)
        level = list(chain.from_iterable(level))
    if np.ndarray in set(map(type, level)):
        level = list(map(_expanded, level))
    return {name: _values(level, name, signature.inputs[name], ends), **found}


def _expanded(value: Any) -> Any:
    """Lists in place of Numbers and of arrays, which MessagePack's documents have and JSON has not."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.expanded() if isinstance(value, Numbers) else value


def _values(values: list[Any], name: str, spec: TensorSpec, ends: Sequence[Sequence[int]]) -> Array:
    """The flat values as an array, [values, ...], rectangular."""
    if not values:
        return np.empty((0, *[size or 0 for size in (spec.shape or (None,))[1:]]), spec.dtype)
    try:
        return tensor(values, spec.dtype)
    except InvalidRequest as error:
        raise _fault(values, name, spec, ends, error) from None


def _fault(
    values: list[Any], name: str, spec: TensorSpec, ends: Sequence[Sequence[int]], found: InvalidRequest
) -> InvalidRequest:
    """The error of the first row whose values are no tensor, or one of another shape than those before."""
    expected: tuple[int, ...] | None = None
    for row in range(len(ends[0]) - 1):
        start, end = row, row + 1
        for splits in ends:
            start, end = splits[start], splits[end]
        if start == end:
            continue
        try:
            shape = tensor(values[start:end], spec.dtype).shape[1:]
        except InvalidRequest as error:
            return InvalidRequest(f"Input {name!r}: row {row}: {error}")
        if expected not in {None, shape}:
            return InvalidRequest(
                f"Input {name!r}: row {row} has values of shape {list(shape)}; expected {list(expected or ())}, as in "
                "the rows before it"
            )
        expected = shape
    return found


def _row_of(index: int, ends: Sequence[Sequence[int]]) -> int:
    """The row of a list at some depth. `ends`: the row splits above it."""
    for splits in reversed(ends):
        index = int(np.searchsorted(splits, index, "right")) - 1
    return index


def nested_rows(name: str, values: Array, splits: Sequence[Array]) -> list[Any]:
    """The rows of a ragged output, for `dumps`. Raises Unsupported, as `jsonable`."""
    rows = jsonable(name, values)
    for each in reversed(splits):
        rows = [rows[start:end] for start, end in pairwise(each.tolist())]
    return list(rows)
