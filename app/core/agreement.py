"""Whether two ways of computing the same thing agree within rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.core.inference import Array, dtype_name

#: Largest allowed difference, relative to the value and to the largest value of the array: sums in another order
#: differ by a few units in the last place for each addend. Types that are not listed must be equal. Chosen.
TOLERANCES: Mapping[str, float] = {
    "bfloat16": 5e-2,
    "float16": 5e-3,
    "float32": 1e-4,
    "float64": 1e-10,
    "complex64": 1e-4,
    "complex128": 1e-10,
}


def agree(
    expected: Mapping[str, Array], actual: Mapping[str, Array], tolerances: Mapping[str, float] = TOLERANCES
) -> bool:
    """Whether names, dtypes and shapes are equal, and values within the tolerance of their type. NaN equals NaN."""
    return expected.keys() == actual.keys() and all(
        _agree(expected[name], actual[name], tolerances) for name in expected
    )


def _agree(expected: Array, actual: Array, tolerances: Mapping[str, float]) -> bool:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return False
    tolerance = tolerances.get(dtype_name(expected.dtype))
    if tolerance is None:
        return bool(np.array_equal(expected, actual))
    precise = np.complex128 if np.iscomplexobj(expected) else np.float64
    want, got = expected.astype(precise), actual.astype(precise)
    finite = np.abs(want[np.isfinite(want)])
    scale = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
