"""Kinds of input values that computations of the same thing tend to answer differently.

Random numbers from 0 to 1 do not show that two computations differ for NaN, or where squares overflow. Each kind has a
reach: the distance from ordinary values. A variant that was proven up to a reach may be used for inputs within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from app.core.agreement import float_limits
from app.core.inference import STRING, Array, ModelSignature

#: Numbers below this are ordinary: pixels, tokens, most measurements. Chosen.
ORDINARY_BELOW = 1e4

#: Up to this many numbers the sum of squares is the quickest proof that all are small: 1.1 us instead of 2.8 for 64.
#: Larger sums are spread over threads, which costs more.
_SUMMED = 8192

_SUMMABLE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


class Reach(IntEnum):
    """A set of input values; each includes the one before."""

    ORDINARY = 0  #: absolute values below ORDINARY_BELOW, any string
    FINITE = 1  #: any number
    ANY = 2  #: NaN and infinity, too

    @property
    def bound(self) -> float:
        """Absolute values of numbers are below this. For ANY there is none: NaN is not below infinity."""
        return ORDINARY_BELOW if self is Reach.ORDINARY else inf


class ValueKind(NamedTuple):
    """A kind of values. `make` turns ordinary values into values of the kind, of the same shape and dtype."""

    name: str
    reach: Reach
    make: Callable[[Array, np.random.Generator], Array]


def kinds_of(dtype: np.dtype[Any]) -> tuple[ValueKind, ...]:
    """The kinds that values of this type have, the ordinary ones first."""
    if dtype == STRING:
        return _STRINGS
    if dtype.kind == "b":
        return (_filled("zero", False), _filled("one", True))
    return _whole_numbers(dtype) if np.issubdtype(dtype, np.integer) else _floating(dtype)


def lies_within(dtype: np.dtype[Any], reach: Reach) -> bool:
    """Whether all values of the type lie within the reach."""
    if dtype.kind in "Ob" or reach is Reach.ANY:
        return True
    if not np.issubdtype(dtype, np.integer):
        return False
    return reach is Reach.FINITE or np.iinfo(dtype).max < ORDINARY_BELOW


# --- values of inputs ---


def inputs_beyond(signature: ModelSignature, reach: Reach) -> tuple[str, ...]:
    """The inputs whose type has values beyond the reach. Row splits are as large as the batch, and need no look."""
    splits = {name for names in signature.ragged.values() for name in names}
    return tuple(
        name for name, spec in signature.inputs.items() if name not in splits and not lies_within(spec.dtype, reach)
    )


def is_below(array: Array, bound: float) -> bool:
    """Whether all absolute values are below the bound. NaN is not."""
    size = array.size
    if size <= _SUMMED and array.dtype in _SUMMABLE and np.vdot(array, array) < bound * bound:
        return True
    if not size:
        return True
    if np.iscomplexobj(array):
        array = np.abs(array)
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaN
        return bool(-bound < array.min() and array.max() < bound)


def finite_inputs(signature: ModelSignature) -> tuple[str, ...]:
    """The inputs in which NaN or infinity makes a request run alone."""
    return inputs_beyond(signature, Reach.FINITE) if signature.finite_only else ()


def are_finite(inputs: Mapping[str, Array], names: Iterable[str]) -> bool:
    """Whether no element of these inputs is NaN or infinite."""
    return all(is_below(inputs[name], inf) for name in names)


def not_finite_rows(inputs: Mapping[str, Array], names: Iterable[str]) -> Array:
    """[rows] a mask of the rows with an element of these inputs, [rows, ...], that is NaN or infinite."""
    odd = [~np.isfinite(inputs[name]).reshape(len(inputs[name]), -1).all(axis=1) for name in names]
    found: Array = np.logical_or.reduce(odd)
    return found


# --- makers ---


def _filled(name: str, value: Any, reach: Reach = Reach.ORDINARY) -> ValueKind:
    return ValueKind(name, reach, lambda values, _: _full(values, value))


def _single(name: str, value: Any, reach: Reach = Reach.ORDINARY) -> ValueKind:
    return ValueKind(f"single {name}", reach, partial(_with_one, value))


def _full(values: Array, value: Any) -> Array:
    filled = np.empty_like(values)
    filled[...] = value
    return filled


def _with_one(value: Any, values: Array, random: np.random.Generator) -> Array:
    changed = values.copy()
    if changed.size:
        changed.flat[random.integers(changed.size)] = value
    return changed


def _spread(low: float, high: float, values: Array, random: np.random.Generator) -> Array:
    return np.asarray(random.uniform(low, high, values.shape), values.dtype)


def _zeros_of_both_signs(values: Array, random: np.random.Generator) -> Array:
    return np.asarray(random.choice([0.0, -0.0], values.shape), values.dtype)


def _integers(low: int, high: int, values: Array, random: np.random.Generator) -> Array:
    return random.integers(low, high, values.shape, dtype=values.dtype, endpoint=True)


# --- kinds by type ---

#: 'Full': every byte there is, NUL and invalid UTF-8 included.
_STRINGS = (
    _filled("empty string", b""),
    _filled("full string", bytes(range(256)) * 4),
    _filled("text", "Größe 日本 \N{ROCKET} 12.5, a b".encode()),
    _single("empty string", b""),
)


def _floating(dtype: np.dtype[Any]) -> tuple[ValueKind, ...]:
    limits = float_limits(dtype)
    largest, least = float(limits.max), float(limits.tiny)
    ordinary = min(ORDINARY_BELOW, largest**0.5)
    # Sums of huge values do not overflow, and products do. Sums of the largest numbers would overflow or not depending
    # on the order of additions, also in the model as it is.
    huge = largest**0.8
    return (
        ValueKind("zero", Reach.ORDINARY, _zeros_of_both_signs),
        ValueKind("negative", Reach.ORDINARY, partial(_spread, -1.0, 0.0)),
        ValueKind("large", Reach.ORDINARY, partial(_spread, -ordinary, ordinary)),
        ValueKind("denormal", Reach.ORDINARY, partial(_spread, -least, least)),
        ValueKind("huge", Reach.FINITE, partial(_spread, -huge, huge)),
        _filled("NaN", np.nan, Reach.ANY),
        _filled("infinity", np.inf, Reach.ANY),
        _filled("-infinity", -np.inf, Reach.ANY),
        _single("NaN", np.nan, Reach.ANY),
        _single("infinity", np.inf, Reach.ANY),
        _single("-infinity", -np.inf, Reach.ANY),
    )


def _whole_numbers(dtype: np.dtype[Any]) -> tuple[ValueKind, ...]:
    limits = np.iinfo(dtype)
    least, largest = int(limits.min), int(limits.max)
    ordinary = min(int(ORDINARY_BELOW) - 1, largest)
    bounds = Reach.ORDINARY if lies_within(dtype, Reach.ORDINARY) else Reach.FINITE
    kinds = [
        _filled("zero", 0),
        ValueKind("large", Reach.ORDINARY, partial(_integers, 0, ordinary)),
        _filled("greatest", largest, bounds),
        _single("greatest", largest, bounds),
    ]
    if least < 0:
        kinds += [
            ValueKind("negative", Reach.ORDINARY, partial(_integers, max(-99, least), -1)),
            _single("negative", -1),
            _filled("least", least, bounds),
            _single("least", least, bounds),
        ]
    return tuple(kinds)
