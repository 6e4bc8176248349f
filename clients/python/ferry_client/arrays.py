"""From the values that callers pass to arrays of the types that the protocols have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ferry_client.errors import InvalidRequest
from ferry_client.models import ModelMetadata

Array = npt.NDArray[Any]

#: One tensor for a model with one input, or tensors by the input's name.
Inputs = Mapping[str, npt.ArrayLike] | npt.ArrayLike

#: Strings are arrays of bytes objects.
STRING: np.dtype[Any] = np.dtype(object)

#: numpy has no bfloat16 of its own; None unless ml_dtypes is installed.
BFLOAT16: np.dtype[Any] | None = None
with suppress(ImportError):
    import ml_dtypes

    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

#: Error text for a bfloat16 tensor without that package.
NO_BFLOAT16 = "is bfloat16, which needs the package ml_dtypes (pip install ml-dtypes)"

_PLAIN = (list, tuple, str, bytes, bool, int, float)


def is_complete(inputs: Inputs) -> bool:
    """Whether each input has a name and a type; plain Python values have no type."""
    return isinstance(inputs, Mapping) and not any(isinstance(value, _PLAIN) for value in inputs.values())


def name_arrays(inputs: Inputs, metadata: ModelMetadata | None) -> dict[str, Array]:
    """Each input as an array by its name. Arrays keep their type; plain Python values take the model's.

    Args:
        metadata: the model's inputs; None if `is_complete(inputs)`.

    Raises:
        InvalidRequest: a value cannot be made a tensor, or it has no name and the model has several inputs.
    """
    if not isinstance(inputs, Mapping):
        inputs = {_only_input(metadata): inputs}
    known = metadata.inputs if metadata else {}
    return {
        name: _to_array(name, value, known[name].dtype if name in known else None) for name, value in inputs.items()
    }


def _only_input(metadata: ModelMetadata | None) -> str:
    names = list(metadata.inputs) if metadata else []
    if len(names) != 1:
        known = ", ".join(map(repr, names)) or "none"
        raise InvalidRequest(f"A tensor without a name needs a model with one input; this model has: {known}")
    return names[0]


def _to_array(name: str, value: npt.ArrayLike, dtype: np.dtype[Any] | None) -> Array:
    try:
        array = np.asarray(value, dtype if isinstance(value, _PLAIN) else None)
        if array.dtype.kind in "iub" and not np.array_equal(array, np.asarray(value)):
            raise ValueError(f"{array.dtype} cannot hold it exactly")
        if array.dtype.kind in "SU" and isinstance(value, _PLAIN):
            # numpy's own strings would lose zero bytes at their ends.
            array = np.array(value, STRING)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequest(f"Input {name!r} is no tensor: {error}") from error
    if array.dtype.kind in "OSUT":
        return _to_bytes(name, array)
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array


def _to_bytes(name: str, array: Array) -> Array:
    result = np.empty(array.size, STRING)
    for index, element in enumerate(array.reshape(-1).tolist()):
        if not isinstance(element, str | bytes):
            raise InvalidRequest(f"Input {name!r} has a {type(element).__name__} among strings; expected bytes or str")
        try:
            result[index] = element.encode() if isinstance(element, str) else element
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"Input {name!r} has text that is not valid Unicode: {error}") from error
    return result.reshape(array.shape)
