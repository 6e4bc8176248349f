"""Whether two ways of computing the same thing agree within rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from app.core.inference import Array, ModelSignature, dtype_name

#: The largest allowed difference, relative to the value and to the largest value of the array: sums in another order
#: differ by a few units in the last place for each addend. Types that are not listed must be equal. Chosen.
TOLERANCES: Mapping[str, float] = {
    "bfloat16": 5e-2,
    "float16": 5e-3,
    "float32": 1e-4,
    "float64": 1e-10,
    "complex64": 1e-4,
    "complex128": 1e-10,
}

#: The same where products of float32 are computed in TF32, whose factors have 11 binary digits. One row may be computed
#: without it, two with it, and seven by another kernel, so a row's answer depends on the number of rows: on a H200 by
#: 7e-4 for four dense layers and by 4e-2 for MobileNetV2 (python -m bench.gpu). Twice that, and room for deeper nets.
TF32_TOLERANCES: Mapping[str, float] = {**TOLERANCES, "float32": 1e-1, "complex64": 1e-1}

#: Elements that are compared at a time: doubles and masks of a whole answer would take many times its memory. Chosen.
_BLOCK = 1 << 18

#: An answer may move by this many times as much as it does if the inputs move by their last digit. Chosen.
_MOVES = 10.0


def tolerances_of(signature: ModelSignature) -> Mapping[str, float]:
    """The tolerances for answers to the same row in calls of different sizes, on the device of the signature."""
    return TF32_TOLERANCES if signature.tf32 else TOLERANCES


def agree(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    tolerances: Mapping[str, float] = TOLERANCES,
    moved: Mapping[str, Array] | None = None,
) -> bool:
    """Whether names, dtypes and shapes are equal, and values within the tolerance of their type.

    NaN equals NaN, zeros of both signs are equal, and numbers that are too small to be normal may count as zero.

    Args:
        moved: the expected answers to inputs that differ in their last digits (`moved_inputs`). A value that moves may
            differ by a multiple of that, since rounding alone changes it: a difference of huge numbers, the place of
            the greatest among equals.
    """
    return expected.keys() == actual.keys() and all(
        _agree(expected[name], actual[name], tolerances, None if moved is None else moved[name]) for name in expected
    )


def moved_inputs(inputs: Mapping[str, Array], random: np.random.Generator) -> dict[str, Array]:
    """The inputs with floating-point numbers moved by their last digit; denormal numbers become zero."""
    return {name: _moved(values, random) for name, values in inputs.items()}


def _moved(values: Array, random: np.random.Generator) -> Array:
    if dtype_name(values.dtype) not in TOLERANCES:
        return values
    limits = float_limits(values.dtype)
    with np.errstate(all="ignore"):
        factors = 1.0 + float(limits.eps) * random.choice([-1.0, 1.0], values.shape)
        return np.asarray(np.where(np.abs(values) < limits.tiny, 0, values * factors), values.dtype)


def _agree(expected: Array, actual: Array, tolerances: Mapping[str, float], moved: Array | None) -> bool:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return False
    tolerance = tolerances.get(dtype_name(expected.dtype))
    if tolerance is None:
        return bool(np.all((expected == actual) | (False if moved is None else expected != moved)))
    want, got = expected.ravel(), actual.ravel()
    other = None if moved is None else moved.ravel()
    blocks = [slice(start, start + _BLOCK) for start in range(0, expected.size, _BLOCK)]
    slack = tolerance * max((_largest(want[block]) for block in blocks), default=0.0)
    slack += float(float_limits(expected.dtype).tiny)
    return all(
        _agree_within(want[block], got[block], tolerance, slack, None if other is None else other[block])
        for block in blocks
    )


def _agree_within(expected: Array, actual: Array, tolerance: float, slack: float, moved: Array | None) -> bool:
    # 1. The difference that rounding explains.
    precise = np.complex128 if np.iscomplexobj(expected) else np.float64
    want, got = expected.astype(precise), actual.astype(precise)
    with np.errstate(all="ignore"):
        allowed = tolerance * np.abs(want) + slack

        # 2. The difference that the last digits of the inputs explain.
        movable: Array | bool = False
        if moved is not None:
            other = moved.astype(precise)
            movable = ~_same_special(want, other)
            allowed = allowed + _MOVES * np.abs(other - want)

        close = np.isfinite(want) & np.isfinite(got) & (np.abs(got - want) <= allowed)
        return bool(np.all(close | (~np.isfinite(want) & _same_special(want, got)) | movable))


def _largest(values: Array) -> float:
    """The largest finite absolute value."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _same_special(one: Array, other: Array) -> Array:
    """[values] a mask of the places where both are finite, both NaN, or both the same infinity."""
    equal: Array = (np.isfinite(one) & np.isfinite(other)) | (np.isnan(one) & np.isnan(other)) | (one == other)
    return equal


def float_limits(dtype: np.dtype[Any]) -> Any:
    """np.finfo of any floating-point or complex type: its largest, least normal number and least relative step."""
    return ml_dtypes.finfo(np.empty(0, dtype).real.dtype)  # type: ignore[no-untyped-call]  # it has no stubs
