"""All awkward models, and their direct calls: what each answers to a request that is alone in the world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array
from tests.awkward import company, control_flow, lengths, odd_shapes, odd_values, state_and_chance, words
from tests.awkward.awkward_model import Asked, AwkwardModel, Outputs

MODELS: Sequence[AwkwardModel] = (
    *state_and_chance.MODELS,
    *company.MODELS,
    *odd_values.MODELS,
    *words.MODELS,
    *lengths.MODELS,
    *control_flow.MODELS,
    *odd_shapes.MODELS,
)


def write(folder: Path, models: Sequence[AwkwardModel] = MODELS) -> None:
    """All of them as '<folder>/<name>/1'."""
    for each in models:
        each.make(folder / each.name / "1")


class DirectCalls:
    """The models of a folder as TensorFlow alone executes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, Any] = {}
        self._answers: dict[tuple[str, int], Outputs] = {}

    def __call__(self, model: AwkwardModel, asked: Asked) -> Outputs:
        """The answer, which is remembered. Raises: tf.errors.OpError where the model rejects the request."""
        key = model.name, id(asked)
        if key not in self._answers:
            self._answers[key] = self._called(model, asked)
        return self._answers[key]

    def _called(self, model: AwkwardModel, asked: Asked) -> Outputs:
        loaded = self._loaded.get(model.name)
        if loaded is None:
            loaded = self._loaded[model.name] = tf.saved_model.load(str(self._folder / model.name / "1"))
        function = loaded.signatures[asked.signature]
        tensors = {name: tf.constant(_fed(array)) for name, array in asked.inputs.items()}
        parts = [part for name, value in function(**tensors).items() for part in _parts(name, value)]
        return {name: _array(value.numpy()) for name, value in parts}


def _fed(array: Array) -> Any:
    if array.dtype != STRING:
        return array
    return tf.constant(array.ravel().tolist(), tf.string, array.shape)


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """A RaggedTensor as its values and row splits, named as its inputs would be."""
    if not isinstance(value, tf.RaggedTensor):
        return [(name, value)]
    splits = [(f"{name}_{axis}", each) for axis, each in enumerate(value.nested_row_splits, 1)]
    return [(name, value.flat_values), *splits]


def _array(value: Any) -> Array:
    return np.asarray(value, STRING) if isinstance(value, bytes) else np.asarray(value)
