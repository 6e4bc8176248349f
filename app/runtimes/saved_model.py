"""A SavedModel in memory."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.errors import InferenceFailed, InvalidRequest, SignatureNotFound
from app.inference import Array, ModelSignature
from app.runtimes.failures import translate
from app.runtimes.signature_defs import TAGS, read_signatures
from app.runtimes.signature_function import SignatureFunction


class SavedModel:
    """The LoadedModel of folder `path`: variables and tables in memory, one function per signature.

    Raises:
        Exception: whatever TensorFlow has to say of a folder that it cannot load.
    """

    def __init__(self, path: Path) -> None:
        definitions = read_signatures(path)
        # The functions borrow their variables and tables from the loaded object: it must live as long.
        self._loaded: Any = tf.saved_model.load(str(path), tags=list(TAGS))
        functions = self._loaded.signatures
        self._signatures = {name: definitions[name] for name in definitions if name in functions}
        self._functions = {
            name: SignatureFunction(signature, functions[name]) for name, signature in self._signatures.items()
        }

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        return self._signatures

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        function = self._checked(signature, inputs, outputs)
        try:
            return function(inputs, outputs)
        except Exception as error:
            raise translate(error) from error

    def close(self) -> None:
        self._functions = {}
        self._loaded = None
        # Graphs and functions refer to each other; until they are collected the device keeps their memory.
        gc.collect()

    def _checked(self, name: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> SignatureFunction:
        if self._loaded is None:
            raise InferenceFailed("the model is closed")
        signature, function = self._signatures.get(name), self._functions.get(name)
        if signature is None or function is None:
            raise SignatureNotFound(f"signature {name!r} not found; there are {_listed(self._signatures)}")
        if inputs.keys() != signature.inputs.keys():
            raise InvalidRequest(f"inputs must be {_listed(signature.inputs)}, not {_listed(inputs)}")
        if unknown := set(outputs) - signature.outputs.keys():
            raise InvalidRequest(f"outputs must be among {_listed(signature.outputs)}, not {_listed(unknown)}")
        return function


def _listed(names: Any) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
