"""Made-up inputs for the comparison of a source with its export: several kinds of values, numbers of rows, and sizes.

Values come from hints of the graph where it has some (app/core/values/value_hints.py), else they are of a kind: numbers
from 0 to 1, wide normal numbers, small and larger whole numbers. They are the same at each import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.values.sample_inputs import SEED, hinted_inputs, random_inputs
from app.core.values.value_hints import ValueHints, pool_numbers, sized

#: Numbers of rows, where they are free. Chosen: some, one, and as many as processors compute together.
_ROWS = (3, 1, 8)

#: Sizes of free dimensions, in the order of trying: of the first, third, ... and of the second, fourth, ... Chosen:
#: sizes that differ show dimensions that were mixed up, some models take squares, and some multiples of 32; models of
#: sequences may crop thousands.
_SIZES = ((16, 24), (33, 49), (64, 96), (64, 64), (8, 12), (224, 224), (5, 7), (1, 1), (10500, 12000))

#: The most numbers of an input, and the most sets of hinted values that are tried. Chosen.
_MOST_NUMBERS, _MOST_POOLS = 1 << 24, 4

#: Makes values of one kind.
_Draw = Callable[[TensorSpec, tuple[int, ...], np.random.Generator], Array]

Shape = Sequence[int | None]


def made_inputs(
    signature: ModelSignature, hints: ValueHints, usual: Mapping[str, Shape] | None = None
) -> Iterator[dict[str, Array]]:
    """Inputs to try, the likeliest first.

    Args:
        usual: shapes of inputs that the model was made for, where their sizes are free.
    """
    if signature.ragged or signature.sparse:
        for rows in _ROWS:
            yield hinted_inputs(signature, hints, rows, 0)
            yield random_inputs(signature, rows)
        return
    hinted = [partial(_hinted, hints, number) for number in pool_numbers(hints)[:_MOST_POOLS]]
    kinds: list[Callable[[str], _Draw]] = [*hinted, lambda _: _unit, lambda _: _wide]
    for sizes in _sizes(signature, usual):
        for draw_of, rows in product(kinds, _ROWS):
            random = np.random.default_rng([SEED, *sizes, rows])
            shapes = {
                name: _shape(spec, sized(spec.shape or (), hints.get(name)), (usual or {}).get(name, ()), rows, sizes)
                for name, spec in signature.inputs.items()
            }
            if all(int(np.prod(shape)) <= _MOST_NUMBERS for shape in shapes.values()):
                yield {name: draw_of(name)(spec, shapes[name], random) for name, spec in signature.inputs.items()}


def _sizes(signature: ModelSignature, usual: Mapping[str, Shape] | None) -> Sequence[tuple[int, ...]]:
    """The sizes of free dimensions to try; () takes the usual ones."""
    if signature.fixed_inner_shapes:
        return _SIZES[:1]
    return ((), *_SIZES) if usual else _SIZES


def _shape(spec: TensorSpec, known: Shape, usual: Shape, rows: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if spec.shape is None:
        return (rows,)
    shape = []
    for axis, size in enumerate(known):
        free = sizes[(axis + 1) % 2] if sizes else (usual[axis] if axis < len(usual) else None) or _SIZES[0][0]
        shape.append(size if size is not None else rows if axis == 0 else free)
    return tuple(shape)


def _hinted(hints: ValueHints, number: int, name: str) -> _Draw:
    """Values of the hints' pools of this number."""
    pool = hints[name].pool(number) if name in hints else None
    return _unit if pool is None else lambda spec, shape, random: pool.draw(shape, spec.dtype, random)


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
