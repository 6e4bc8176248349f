"""`--accept text`: strings in place of the numbers that a model's own vectorisation makes of them.

A model that begins with its vectorisation (a layer of Keras, a tokenizer in the graph) takes text as it is. Of others
the source may hold one beside the model: its reader gives it (Source.vectorise).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from app.core.inference import Array
from app.importing.accept.front import Front
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Source, Tensors

#: The input of texts, if the model has no input of this name.
_NAME = "text"


def takes_text(endpoint: Endpoint) -> list[str]:
    """The inputs that are strings."""
    return [name for name, spec in endpoint.inputs.items() if spec.dtype == tf.string]


def text_front(source: Source, endpoint: Endpoint) -> Front:
    """Texts in place of the inputs that the source's vectorisation gives. Raises CannotImport: it has none."""
    vectorise = source.vectorise
    if vectorise is None:
        raise CannotImport(
            f"--accept text: the source ({source.format}) takes {_listed(endpoint)}, and holds nothing that makes "
            "these of text; put the vectorisation before the model where its code is, and export both "
            "(docs/export-from-memory.md)"
        )

    def call(texts: Any) -> Tensors:
        return _fitted(vectorise(texts), endpoint)

    def run(texts: Array) -> Mapping[str, Array]:
        return {name: tensor.numpy() for name, tensor in call(tf.constant(texts)).items()}

    spec = tf.TensorSpec([None], tf.string)
    given = tf.function(call, autograph=False).get_concrete_function(spec).structured_outputs
    note = f"text becomes {', '.join(sorted(given))} by the vectorisation of the source"
    return Front(_NAME, spec, frozenset(given), call, run, note)


def _fitted(made: Any, endpoint: Endpoint) -> dict[str, Any]:
    """The tensors of a vectorisation by the names of inputs, in their types. Raises CannotImport: they do not fit."""
    if not isinstance(made, Mapping):
        if len(endpoint.inputs) != 1:
            raise CannotImport(f"--accept text: the vectorisation gives one tensor; the inputs are {_listed(endpoint)}")
        made = {next(iter(endpoint.inputs)): made}
    fitted = {}
    for name, value in made.items():
        tensor = value.to_tensor() if isinstance(value, tf.RaggedTensor) else value
        spec = endpoint.inputs.get(name)
        if spec is None or not spec.shape.is_compatible_with(tensor.shape):
            shape = f"{name} {tensor.dtype.name}{tensor.shape}"
            raise CannotImport(f"--accept text: the vectorisation gives {shape}; the inputs are {_listed(endpoint)}")
        fitted[name] = tf.cast(tensor, spec.dtype)
    return fitted


def _listed(endpoint: Endpoint) -> str:
    return ", ".join(f"{name} {spec.dtype.name}{spec.shape}" for name, spec in endpoint.inputs.items())
