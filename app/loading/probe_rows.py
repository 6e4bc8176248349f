"""Rows with which a model is tried during loading: inner shapes to try in turn, and values of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from app.batching.shapes.padding import NamedShape
from app.core.inference import Array, ModelSignature
from app.loading.output_shapes import Sizes
from app.loading.probe_values import probe_values

#: The inner shape of each input: numbers, and names of free dimensions. Those with the same name have the same size.
NamedShapes = Mapping[str, NamedShape]

#: Sizes of free dimensions, tried in turn until the model accepts one: position tables have an end, and convolutions
#: need a minimum. Chosen.
_SCALES = (8, 2, 32, 128)

#: A row of a RaggedTensor has 1 to so many values. Chosen.
_RAGGED_VALUES = 3


def shapes_to_try(signature: ModelSignature) -> Iterator[tuple[NamedShapes, Sizes]]:
    """Names of the free dimensions, as many different ones as possible first, and a size for each name."""
    for scale in _SCALES:
        for naming in _namings(signature):
            names = names_in(naming)
            yield naming, {name: scale + 1 + 3 * number for number, name in enumerate(names)}
            if not names:
                return


def names_in(naming: NamedShapes) -> list[str]:
    return sorted({dimension for shape in naming.values() for dimension in shape if isinstance(dimension, str)})


def inner_shape(signature: ModelSignature, name: str) -> tuple[int | None, ...]:
    return (signature.inputs[name].shape or ())[1:]


def probe_row(
    signature: ModelSignature,
    naming: NamedShapes,
    sizes: Sizes,
    kind: str,
    random: np.random.Generator,
    *,
    also_fixed: bool = False,
) -> dict[str, Array]:
    """Inputs of one row, with the values of probe_values."""
    shapes = {
        name: tuple(sizes[dimension] if isinstance(dimension, str) else dimension for dimension in shape)
        for name, shape in naming.items()
    }
    draw = partial(probe_values, signature, shapes, kind, random, also_fixed=also_fixed)
    row = draw()
    for name, all_splits in signature.ragged.items():
        more = random.integers(0, _RAGGED_VALUES)
        row[name] = np.concatenate([row[name], *[draw()[name] for _ in range(more)]])
        for splits in all_splits:
            end = len(row[name]) if splits == all_splits[-1] else 1
            row[splits] = np.array([0, end], signature.inputs[splits].dtype)
    return row


def _namings(signature: ModelSignature) -> Iterator[NamedShapes]:
    """Ways to name the free dimensions: a name for each, one for each axis, one for all."""
    seen = []
    for form in ("{name}.{axis}", "d{axis}", "d"):
        naming = {
            name: tuple(
                form.format(name=name, axis=axis) if size is None else size
                for axis, size in enumerate(inner_shape(signature, name), 1)
            )
            for name in signature.inputs
        }
        count = len(names_in(naming))
        if count not in seen:
            seen.append(count)
            yield naming
