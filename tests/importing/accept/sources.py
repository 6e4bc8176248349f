"""Sources whose models show what they are given, and imports of them in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.inference import Array
from app.importing.accept import accepting
from app.importing.export import export, renamed
from app.importing.order import ImportOrder
from app.importing.proof import Proof, Proven
from app.importing.source import Endpoint, Source, Tensors
from app.importing.written.labels import labels_of, write_labels
from app.importing.written.recorded_calls import write_recorded_calls


def spec(*shape: int | None, dtype: Any = tf.float32) -> Any:
    return tf.TensorSpec(shape, dtype)


def identity(inputs: Mapping[str, Any], usual: Mapping[str, Sequence[int | None]] | None = None) -> Source:
    """A model whose outputs are its inputs: `NAME_out`."""

    def call(tensors: Tensors) -> Tensors:
        return {f"{name}_out": tf.identity(tensor) for name, tensor in tensors.items()}

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return {f"{name}_out": array for name, array in arrays.items()}

    return Source("an identity", [Endpoint(inputs, call, run, usual=usual or {})])


def mean_colours(*, height: int | None = 16, width: int | None = 24) -> Source:
    """A model of images: `means`, of each colour over the image, in 0 to 1, and their sum in `light`."""
    factor = tf.Variable(1 / 255.0)

    def call(tensors: Tensors) -> Tensors:
        means = tf.reduce_mean(tensors["photo"], [1, 2]) * factor
        return {"means": means, "light": tf.reduce_sum(means, 1)}

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        means = arrays["photo"].mean((1, 2)) / 255.0
        return {"means": means, "light": means.sum(1)}

    return Source("mean colours", [Endpoint({"photo": spec(None, height, width, 3)}, call, run)], kept=[factor])


@cache
def _proof() -> Proof:
    return Proof()


def imported(model: Source, version: Path, **order: Any) -> tuple[Proven, list[str]]:
    """What the child of an import does behind the reader. Returns the proof and all notes."""
    given = ImportOrder(**{"source": "source", "destination": str(version), **order})
    accepted = accepting(renamed(model, given.rename), given)
    labels = labels_of(accepted, given)
    version.parent.mkdir(parents=True, exist_ok=True)
    export(accepted, version)
    proven = _proof().of(accepted, version, given)
    notes = write_labels(version, labels, proven.signatures, asked=bool(given.labels))
    write_recorded_calls(version, proven.calls)
    return proven, [*proven.result.notes, *notes]
