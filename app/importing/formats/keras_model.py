"""A model of Keras as a source: names, types and shapes of its inputs and outputs, and how it is called.

- Inputs have the names of their layers, or the keys by which the model's code calls them; outputs those of the layers
  that give them, or their keys.
- The number of rows is free, and other sizes are where the layers allow it (keras_parts/free_sizes.py).
- `call` runs the freed model inside a trace, `run` the model as it was read, eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from app.core.inference import Array
from app.importing.formats.keras_parts.free_sizes import Freed, free_sizes
from app.importing.formats.keras_parts.libraries import Library
from app.importing.formats.keras_parts.signature import KerasSignature
from app.importing.source import Endpoint, Source, Tensors

TrackableResource = tf.saved_model.experimental.TrackableResource


def source_of(model: Any, library: Library, written_by: str) -> Source:
    """A model as a source. `written_by`: what the file is, for people. Raises CannotImport."""
    signature = KerasSignature(model, library)
    freed = free_sizes(model, library, signature)

    def call(tensors: Tensors) -> Tensors:
        return signature.outputs_by_name(freed.model(signature.arguments(tensors), training=False))

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return freed.run(arrays)

    endpoint = Endpoint(inputs=freed.specs, call=call, run=run, usual=dict(_usual(signature, freed)))
    return Source(
        format=f"{written_by}, read by {library.name}",
        endpoints=[endpoint],
        kept=list(resources_of(model)),
        notes=freed.notes,
    )


def _usual(signature: KerasSignature, freed: Freed) -> Iterator[tuple[str, Sequence[int | None]]]:
    """The source's own shapes of inputs with sizes that were freed."""
    for own, now in zip(signature.inputs, freed.inputs, strict=True):
        if own.shape is not None and now.shape is not None and own.shape[1:] != now.shape[1:]:
            yield own.name, (None, *own.shape[1:])


def resources_of(model: Any) -> Iterator[Any]:
    """The variables and tables of a model, without Keras' own objects around them."""
    seen: set[int] = set()
    for found in tf.train.TrackableView(model).descendants():
        resource = getattr(found, "value", None) if not isinstance(found, tf.Variable) else found
        if not isinstance(resource, tf.Variable):
            resource = found
        if isinstance(resource, tf.Variable | TrackableResource) and id(resource) not in seen:
            seen.add(id(resource))
            yield resource
