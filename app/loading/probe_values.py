"""Input values that show whether padding changes answers, of several kinds, since no kind suits all models.

A sum or an average shows any padding; a maximum shows padding with 0 only beside negative values; a model may reject
tokens beyond its vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.masks import is_length, with_masks

#: The inner shape of each input, by its name.
NamedInnerShapes = Mapping[str, tuple[int, ...]]

#: A model that rejects all other kinds usually accepts ones.
KINDS = ("ones", "small", "large", "negative")

#: The least and the greatest whole number of each kind.
_WHOLE = {"ones": (1, 1), "small": (1, 3), "large": (1, 99), "negative": (-3, -1)}

#: The mean of the floating-point numbers of each kind; their standard deviation is 1.
_CENTRES = {"ones": 0.0, "small": 0.0, "large": 3.0, "negative": -3.0}


def probe_values(
    signature: ModelSignature,
    shapes: NamedInnerShapes,
    kind: str,
    random: np.random.Generator,
    *,
    also_fixed: bool = False,
) -> dict[str, Array]:
    """Inputs of one row.

    A mask (an input that is declared or named so) is 1 at the first place and at some others. Lengths that callers may
    leave out are the true ones. Other inputs without a free dimension, such as a temperature, are about 1 to 3, unless
    `also_fixed` says that the kind is for them, too.
    """
    masks = signature.masks.keys()
    drawn = {
        name: _values(spec, shapes[name], kind if also_fixed else _kind_of(spec, kind), random, is_mask=name in masks)
        for name, spec in signature.inputs.items()
        if not (name in masks and is_length(spec))
    }
    filled = with_masks(signature, drawn)
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
    if np.issubdtype(spec.dtype, np.inexact):
        return np.asarray(random.standard_normal(shape) + _CENTRES[kind], spec.dtype)
    signed = spec.dtype == STRING or np.issubdtype(spec.dtype, np.signedinteger)
    low, high = _WHOLE["large" if kind == "negative" and not signed else kind]
    numbers = random.integers(low, high, shape, endpoint=True)
    if spec.dtype == STRING:
        return np.asarray([b"%d" % number for number in numbers.flat], STRING).reshape(shape)
    return np.asarray(numbers, spec.dtype)
