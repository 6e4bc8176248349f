"""A SavedModel of TensorFlow 1 that needs a session, executed as TensorFlow Serving executes it.

Rules
- A session executes the models of `why_session` in signature_defs.py, and models that tf.saved_model.load cannot load.
- Functions cannot return reference variables, and TensorFlow never frees the reference variables of functions; the
  variables and tables of a session end with it. Functions load either all signatures or none; in a session a signature
  that lacks an input fails only when it is called.
- A fetched reference is the memory of the variable, and an assignment to it may be no single step. So if a signature of
  the model writes, calls of all signatures that use reference variables exclude each other, and answers are copied
  before the next call.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.bounded_cache import BoundedCache
from app.core.inference import Array, ModelSignature
from app.core.values.value_hints import NO_HINTS, ValueHints
from app.runtimes.call_names import check_names, no_function
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.accepted_values.graph_hints import hints_of_graph
from app.runtimes.tensorflow.error_mapping import map_error, model_name
from app.runtimes.tensorflow.execution.graph_facts import with_facts
from app.runtimes.tensorflow.execution.graph_fingerprint import weights_digest
from app.runtimes.tensorflow.execution.guarded_call import Call
from app.runtimes.tensorflow.execution.inline_graph import session_config
from app.runtimes.tensorflow.execution.operations import REFERENCE_VARIABLES, may_have_vector_keys
from app.runtimes.tensorflow.graph_part import full_name, part_of
from app.runtimes.tensorflow.row_proof.proof import rows_of_signature
from app.runtimes.tensorflow.saved_model.loading_folder import LoadingFolder
from app.runtimes.tensorflow.saved_model.signature_defs import (
    TAGS,
    read_signatures,
    with_types_of,
)

#: The most callables of a signature, one for each set of outputs: callers choose the sets. Chosen.
_MAX_CALLABLES = 64


class SessionModel:
    """The PlainModel of folder `path`: its graph, its variables and its tables in a separate session.

    Args:
        meta_graph: the served MetaGraphDef of the folder.
        tf32: whether products of float32 are computed in TF32 on its device.
        note: the reason why it runs in a session.

    Raises:
        Exception: TensorFlow cannot load the folder.
    """

    def __init__(self, path: Path, meta_graph: Any, *, tf32: bool = False, note: str = "") -> None:
        graph = tf.Graph()
        self._functions: dict[str, _SessionFunction] = {}
        self.note = note
        self._folder = LoadingFolder(path, meta_graph, as_functions=False)
        self._session: Any = tf.compat.v1.Session(graph=graph, config=session_config())
        try:
            with graph.as_default(), private_api.quiet():  # it warns that this is TensorFlow 1
                tf.compat.v1.saved_model.load(self._session, list(TAGS), str(self._folder.path))
            definitions = read_signatures(with_types_of(graph, meta_graph), model_name(path))
            weights = weights_digest(path)
            placed = {name: replace(signature, tf32=tf32, weights=weights) for name, signature in definitions.items()}
            self._functions = _functions(self._session, placed)
        except BaseException:
            self.close()
            raise
        self.signatures = {name: function.signature for name, function in self._functions.items()}

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        function = self._functions.get(signature)
        if function is None:
            raise no_function(signature, self.signatures, closed=self._session is None)
        check_names(function.signature, inputs, outputs)
        try:
            return function(inputs, outputs)
        except Exception as error:
            raise map_error(error) from error

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self.run(signature, inputs, outputs)

    def value_hints(self, signature: str) -> ValueHints:
        function = self._functions.get(signature)
        return NO_HINTS if function is None else function.value_hints

    def stop_variants(self, signature: str) -> None:
        """Does nothing: a session has no variants."""

    def close(self) -> None:
        self._functions = {}
        if self._session is not None:
            self._session.close()
            is_free = private_api.free_graph(self._session.graph)
            self._session = None
            if not is_free():
                gc.collect()
        self._folder.close()


class _SessionFunction:
    """One signature in a session. May be called from any thread. Arrays in and out are by name."""

    def __init__(self, session: Any, signature: ModelSignature, lock: AbstractContextManager[Any]) -> None:
        self.signature = signature
        self._session = session
        self._calling = lock
        self._callables: BoundedCache[tuple[str, ...], Call] = BoundedCache(_MAX_CALLABLES)
        self._keeping = Lock()

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        wanted = outputs or tuple(self.signature.outputs)
        call = self._callables.get(wanted) or self._make(wanted)
        with self._calling:
            return call(inputs)

    def _make(self, wanted: tuple[str, ...]) -> Call:
        call = _session_call(self._session, self.signature, wanted)
        with self._keeping:
            self._callables.keep(wanted, call)
        return call

    @cached_property
    def value_hints(self) -> ValueHints:
        """The hints that the graph gives of the values that its inputs accept."""
        inputs = {name: full_name(spec.tensor_name) for name, spec in self.signature.inputs.items()}
        return hints_of_graph(self._session.graph.as_graph_def(), self.signature, inputs)


def _session_call(session: Any, signature: ModelSignature, wanted: Sequence[str]) -> Call:
    """The call from all inputs to the wanted outputs, among which may be an input, or one tensor twice."""
    feeds = {full_name(spec.tensor_name): name for name, spec in signature.inputs.items()}
    tensors = {name: full_name(signature.outputs[name].tensor_name) for name in wanted}
    fetches = list(dict.fromkeys(tensor for tensor in tensors.values() if tensor not in feeds))
    run = private_api.session_call(session, list(feeds), fetches)

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        sent = {tensor: inputs[name] for tensor, name in feeds.items()}
        found = sent | dict(zip(fetches, run(list(sent.values())), strict=True))
        # Copies: a result may be the memory of a variable.
        return {name: np.array(found[tensor], signature.outputs[name].dtype) for name, tensor in tensors.items()}

    return call


def _functions(session: Any, definitions: Mapping[str, ModelSignature]) -> dict[str, _SessionFunction]:
    graph = session.graph.as_graph_def()
    parts = {name: _part_of(graph, signature) for name, signature in definitions.items()}
    signatures = {name: _with_facts(signature, parts[name]) for name, signature in definitions.items()}
    stateful = any(signature.writes for signature in signatures.values())
    shared = Lock()  # of the signatures that use reference variables

    def lock(name: str) -> AbstractContextManager[Any]:
        if stateful and any(node.op in REFERENCE_VARIABLES for node in parts[name].node):
            return shared
        return Lock() if signatures[name].writes else nullcontext()

    return {name: _SessionFunction(session, signature, lock(name)) for name, signature in signatures.items()}


def _with_facts(signature: ModelSignature, part: Any) -> ModelSignature:
    """The signature with the facts of its part of the graph."""
    known = with_facts(signature, part)
    inputs, outputs = (
        {name: full_name(spec.tensor_name) for name, spec in specs.items()}
        for specs in (signature.inputs, signature.outputs)
    )
    rows = rows_of_signature(
        signature, part, inputs, outputs, writes=known.writes, vector_keys=may_have_vector_keys(part)
    )
    return replace(known, graph_rows=rows)


def _part_of(graph: Any, signature: ModelSignature) -> Any:
    """The GraphDef of the nodes that a call of the signature runs, by name."""
    outputs, inputs = ([spec.tensor_name for spec in specs.values()] for specs in (signature.outputs, signature.inputs))
    part = part_of(graph, outputs, inputs)
    part.node.sort(key=lambda node: node.name)
    return part
