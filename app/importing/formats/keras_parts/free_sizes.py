"""Which sizes of a model's inputs are free: the rows, and lengths, heights and widths where the layers allow it.

The layers are called again on inputs with free sizes. Nothing is believed of that: each way is called and compared.

1. Rows: three rows at once must be equal to the source's answers for each alone. A model that keeps a state between
   calls (stateful recurrent layers) keeps its number of rows.
2. Other sizes: the answers at the source's size must be equal to its own, and twice the size and one and a half times
   the size must run. A layer that is made for one size (a dense layer behind a flattened map, a table of positions)
   ends there. Heights and widths become free only where an output keeps them (a mask, a map): a classifier would answer
   an image of another size than it was made for, and worse than with an error.
3. What cannot be shown in a few seconds stays as the source has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.formats.keras_parts.libraries import Library, short_error
from app.importing.formats.keras_parts.signature import KerasInput, KerasSignature

#: Seconds after which no further sizes are tried. Chosen: an import is to end within 30 s.
_SECONDS = 8.0

#: Numbers in an input of twice the size, above which its sizes stay. Chosen: 64 MiB as float32.
_MOST_NUMBERS = 1 << 24

#: Largest difference of answers, relative to the largest of them (at least 1), by the bits of their type.
_TOLERANCE = {2: 1e-2, 4: 1e-5, 8: 1e-9}

#: Sizes that are tried where those of the source are free, until it runs: some models cut thousands of places off.
_USUAL = (16, 224, 1024, 4096, 16384)

_ROWS = 3
_SEED = 33


@dataclass(frozen=True, slots=True)
class Freed:
    """The model to export.

    run: the source itself, whatever the sizes. notes: what is free or stays, for people.
    usual: by input, a shape that fits the model, where its sizes are free.
    """

    model: Any
    inputs: Sequence[KerasInput]
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    notes: Sequence[str] = ()
    usual: Mapping[str, Sequence[int | None]] = field(default_factory=dict)

    @property
    def specs(self) -> dict[str, Any]:
        return {each.name: each.spec for each in self.inputs}


def free_sizes(model: Any, library: Library, signature: KerasSignature) -> Freed:
    """The model with as many free sizes as its layers allow."""
    trials = _Trials(model, library, signature)
    if stateful_layers(model):
        note = "it keeps a state between calls: its sizes stay"
        return Freed(model, signature.inputs, trials.source, [note])
    rows = trials.rows()
    if rows is None:
        return Freed(model, signature.inputs, trials.source, ["its number of rows is fixed by its layers"])
    return trials.sizes(rows) or replace(rows, usual=trials.usual(rows))


def stateful_layers(model: Any) -> list[Any]:
    """The recurrent layers that keep a state between calls, those of inner models included."""
    flat = getattr(model, "_flatten_layers", None)
    layers = flat() if flat else model.layers
    return [layer for layer in layers if getattr(layer, "stateful", False) is True and hasattr(layer, "cell")]


class _Trials:
    """Trials of one model; `source` calls it as it was read."""

    def __init__(self, model: Any, library: Library, signature: KerasSignature) -> None:
        self._model = model
        self._library = library
        self._signature = signature
        self._begun = time.monotonic()
        self._fixed_rows = next((each.shape[0] for each in signature.inputs if each.shape and each.shape[0]), None)

    # --- the source ---

    def source(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The answers of the model as it was read; as many rows at once as it takes."""
        if self._fixed_rows is None:
            return self._answers(self._model, arrays)
        return self._in_parts(arrays, self._fixed_rows)

    def _answers(self, model: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self._signature.arrays_by_name(model(self._signature.arguments_of(arrays), training=False))
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise ValueError(short_error(error)) from error

    def _in_parts(self, arrays: Mapping[str, Array], size: int) -> dict[str, Array]:
        """Calls of `size` rows; the last is filled up with its last row."""
        rows = len(next(iter(arrays.values())))
        answers = []
        for first in range(0, rows, size):
            taken = np.minimum(np.arange(first, first + size), rows - 1)
            part = self._answers(self._model, {name: array[taken] for name, array in arrays.items()})
            answers.append({name: array[: rows - first] for name, array in part.items()})
        return {name: np.concatenate([each[name] for each in answers]) for name in answers[0]}

    # --- rows ---

    def rows(self) -> Freed | None:
        """The model with a free number of rows; None if it does not allow that."""
        inputs = [_with_sizes(each, {0: None}) for each in self._signature.inputs]
        if self._fixed_rows is None:
            return Freed(self._model, inputs, self.source)
        if any(each.kind != "dense" for each in inputs):
            return None
        try:
            model = self._called_again(inputs)
            arrays = _values(inputs, _ROWS, {})
            if not _alike(self._traced(model, inputs, arrays), self._in_parts(arrays, self._fixed_rows)):
                return None
        except Exception:  # whatever a layer raises: it does not allow it
            return None
        note = f"its number of rows is free (the source has {self._fixed_rows})"
        return Freed(model, inputs, self.source, [note])

    # --- other sizes ---

    def sizes(self, rows: Freed) -> Freed | None:
        """The model with other free sizes, too; None if there are none to free, or its layers do not allow it."""
        for axes in _choices(rows.inputs):
            if time.monotonic() - self._begun > _SECONDS:
                return None
            inputs = [
                _with_sizes(each, dict.fromkeys(free, None)) for each, free in zip(rows.inputs, axes, strict=True)
            ]
            try:
                model = self._called_again(inputs)
                if self._allows(model, rows, inputs, axes):
                    notes = [*rows.notes, _note(rows, axes)]
                    run = self._source_of_any_size(model, rows)
                    return Freed(model, inputs, run, notes, _shapes_of(rows.inputs, axes))
            except Exception:  # noqa: S112 - whatever a layer raises: it does not allow it
                continue
        return None

    def _allows(self, model: Any, rows: Freed, inputs: Sequence[KerasInput], axes: Sequence[Sequence[int]]) -> bool:
        is_image = any(len(each.shape or ()) > 3 and free for each, free in zip(inputs, axes, strict=True))
        if is_image and not any(None in tuple(tensor.shape)[1:] for tensor in model.outputs):
            return False
        own = _values(rows.inputs, _ROWS, {})
        function = self._function(model, inputs)
        if not _alike(self._call(function, own), rows.run(own)):
            return False
        for factor in (2.0, 1.5):
            other = _values(
                rows.inputs, _ROWS, {each.name: free for each, free in zip(rows.inputs, axes, strict=True)}, factor
            )
            if sum(array.size for array in other.values()) > _MOST_NUMBERS:
                return False
            self._call(function, other)  # raises where the layers do not allow the size
        return True

    def usual(self, rows: Freed) -> Mapping[str, Sequence[int | None]]:
        """Shapes with which the source runs, where it leaves sizes free and rejects the smallest."""
        free = [
            [axis for axis in _inner(each) if each.shape and each.shape[axis : axis + 1] == (None,)]
            for each in rows.inputs
        ]
        for size in _USUAL if any(free) else ():
            inputs = [
                _with_sizes(each, dict.fromkeys(axes, size)) for each, axes in zip(rows.inputs, free, strict=True)
            ]
            if sum(prod([size or 1 for size in (each.shape or ())[1:]], start=1) for each in inputs) > _MOST_NUMBERS:
                break
            with suppress(Exception):  # whatever a layer raises for a size
                rows.run(_values(inputs, 1, {}))
                return {} if size == _USUAL[0] else _shapes_of(inputs, free)
        return {}

    def _source_of_any_size(self, model: Any, rows: Freed) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
        """The source for its own sizes, its layers for others."""
        shapes = {each.name: each.shape for each in rows.inputs}

        def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
            own = all(_fits(arrays[name].shape, shape) for name, shape in shapes.items() if name in arrays)
            return rows.run(arrays) if own else self._answers(model, arrays)

        return run

    # --- calls ---

    def _called_again(self, inputs: Sequence[KerasInput]) -> Any:
        """A model of the same layers (no copies), called on inputs of these sizes."""
        module = self._library.module
        made = {
            each.name: module.Input(batch_shape=each.shape, dtype=each.dtype.name, name=f"input_{number}")
            for number, each in enumerate(inputs)
        }
        arguments: dict[str, Any] = {"clone_function": lambda layer: layer}
        if not self._library.is_tf_keras:
            arguments["recursive"] = True
        structure = self._signature.arguments(made)
        if self._library.is_tf_keras:
            structure = tf.nest.flatten(structure)
        return module.models.clone_model(self._model, input_tensors=structure, **arguments)

    def _traced(self, model: Any, inputs: Sequence[KerasInput], arrays: Mapping[str, Array]) -> dict[str, Array]:
        return self._call(self._function(model, inputs), arrays)

    def _function(self, model: Any, inputs: Sequence[KerasInput]) -> Any:
        def call(*tensors: Any) -> Any:
            named = dict(zip([each.name for each in inputs], tensors, strict=True))
            return model(self._signature.arguments(named), training=False)

        return tf.function(call, autograph=False).get_concrete_function(*[each.spec for each in inputs])

    def _call(self, function: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return self._signature.arrays_by_name(function(*[each.of(arrays) for each in self._signature.inputs]))


# --- sizes ---


def _choices(inputs: Sequence[KerasInput]) -> Iterator[list[list[int]]]:
    """Axes to free for each input, the most first: all inner ones, those behind the channels, the first, the last."""
    seen: list[list[list[int]]] = []
    ways: tuple[Callable[[list[int]], list[int]], ...] = (
        lambda axes: axes[:-1],
        lambda axes: axes[1:],
        lambda axes: axes[:1],
    )
    for way in ways:
        axes = [_fixed(each, way(_inner(each))) for each in inputs]
        if any(axes) and axes not in seen:
            seen.append(axes)
            yield axes


def _inner(each: KerasInput) -> list[int]:
    """The axes of an input that may be lengths, heights or widths, and one for channels or features."""
    rank = len(each.shape) if each.shape is not None and each.kind == "dense" else 0
    if rank == 2 and each.dtype.is_integer:
        return [1, 2]  # numbers of tokens: the second axis is a length, and there are no features
    return list(range(1, rank)) if rank > 2 else []


def _fixed(each: KerasInput, axes: Sequence[int]) -> list[int]:
    """Those that are fixed; a size of 1 is for broadcasting."""
    shape = each.shape or ()
    return [axis for axis in axes if axis < len(shape) and (shape[axis] or 0) > 1]


def _with_sizes(each: KerasInput, sizes: Mapping[int, int | None]) -> KerasInput:
    if not each.shape:
        return each
    return replace(each, shape=tuple(sizes.get(axis, size) for axis, size in enumerate(each.shape)))


def _fits(shape: Sequence[int], declared: Sequence[int | None] | None) -> bool:
    return declared is None or (
        len(shape) == len(declared)
        and all(own is None or own == size for size, own in zip(shape, declared, strict=True))
    )


def _shapes_of(inputs: Sequence[KerasInput], axes: Sequence[Sequence[int]]) -> dict[str, Sequence[int | None]]:
    """The shapes of those inputs that have such axes, for any number of rows."""
    return {each.name: (None, *(each.shape or ())[1:]) for each, free in zip(inputs, axes, strict=True) if free}


def _note(rows: Freed, axes: Sequence[Sequence[int]]) -> str:
    freed = [
        f"{each.name} (the source has {' x '.join(str((each.shape or ())[axis]) for axis in free)})"
        for each, free in zip(rows.inputs, axes, strict=True)
        if free
    ]
    return f"free sizes of {', '.join(freed)}"


# --- values ---


def _values(
    inputs: Sequence[KerasInput], rows: int, changed: Mapping[str, Sequence[int]], factor: float = 1.0
) -> dict[str, Array]:
    """Made-up values; the axes of `changed` have `factor` times their size. A size that is free is 8."""
    random = np.random.default_rng(_SEED)
    return {
        each.name: _value(
            each, [_size(each, axis, rows, changed, factor) for axis in range(len(each.shape or ()))], random
        )
        for each in inputs
    }


def _size(each: KerasInput, axis: int, rows: int, changed: Mapping[str, Sequence[int]], factor: float) -> int:
    if axis == 0:
        return rows
    size = (each.shape or ())[axis] or 8
    return int(size * factor) if axis in changed.get(each.name, ()) else size


def _value(each: KerasInput, shape: Sequence[int], random: np.random.Generator) -> Array:
    if each.dtype == tf.string:
        return np.full(shape, b"1", object)
    if each.dtype.is_floating:
        return np.asarray(random.random(shape), each.dtype.as_numpy_dtype)
    return np.asarray(random.integers(0, 2, shape), each.dtype.as_numpy_dtype)


def _alike(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(_is_alike(one[name], other[name]) for name in one)


def _is_alike(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f" and one.dtype.name != "bfloat16":
        return bool(np.array_equal(one, other))
    wide, wide_other = one.astype(np.float64), other.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))))
    return bool(np.allclose(wide, wide_other, rtol=0, atol=scale * _TOLERANCE[one.dtype.itemsize], equal_nan=True))
