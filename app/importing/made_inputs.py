"""Made-up inputs for the comparison of a source with its export: several kinds of values, numbers of rows, and sizes.

Values come from hints of the graph where it has some (app/core/values/value_hints.py), else they are of a kind: numbers
from 0 to 1, wide normal numbers, small and larger whole numbers. They are the same at each import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.values.sample_inputs import SEED, hinted_inputs, random_inputs
from app.core.values.value_hints import ValueHints, pool_numbers, sized

#: Numbers of rows, where they are free. Chosen: one, some, and a multiple of the vectors of processors.
_ROWS = (3, 1, 8)

#: Sizes of other free dimensions, in the order of trying. Chosen.
_SIZES = (8, 16, 33, 64, 128, 224, 5, 1)

#: Sizes that are enough for each kind of values, where sizes are free.
_MOST_ELEMENTS = 1 << 24

_Draw = Callable[[TensorSpec, tuple[int, ...], np.random.Generator], Array]


def made_inputs(signature: ModelSignature, hints: ValueHints) -> Iterator[dict[str, Array]]:
    """Inputs to try, the likeliest first."""
    structured = bool(signature.ragged or signature.sparse)
    for number in pool_numbers(hints):
        for rows in _ROWS:
            yield hinted_inputs(signature, hints, rows, number)
    if structured:
        for rows in _ROWS:
            yield random_inputs(signature, rows)
        return
    for size in _sizes(signature):
        for draw in (_unit, _wide):
            for rows in _ROWS:
                random = np.random.default_rng([SEED, size, rows])
                shapes = {name: _shape(spec, hints, name, rows, size) for name, spec in signature.inputs.items()}
                if sum(int(np.prod(shape)) for shape in shapes.values()) <= _MOST_ELEMENTS:
                    yield {name: draw(spec, shapes[name], random) for name, spec in signature.inputs.items()}


def _sizes(signature: ModelSignature) -> tuple[int, ...]:
    return _SIZES[:1] if signature.fixed_inner_shapes else _SIZES


def _shape(spec: TensorSpec, hints: ValueHints, name: str, rows: int, size: int) -> tuple[int, ...]:
    if spec.shape is None:
        return (rows,)
    known = sized(spec.shape, hints.get(name))
    return tuple(own if own is not None else rows if axis == 0 else size for axis, own in enumerate(known))


def _unit(spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Numbers from 0 to 1, whole numbers below 2, strings of digits."""
    if spec.dtype == STRING:
        digits = np.array([b"0", b"1", b"2", b"3"], STRING)
        return np.asarray(digits[random.integers(0, 4, shape)], STRING)
    if spec.dtype.kind in "biu":
        return np.asarray(random.integers(0, 2, shape), spec.dtype)
    return np.asarray(random.random(shape), spec.dtype)


def _wide(spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Normal numbers times 4, whole numbers to 255, strings of words."""
    if spec.dtype == STRING:
        words = np.array([b"the", b"Gr\xc3\xb6\xc3\x9fe of a film", b"", b"12.5, a\nb"], STRING)
        return np.asarray(words[random.integers(0, 4, shape)], STRING)
    if spec.dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape), bool)
    if spec.dtype.kind in "iu":
        return np.asarray(random.integers(0, min(255, int(np.iinfo(spec.dtype).max)), shape), spec.dtype)
    return np.asarray(4 * random.standard_normal(shape), spec.dtype)
