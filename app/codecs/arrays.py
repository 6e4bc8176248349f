"""Arrays that come and go with a type of their own, in forms other than JSON. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from app.codecs.tensorflow_types import enum_name
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array, ModelSignature, TensorSpec, dtype_name, format_shape

#: No deeper than every numpy allows.
MAX_RANK = 31

#: An empty array may have large dimensions beside the empty one; batches are padded, and these then become real.
_MAX_HIDDEN_BYTES = 64 * 1024**2


def only_input(signature: ModelSignature, form: str) -> TensorSpec:
    """The input that a body without names is for. Raises InvalidRequest unless there is exactly one."""
    needed = signature.expected(())
    if len(needed) != 1:
        names = ", ".join(map(repr, sorted(signature.inputs))) or "none"
        raise InvalidRequest(
            f"{form} is a single array, but the inputs of signature {signature.name!r} are {names}; send .npz or JSON"
        )
    return next(iter(needed.values()))


def cast(array: Array, spec: TensorSpec) -> Array:
    """The array in the input's type, if no value can change by that. Raises InvalidRequest, naming both types."""
    if array.dtype == spec.dtype:
        return array
    if spec.dtype == STRING and array.dtype.kind in "SU":
        return _strings(array, spec.name)
    if array.dtype.kind == "V" and is_foreign(spec.dtype) and array.dtype.itemsize == spec.dtype.itemsize:
        return array.view(spec.dtype)  # how numpy saves bfloat16 and the like: bytes without a type
    if spec.dtype == STRING or not np.can_cast(array.dtype, spec.dtype, "safe"):
        raise InvalidRequest(
            f"Input {spec.name!r} has dtype {dtype_name(array.dtype)}, which {dtype_name(spec.dtype)}"
            f" cannot hold without loss; expected {spec}"
        )
    return array.astype(spec.dtype)


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and its like, which plain numpy knows nothing of."""
    return dtype.isbuiltin == 2


def from_bytes(content: bytes | memoryview, dtype: np.dtype[Any], shape: Sequence[int], name: str) -> Array:
    """The row-major array in all of `content`, read-only. Raises InvalidRequest where the bytes are not as many."""
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"{name} has {len(shape)} dimensions; expected {MAX_RANK} at most")
    expected = prod(shape) * dtype.itemsize
    hidden = prod(size or 1 for size in shape) * dtype.itemsize if not expected else 0
    if not dtype.itemsize or expected != len(content) or hidden > _MAX_HIDDEN_BYTES:
        raise InvalidRequest(
            f"{name} has {len(content)} bytes of data; {dtype_name(dtype)} of shape"
            f" {format_shape(tuple(shape))[:256]} takes {expected}"
        )
    if dtype.kind == "b" and content and max(np.frombuffer(content, np.uint8)) > 1:
        raise InvalidRequest(f"{name} is of type bool but has a byte that is neither 0 nor 1")
    return np.frombuffer(content, dtype).reshape(shape)


def check_simple(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises Unsupported where an element is a structure, as quantized types are."""
    for name, spec in outputs.items():
        if spec.dtype.names:
            raise Unsupported(f"Output {name!r} of type {enum_name(spec.dtype)} cannot be written")


def _strings(array: Array, name: str) -> Array:
    values = np.empty(array.size, STRING)
    try:
        _check_text(array)
        values[:] = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    except ValueError as error:
        raise InvalidRequest(f"Input {name!r} has text that is no valid Unicode") from error
    return values.reshape(array.shape)


def _check_text(array: Array) -> None:
    """Raises ValueError where an element has a number that is no character: Python must not see those."""
    if array.dtype.kind == "U" and array.size:
        points = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
        if points.max() > sys.maxunicode:
            raise ValueError
