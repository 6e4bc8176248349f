"""Rows with which a model is tried during loading: a series of inner shapes, and values of several kinds.

No kind of values suits all models. A sum or an average shows any padding; a maximum shows padding with 0 only beside
negative values; a model may reject tokens beyond its vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from app.batching.shapes.padding import NamedShape
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.optional_inputs import is_length, with_left_out
from app.core.values.sample_inputs import inner_sizes
from app.core.values.value_hints import NO_HINTS, Elements, ValueHint, ValueHints, pool_numbers, sized
from app.loading.output_shapes import Sizes

#: The inner shape of each input: numbers, and names of free dimensions. Dimensions of one name have the same size.
NamedShapes = Mapping[str, NamedShape]

#: Sizes of free dimensions, tried one after the other until the model accepts one: position tables have an end, and
#: convolutions need a minimum. Chosen.
_SCALES = (8, 2, 32, 128)

#: A row of a RaggedTensor has 1 to this many values. Chosen.
_RAGGED_VALUES = 3

#: A row of a SparseTensor has up to this many entries, or none, or one in each of its cells, which shows the effect of
#: single columns. Wider rows are not tried. Both are chosen.
_SPARSE_VALUES, _MOST_CELLS = 4, 2**14

#: The inner shape of each input, by its name.
NamedInnerShapes = Mapping[str, tuple[int, ...]]

#: A model that rejects all other kinds usually accepts ones.
KINDS = ("ones", "small", "large", "negative")

#: Kinds for models that reject all of these: numbers from 0 to 1, and numbers that add up to 1.
NARROW_KINDS = ("unit", "shares")

#: The least and the greatest whole number of each kind.
_WHOLE = {"ones": (1, 1), "small": (1, 3), "large": (1, 99), "negative": (-3, -1), "unit": (0, 1), "shares": (0, 2)}

#: The mean of the floating-point numbers of each kind; their standard deviation is 1.
_CENTRES = {"ones": 0.0, "small": 0.0, "large": 3.0, "negative": -3.0}


@dataclass(frozen=True, slots=True, eq=False)
class Hinted:
    """The kind of values from the pools `number` of hints; inputs without a hint get small ones."""

    hints: ValueHints
    number: int


#: A kind of values: one of KINDS, or by hints.
Kind = str | Hinted


def hinted_kinds(signature: ModelSignature, hints: ValueHints) -> list[Kind]:
    """The kinds that hints give. An input with a default value and without a hint has its default value."""
    defaults = {
        name: ValueHint((Elements(tuple(value.ravel().tolist())),))
        for name, value in signature.defaults.items()
        if value.size
    }
    all_hints = {**defaults, **hints}
    return [Hinted(all_hints, number) for number in pool_numbers(all_hints)]


# --- shapes ---


def shapes_to_try(signature: ModelSignature, hints: ValueHints = NO_HINTS) -> Iterator[tuple[NamedShapes, Sizes]]:
    """Names of the free dimensions, as many different ones as possible first, and a size for each name."""
    for scale in _SCALES:
        for naming in _namings(signature, hints):
            names = names_in(naming)
            yield naming, {name: scale + 1 + 3 * number for number, name in enumerate(names)}
            if not names:
                return


def shapes_at(naming: NamedShapes, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The inner shapes, with sizes in place of names."""
    return {
        name: tuple([sizes[each] if isinstance(each, str) else each for each in shape])
        for name, shape in naming.items()
    }


def names_in(naming: NamedShapes) -> list[str]:
    return sorted({dimension for shape in naming.values() for dimension in shape if isinstance(dimension, str)})


def inner_shape(signature: ModelSignature, name: str, hints: ValueHints = NO_HINTS) -> tuple[int | None, ...]:
    """The dimensions of a row, with the sizes that hints know; for the shape of a SparseTensor, the sizes in it."""
    for parts in signature.sparse:
        if name == parts.shape:
            return inner_sizes(signature, parts)
        if name in parts:  # it has any number of entries a row
            return ()
    return sized(signature.inputs[name].shape or (), hints.get(name))[1:]


def _namings(signature: ModelSignature, hints: ValueHints) -> Iterator[NamedShapes]:
    """Three namings of the free dimensions: a name for each, a name for each axis, a name for all."""
    seen = []
    for form in ("{name}.{axis}", "d{axis}", "d"):
        naming = {
            name: tuple(
                form.format(name=name, axis=axis) if size is None else size
                for axis, size in enumerate(inner_shape(signature, name, hints), 1)
            )
            for name in signature.inputs
        }
        count = len(names_in(naming))
        if count not in seen:
            seen.append(count)
            yield naming


# --- values ---


def probe_row(
    signature: ModelSignature,
    naming: NamedShapes,
    sizes: Sizes,
    kind: Kind,
    random: np.random.Generator,
    *,
    also_fixed: bool = False,
) -> dict[str, Array]:
    """Inputs of one row, with the values of probe_values."""
    shapes = shapes_at(naming, sizes)
    columns = {parts: _sparse_columns(shapes[parts.shape], random) for parts in signature.sparse}
    shapes |= {parts.values: (max(len(places), 1),) for parts, places in columns.items()}
    draw = partial(
        probe_values,
        signature,
        shapes | dict.fromkeys(_shape_names(signature), ()),
        kind,
        random,
        also_fixed=also_fixed,
    )
    # 1. Ragged inputs: further values, and row splits of one row around them.
    row = draw()
    for name, all_splits in signature.ragged.items():
        more = random.integers(0, _RAGGED_VALUES)
        row[name] = np.concatenate([row[name], *[draw()[name] for _ in range(more)]])
        for splits in all_splits:
            end = len(row[name]) if splits == all_splits[-1] else 1
            row[splits] = np.array([0, end], signature.inputs[splits].dtype)
    # 2. Sparse inputs: the entries of one row.
    for parts, places in columns.items():
        row[parts.indices] = np.concatenate([np.zeros((len(places), 1), np.int64), places], axis=1)
        row[parts.values] = row[parts.values][0, : len(places)]
        row[parts.shape] = np.array([1, *shapes[parts.shape]], np.int64)
    return row


def untried_cells(signature: ModelSignature, naming: NamedShapes, sizes: Sizes) -> int:
    """The cells of a sparse row that has too many to try an entry in each; 0 if there is none."""
    shapes = shapes_at(naming, sizes)
    found = [prod(shapes[name]) for name in _shape_names(signature)]
    return max([cells for cells in found if cells > _MOST_CELLS], default=0)


def _shape_names(signature: ModelSignature) -> list[str]:
    return [parts.shape for parts in signature.sparse]


def _sparse_columns(sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    """[n, len(sizes)] the indices of a row's entries, in order: none, some, or all."""
    kind = random.choice(["none", "some", "some", "all"])
    if not sizes:  # a row has one place
        return np.empty((int(kind != "none"), 0), np.int64)
    if kind == "none" or 0 in sizes:
        return np.empty((0, len(sizes)), np.int64)
    if kind == "all":
        return np.indices(sizes, np.int64).reshape(len(sizes), -1).T
    count = random.integers(1, _SPARSE_VALUES, endpoint=True)
    return np.unique(random.integers(0, sizes, (count, len(sizes))), axis=0)


def probe_values(
    signature: ModelSignature,
    shapes: NamedInnerShapes,
    kind: Kind,
    random: np.random.Generator,
    *,
    also_fixed: bool = False,
) -> dict[str, Array]:
    """Inputs of one row.

    A mask (an input that is declared or named so) is 1 at the first place and at some others. Lengths that callers may
    leave out are the true ones. Other inputs without a free dimension, such as a temperature, are about 1 to 3; with
    `also_fixed` they have values of the kind.
    """
    masks = signature.masks.keys()
    drawn = {}
    for name, spec in signature.inputs.items():
        if name in masks and is_length(spec):
            continue
        hint = kind.hints.get(name) if isinstance(kind, Hinted) else None
        pool = hint.pool(kind.number) if hint is not None and isinstance(kind, Hinted) else None
        made_up = "small" if isinstance(kind, Hinted) else kind if also_fixed else _kind_of(spec, kind)
        if pool is not None:
            drawn[name] = pool.draw((1, *shapes[name]), spec.dtype, random)
        else:
            drawn[name] = _values(spec, shapes[name], made_up, random, is_mask=name in masks)
    filled = with_left_out(signature, drawn)
    return {name: filled[name] for name in signature.inputs}


def _kind_of(spec: TensorSpec, kind: str) -> str:
    """The kind for an input that may have no free dimension."""
    free = spec.shape is not None and None in spec.shape[1:]
    return kind if free or kind == "ones" else "small"


def _values(
    spec: TensorSpec, inner: tuple[int, ...], kind: str, random: np.random.Generator, *, is_mask: bool
) -> Array:
    shape = (1, *inner)
    if is_mask or spec.dtype == bool or "mask" in spec.name.lower():
        keeps = random.random(shape) < (1.0 if kind == "ones" else 0.7)
        keeps[(slice(None), *(slice(1) for _ in inner))] = True
        return np.asarray(keeps, spec.dtype)
    if kind in NARROW_KINDS and np.issubdtype(spec.dtype, np.inexact):
        drawn = random.uniform(0.0, 1.0, shape)
        return np.asarray(drawn / drawn.sum(-1, keepdims=True) if kind == "shares" else drawn, spec.dtype)
    if np.issubdtype(spec.dtype, np.inexact):
        return np.asarray(random.standard_normal(shape) + _CENTRES[kind], spec.dtype)
    signed = spec.dtype == STRING or np.issubdtype(spec.dtype, np.signedinteger)
    low, high = _WHOLE["large" if kind == "negative" and not signed else kind]
    numbers = random.integers(low, high, shape, endpoint=True)
    if spec.dtype == STRING:
        return np.asarray([b"%d" % number for number in numbers.flat], STRING).reshape(shape)
    return np.asarray(numbers, spec.dtype)
