"""A model of Keras as a source: names, types and shapes of its inputs and outputs, and how it is called.

- Inputs have the names of their layers, or the keys by which the model's code calls them; outputs those of the layers
  that give them, or their keys.
- The number of rows is free, and other sizes are where the layers allow it (keras_parts/free_sizes.py).
- `call` runs the freed model inside a trace, `run` the model as it was read, eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from app.importing.formats.keras_parts.free_sizes import free_sizes, stateful_layers
from app.importing.formats.keras_parts.libraries import Library
from app.importing.formats.keras_parts.signature import KerasSignature
from app.importing.source import Endpoint, Source, Tensors

_Resource = tf.saved_model.experimental.TrackableResource


def source_of(model: Any, library: Library, written_by: str) -> Source:
    """A model as a source. `written_by`: what the file is, for people. Raises CannotImport."""
    signature = KerasSignature(model, library)
    freed = free_sizes(model, library, signature)

    def call(tensors: Tensors) -> Tensors:
        return signature.outputs_by_name(freed.model(signature.arguments(tensors), training=False))

    endpoint = Endpoint(inputs=freed.specs, call=call, run=freed.run, usual=freed.usual)
    return Source(
        format=f"{written_by}, read by {library.name}",
        endpoints=[endpoint],
        kept=list(resources_of(model)),
        notes=freed.notes,
    )


def resources_of(model: Any) -> Iterator[Any]:
    """The variables and tables of a model, without Keras' own objects around them."""
    seen: set[int] = set()
    for found in (*tf.train.TrackableView(model).descendants(), *model.variables, *_states(model)):
        resource = found if isinstance(found, tf.Variable | _Resource) else getattr(found, "value", None)
        if isinstance(resource, tf.Variable | _Resource) and id(resource) not in seen:
            seen.add(id(resource))
            yield resource


def _states(model: Any) -> Iterator[Any]:
    """The states that recurrent layers of Keras 2 keep between calls, which are not tracked."""
    for layer in stateful_layers(model):
        yield from tf.nest.flatten(getattr(layer, "states", None) or [])
