"""Sample inputs that fit a signature, for calls of a model before its first request."""

from __future__ import annotations

import numpy as np

from app.core.inference import STRING, Array, Dimension, ModelSignature, SparseParts, TensorSpec
from app.core.values.value_hints import ValueHints, sized

#: The seed of all random inputs: they are the same at each load. Chosen.
SEED = 2166136261

#: Random whole numbers are below this: a valid token or class of nearly any model. Chosen.
_INTEGERS_BELOW = 4


def zero_inputs(signature: ModelSignature, rows: int, free: int = 1) -> dict[str, Array]:
    """Inputs that fit the signature: zeros, False and empty strings.

    A free first dimension gets `rows`, every other free dimension `free`; a tensor of unknown rank is a list of `rows`
    values. A ragged or sparse row has one value.
    """
    inputs = {name: _zeros(spec, _shape(spec.shape, rows, free)) for name, spec in signature.inputs.items()}
    return inputs | _row_splits(signature, rows) | _sparse_parts(signature, rows, free)


def random_inputs(signature: ModelSignature, rows: int) -> dict[str, Array]:
    """Inputs of the same shapes with random values, the same at each call, to show whether two computations differ.

    Numbers from 0 to 1, whole numbers below 4, and strings of such numbers.
    """
    random = np.random.default_rng(SEED)
    inputs = {name: _random(random, spec, _shape(spec.shape, rows)) for name, spec in signature.inputs.items()}
    return inputs | _row_splits(signature, rows) | _sparse_parts(signature, rows)


def hinted_inputs(signature: ModelSignature, hints: ValueHints, rows: int, number: int) -> dict[str, Array]:
    """Inputs with values of the hints' pools of this number, the same at each call; others as `random_inputs`.

    Free inner dimensions have the size that a hint knows, or 1.
    """
    random = np.random.default_rng(SEED)
    inputs = random_inputs(signature, rows)
    for name, hint in hints.items():
        spec, pool = signature.inputs[name], hint.pool(number)
        shape = _shape(sized(spec.shape, hint) if spec.shape is not None else None, rows)
        inputs[name] = _random(random, spec, shape) if pool is None else pool.draw(shape, spec.dtype, random)
    return inputs | _row_splits(signature, rows) | _sparse_parts(signature, rows)


def _row_splits(signature: ModelSignature, rows: int) -> dict[str, Array]:
    names = [name for splits in signature.ragged.values() for name in splits]
    return {name: np.arange(rows + 1, dtype=signature.inputs[name].dtype) for name in names}


def _sparse_parts(signature: ModelSignature, rows: int, free: int = 1) -> dict[str, Array]:
    """The indices and shapes of SparseTensors with one value in each row, at its first place."""
    made: dict[str, Array] = {}
    for names in signature.sparse:
        sizes = [free if size is None else size for size in inner_sizes(signature, names)]
        made[names.indices] = np.zeros((rows, 1 + len(sizes)), np.int64)
        made[names.indices][:, 0] = np.arange(rows)
        made[names.shape] = np.array([rows, *sizes], np.int64)
    return made


def inner_sizes(signature: ModelSignature, names: SparseParts) -> tuple[Dimension, ...]:
    """The sizes of a SparseTensor beside its rows, as far as they are declared; of an unknown rank one."""
    (rank,) = signature.inputs[names.shape].shape or (None,)
    return signature.sparse_sizes.get(names.indices) or (None,) * ((rank or 2) - 1)


def _zeros(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    return np.full(shape, b"", STRING) if spec.dtype == STRING else np.zeros(shape, spec.dtype)


def _random(random: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    if spec.dtype == STRING:
        digits = np.array([b"%d" % digit for digit in range(_INTEGERS_BELOW)], STRING)
        return np.asarray(digits[random.integers(0, _INTEGERS_BELOW, shape)], STRING)
    if spec.dtype == bool or np.issubdtype(spec.dtype, np.integer):
        return np.asarray(random.integers(0, 2 if spec.dtype == bool else _INTEGERS_BELOW, shape), spec.dtype)
    return np.asarray(random.random(shape), spec.dtype)


def _shape(shape: tuple[Dimension, ...] | None, rows: int, free: int = 1) -> tuple[int, ...]:
    if shape is None:
        return (rows,)
    free_sizes = [rows, *(free for _ in shape)]
    return tuple(own if size is None else size for size, own in zip(shape, free_sizes, strict=False))
