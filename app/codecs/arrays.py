"""Arrays of body formats that name their types, that is, of all formats but JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from app.codecs.tensorflow_types import enum_name
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array, ModelSignature, TensorSpec, dtype_name, format_shape, string_array

#: The most dimensions of a tensor. numpy 1 allows 32, and lists of tensors have one dimension more.
MAX_RANK = 31

#: An empty array may have large dimensions beside the 0: padding a batch gives it rows, which then take memory. Chosen.
_MAX_HIDDEN_BYTES = 64 * 1024**2


def only_input(signature: ModelSignature, body: str) -> TensorSpec:
    """The input for a body without names, of the kind `body`. Raises InvalidRequest unless exactly one is needed."""
    needed = signature.unnamed()
    if len(needed) != 1:
        names = ", ".join(map(repr, sorted(signature.inputs))) or "none"
        raise InvalidRequest(
            f"{body} is a single array, but the inputs of signature {signature.name!r} are {names}; send .npz or JSON"
        )
    return next(iter(needed.values()))


def cast(array: Array, spec: TensorSpec) -> Array:
    """The array in the input's type. Raises InvalidRequest if a value of its type could change by that."""
    if array.dtype == spec.dtype:
        return array
    if spec.dtype == STRING and array.dtype.kind in "SU":
        return _strings(array, spec.name)
    if array.dtype.kind == "V" and is_foreign(spec.dtype) and array.dtype.itemsize == spec.dtype.itemsize:
        return array.view(spec.dtype)  # numpy saves bfloat16 and the like as bytes without a type
    if spec.dtype == STRING or not np.can_cast(array.dtype, spec.dtype, "safe"):
        raise InvalidRequest(
            f"Input {spec.name!r} has dtype {dtype_name(array.dtype)}, which {dtype_name(spec.dtype)}"
            f" cannot hold without loss; expected {spec}"
        )
    return array.astype(spec.dtype)


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether a type is of ml_dtypes, such as bfloat16, and numpy alone does not have it."""
    return dtype.isbuiltin == 2


def from_bytes(content: bytes | memoryview, dtype: np.dtype[Any], shape: Sequence[int], name: str) -> Array:
    """The row-major array that fills `content`, read-only. Raises InvalidRequest with `name` if its size differs."""
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"{name} has {len(shape)} dimensions; expected {MAX_RANK} at most")
    expected = prod(shape) * dtype.itemsize
    hidden = prod(size or 1 for size in shape) * dtype.itemsize if not expected else 0
    if not dtype.itemsize or expected != len(content) or hidden > _MAX_HIDDEN_BYTES:
        raise InvalidRequest(
            f"{name} has {len(content)} bytes of data; {dtype_name(dtype)} of shape"
            f" {format_shape(tuple(shape))[:256]} takes {expected}"
        )
    if dtype.kind == "b" and np.frombuffer(content, np.uint8).max(initial=0) > 1:
        raise InvalidRequest(f"{name} is of type bool but has a byte that is neither 0 nor 1")
    return np.frombuffer(content, dtype).reshape(shape)


def check_simple(outputs: Mapping[str, TensorSpec]) -> None:
    """Check that all outputs have plain elements. Raises Unsupported for structures, such as quantized types."""
    for name, spec in outputs.items():
        if spec.dtype.names:
            raise Unsupported(f"Output {name!r} of type {enum_name(spec.dtype)} cannot be written")


def _strings(array: Array, name: str) -> Array:
    invalid = InvalidRequest(f"Input {name!r} has text that is not valid Unicode")
    if array.dtype.kind == "U" and array.size:
        # Python must not see a string with a code point that does not exist.
        points = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
        if points.max() > sys.maxunicode:
            raise invalid
    try:
        values = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    except ValueError as error:
        raise invalid from error
    return string_array(values, array.shape)
