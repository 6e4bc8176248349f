"""An awkward model: a SavedModel that is hard to batch, pad or compile, and requests that show whether it was."""

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
Signatures = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request: its inputs, and the signature that takes them."""

    inputs: Inputs
    signature: str = "serving_default"


@dataclass(frozen=True, kw_only=True)
class AwkwardModel:
    """A model, and what to ask it.

    `make` writes folder '.../name/1'. Its docstring says what is awkward.
    `law` is given where the direct call is no oracle (state, chance): it takes all answers to `asked`, which were sent
    together, and raises AssertionError.
    `rejects` are requests that the model itself rejects, or that fit no signature.
    """

    name: str
    make: Callable[[Path], None]
    asked: Sequence[Asked]
    law: Callable[[Sequence[Asked], Sequence[Outputs]], None] | None = None
    rejects: Sequence[Asked] = ()


def model(
    make: Callable[[Path], None],
    asked: Sequence[Inputs | Asked],
    law: Callable[[Sequence[Asked], Sequence[Outputs]], None] | None = None,
    rejects: Sequence[Inputs] = (),
) -> AwkwardModel:
    """The model that `make` writes, named as the function is."""
    wanted = [each if isinstance(each, Asked) else Asked(each) for each in asked]
    return AwkwardModel(name=make.__name__, make=make, asked=wanted, law=law, rejects=[Asked(e) for e in rejects])


def save(path: Path, call: Callable[..., Any], *specs: Any, module: Any = None) -> None:
    """One signature that takes `specs` and gives what `call` returns, a dictionary."""
    module = module or tf.Module()
    module.call = tf.function(call, input_signature=list(specs))
    tf.saved_model.save(module, str(path), signatures=module.call)


def of(name: str, *shape: int | None, dtype: Any = tf.float32) -> Any:
    """The specification of an input."""
    return tf.TensorSpec(shape, dtype, name=name)


def floats(*values: Any) -> Array:
    return np.array(values, np.float32)


def ints(*values: Any) -> Array:
    return np.array(values, np.int32)


def texts(*values: bytes) -> Array:
    array = np.empty(len(values), STRING)
    array[:] = values
    return array


def drawn(*shape: int, seed: int = 1) -> Array:
    """Normally distributed numbers, the same at each call."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def variable(*shape: int, seed: int = 7) -> Any:
    return tf.Variable(tf.random.Generator.from_seed(seed).normal(shape))


#: Requests x [rows] of other rows, with what floating point holds beside numbers.
COLUMN: Sequence[Inputs] = (
    {"x": floats(-2.0, -1.0, 3.0)},
    {"x": floats(5.0)},
    {"x": floats(0.5, -0.0)},
    {"x": floats(np.nan, 1.0)},
    {"x": floats(np.inf, -np.inf, 1e30, -1e-40)},
    {"x": floats()},
)
