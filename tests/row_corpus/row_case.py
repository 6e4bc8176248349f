"""A case of the corpus: a small SavedModel, valid requests of any number of rows, and whether its rows see each other.

A model is a door and an operation. The door takes what clients send and gives x [rows, 4], 32-bit floats; most doors
reject made-up values. The operation gives the outputs. A pair is two operations behind one door: in the first one rows
mix, its twin does nearly the same and treats each row for itself.

The oracle of every case is the direct call of the saved model with one request alone (`DirectCalls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array

Inputs = Mapping[str, Array]
Outputs = Mapping[str, Array]
Draw = Callable[[np.random.Generator, int], Inputs]

#: Columns of x, behind every door.
WIDTH = 4

#: Rounding: relative to the greatest number of the answer.
TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class RowCase:
    """One model.

    make: writes it as folder `path`.
    draw: a valid request of so many rows, at least 1.
    mixes: whether an answer may depend on rows of other requests in its call.
    why: what makes it so.
    """

    name: str
    make: Callable[[Path], None]
    draw: Draw
    mixes: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Door:
    """How requests come in.

    specs: the inputs of the signature.
    read: the inputs' tensors to x [rows, 4].
    rejects: whether it rejects values that are not drawn by `draw`.
    """

    specs: Sequence[Any]
    read: Callable[..., Any]
    draw: Draw
    rejects: bool = True


def save(path: Path, call: Callable[..., Any], specs: Sequence[Any], **tracked: Any) -> None:
    """One signature; `tracked` are variables and tables that `call` uses."""
    module = tf.Module()
    for name, each in tracked.items():
        setattr(module, name, each)
    module.call = tf.function(call, input_signature=list(specs), autograph=False)
    tf.saved_model.save(module, str(path), signatures=module.call)


def spec(name: str, *shape: int | None, dtype: Any = tf.float32) -> Any:
    return tf.TensorSpec(shape, dtype, name=name)


def behind(door: Door, operation: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Writes a model that applies `operation` to what the door reads; a tensor becomes the output y."""

    def call(*tensors: Any) -> Any:
        found = operation(door.read(*tensors))
        return found if isinstance(found, dict) else {"y": found}

    return lambda path: save(path, call, door.specs)


def pair(  # noqa: PLR0917 - a table of cases reads best by position
    name: str,
    door: Door,
    mixing: Callable[[Any], Any],
    twin: Callable[[Any], Any],
    why: str,
    why_not: str = "the same along each row",
) -> tuple[RowCase, RowCase]:
    """Both as cases; the twin is named '<name>_of_a_row'."""
    return (
        RowCase(name=name, make=behind(door, mixing), draw=door.draw, mixes=True, why=why),
        RowCase(name=f"{name}_of_a_row", make=behind(door, twin), draw=door.draw, mixes=False, why=why_not),
    )


def halves(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers whose sums and products are exact, and which are often equal."""
    return (rng.integers(-8, 9, shape) / 2).astype(np.float32)


def texts(values: Sequence[bytes], *shape: int) -> Array:
    array = np.empty(len(values), STRING)
    array[:] = values
    return array.reshape(shape or (len(values),))


def joined(requests: Sequence[Inputs]) -> Inputs:
    """Their rows, one behind the other."""
    return {name: np.concatenate([each[name] for each in requests]) for name in requests[0]}


def fed(inputs: Inputs) -> dict[str, Any]:
    """As a signature takes them."""
    return {
        name: tf.constant(value.ravel().tolist(), tf.string, value.shape)
        if value.dtype == STRING
        else tf.constant(value)
        for name, value in inputs.items()
    }


def called(function: Any, inputs: Inputs) -> Outputs:
    """Raises: tf.errors.OpError where the model rejects the request."""
    return {name: np.asarray(value.numpy()) for name, value in function(**fed(inputs)).items()}


class DirectCalls:
    """The saved models of a folder, called by TensorFlow alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, Any] = {}

    def __call__(self, name: str, inputs: Inputs) -> Outputs:
        return called(self.function(name), inputs)

    def function(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = tf.saved_model.load(str(self._folder / name / "1"))
        return self._loaded[name].signatures["serving_default"]


def same(got: Outputs, expected: Outputs) -> bool:
    return got.keys() == expected.keys() and all(alike(got[name], expected[name]) for name in expected)


def alike(got: Array, expected: Array) -> bool:
    """Equal shapes and values; floating point within rounding."""
    if got.shape != expected.shape:
        return False
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(got, expected))
    finite = expected[np.isfinite(expected)]
    greatest = float(np.abs(finite).max()) if finite.size else 0.0
    return bool(np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * max(greatest, 1e-3), equal_nan=True))


def differs(function: Any, requests: Sequence[Inputs]) -> bool:
    """Whether the answer to all of them together is another one than their answers one behind the other.

    A refusal of either is one, too; requests that are refused alone are no requests.
    """
    try:
        alone = [called(function, each) for each in requests]
    except (tf.errors.OpError, ValueError):
        return False
    try:
        together = called(function, joined(requests))
    except (tf.errors.OpError, ValueError):
        return True
    return any(_apart(together[name], [each[name] for each in alone]) for name in together)


def _apart(together: Array, alone: Sequence[Array]) -> bool:
    if not all(each.ndim for each in (together, *alone)) or len({each.shape[1:] for each in alone}) > 1:
        return True
    return not alike(together, np.concatenate(list(alone)))
