"""Types and shapes of values between steps: whether they fit, and their common shape. Shapes include the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import ml_dtypes
import numpy as np

from app.core.inference import Dimension, TensorSpec, dtype_name, format_shape
from app.pipelines.references import PipelineInvalid

Shape = tuple[Dimension, ...] | None

#: The result for two shapes that have no sizes in common.
NO_SHAPE: Shape = (-1,)


def merged(one: Shape, other: Shape) -> Shape:
    """The shape of arrays that have both shapes, such as [?,3] for [?,3] and [?,?]; NO_SHAPE if there are none."""
    if one is None or other is None:
        return one if other is None else other
    if len(one) != len(other) or any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True)):
        return NO_SHAPE
    return tuple([size if size is not None else twin for size, twin in zip(one, other, strict=True)])


def joined(one: Shape, other: Shape) -> Shape:
    """The shape of arrays that have either shape, such as [?,?] for [?,3] and [?,4]; NO_SHAPE if the ranks differ."""
    if one is None or other is None:
        return None
    if len(one) != len(other):
        return NO_SHAPE
    return tuple([size if size == twin else None for size, twin in zip(one, other, strict=True)])


def check_fits(what: object, spec: TensorSpec, dtype: np.dtype[Any], shape: Shape, hint: str = "") -> Shape:
    """The shape of a value that is passed to an input. Raises PipelineInvalid unless type and shape can be the input's.

    Args:
        what: the name of the value, for the error text.
        hint: the end of the error text if the shape is wrong.
    """
    if spec.dtype != dtype:
        raise PipelineInvalid(f"{what} is {dtype_name(spec.dtype)}, but should be {dtype_name(dtype)}")
    both = merged(spec.shape, shape)
    if both is NO_SHAPE:
        raise PipelineInvalid(f"{what} is {format_shape(spec.shape)}, but should be {format_shape(shape)}{hint}")
    return both


def each_hint(wanted: TensorSpec, given: TensorSpec) -> str:
    """The hint to write 'each' where the elements of a row would fit an input; empty if they would not."""
    if given.shape is None or wanted.shape is None or len(given.shape) < 2 or given.dtype != wanted.dtype:
        return ""
    if merged((None, *given.shape[2:]), wanted.shape) is NO_SHAPE:
        return ""
    elements = "element" if given.shape[1] is None else f"of the {given.shape[1]}"
    return f" (to pass each {elements} as a row, write 'each: {wanted.name}')"


def check_rest(rest: Any, dtype: np.dtype[Any]) -> None:
    """Raises PipelineInvalid unless the number can be a value of this type."""
    if rest is None:
        return
    if dtype.kind not in "iufV" or (isinstance(rest, float) and _is_whole(dtype)):
        what = "a whole number" if _is_whole(dtype) else "an output of a step or an input of this type"
        raise PipelineInvalid(f"{rest!r} is no {dtype_name(dtype)}, but should be {what}")
    least, most = _limits(dtype)
    if not least <= rest <= most and abs(rest) < inf:
        raise PipelineInvalid(f"{rest!r} does not fit into {dtype_name(dtype)}")


def _is_whole(dtype: np.dtype[Any]) -> bool:
    """Whether the type has whole numbers; the kind of int4 is 'V'."""
    return "int" in dtype.name


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if _is_whole(dtype):
        whole = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # it has no stubs
        return int(whole.min), int(whole.max)
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # it has no stubs
    return -most, most


@contextmanager
def located(place: str) -> Iterator[None]:
    """The faults of the block, whose texts begin with the place."""
    try:
        yield
    except PipelineInvalid as fault:
        raise PipelineInvalid(f"{place}: {fault}") from None
