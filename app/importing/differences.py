"""The difference of two answers to the same inputs: an export's and its source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.core.inference import STRING, Array, dtype_name, format_shape

#: The largest difference that is allowed, relative to the largest value of the output, at least 1. Types that are not
#: listed must be equal. float32: about eight times its step; the others the same, by their steps.
TOLERANCES: Mapping[str, float] = {
    "bfloat16": 6e-2,
    "float16": 8e-3,
    "float32": 1e-6,
    "float64": 2e-15,
    "complex64": 1e-6,
    "complex128": 2e-15,
}


class Comparison(NamedTuple):
    """The comparison of two answers.

    difference: the largest one that is allowed.
    fault: the first one that is not, in words; empty if there is none.
    """

    difference: float
    fault: str = ""


def compare(
    expected: Mapping[str, Array], actual: Mapping[str, Array], moved: Mapping[str, Array] | None = None
) -> Comparison:
    """Compares an export's answer with its source's.

    Args:
        moved: the source's answer to inputs with other last digits: what moves may differ by ten times as much, and by
            ten times what half of an output's values move at most, for layers round like inputs, and by chance a value
            does not move.
    """
    if expected.keys() != actual.keys():
        return Comparison(0.0, f"the outputs are {_listed(actual)} instead of {_listed(expected)}")
    largest = 0.0
    for name, want in expected.items():
        found = _compare(name, want, actual[name], None if moved is None else moved[name])
        if found.fault:
            return found
        largest = max(largest, found.difference)
    return Comparison(largest)


def same_structure(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> Comparison:
    """Compares names, types and shapes alone, for models that draw random numbers."""
    if expected.keys() != actual.keys():
        return Comparison(0.0, f"the outputs are {_listed(actual)} instead of {_listed(expected)}")
    faults = (_structure(name, want, actual[name]) for name, want in expected.items())
    return Comparison(0.0, next(filter(None, faults), ""))


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"


def _structure(name: str, want: Array, got: Array) -> str:
    one, other = (f"{dtype_name(each.dtype)}{format_shape(each.shape)}" for each in (got, want))
    return f"output {name!r} is {one} instead of {other}" if one != other else ""


def _compare(name: str, want: Array, got: Array, moved: Array | None) -> Comparison:
    if fault := _structure(name, want, got):
        return Comparison(0.0, fault)
    if moved is not None and moved.shape != want.shape:
        moved = None
    tolerance = TOLERANCES.get(dtype_name(want.dtype))
    if tolerance is None:
        unequal = want != got
        if moved is not None:
            unequal &= want == moved
        return Comparison(0.0, _place(name, want, got, int(np.argmax(unequal))) if np.any(unequal) else "")
    return _compare_numbers(name, want, got, moved, tolerance)


def _compare_numbers(name: str, want: Array, got: Array, moved: Array | None, tolerance: float) -> Comparison:
    precise = np.complex128 if np.iscomplexobj(want) else np.float64
    one, other = want.astype(precise), got.astype(precise)
    finite = np.isfinite(one) & np.isfinite(other)
    alike = (np.isnan(one) & np.isnan(other)) | (one == other)
    with np.errstate(all="ignore"):
        scale = max(1.0, float(np.abs(one[np.isfinite(one)]).max(initial=0.0)))
        distance = np.where(alike, 0.0, np.where(finite, np.abs(one - other), np.inf)) / scale
        allowed = np.full(distance.shape, tolerance)
        if moved is not None:
            shifts = np.abs(moved.astype(precise) - one)
            usual = np.median(shifts[finite & np.isfinite(shifts) & (one != 0)], keepdims=True) if np.any(one) else 0.0
            allowed += 10 * (np.where(np.isfinite(shifts), shifts, np.inf) + np.nan_to_num(usual)) / scale
    if np.any(distance > allowed):
        return Comparison(0.0, _place(name, want, got, int(np.argmax(np.where(distance > allowed, distance, 0.0)))))
    return Comparison(float(distance[np.isfinite(distance)].max(initial=0.0)))


def _place(name: str, want: Array, got: Array, flat: int) -> str:
    """The largest difference in words: where it is, and both values."""
    place = [int(each) for each in np.unravel_index(flat, want.shape)]
    one, other = want.flat[flat], got.flat[flat]
    values = (repr(one), repr(other)) if want.dtype == STRING else (f"{one:.9g}", f"{other:.9g}")
    row = f", in row {place[0]}" if place else ""
    return f"output {name!r} differs at {place}{row}: the source gives {values[0]}, the export {values[1]}"
