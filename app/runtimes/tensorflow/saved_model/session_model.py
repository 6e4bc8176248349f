"""A SavedModel of TensorFlow 1 that needs a session, executed as TensorFlow Serving executes it.

Rules
- Which models these are: those of `why_session` in signature_defs.py, and those that tf.saved_model.load cannot load.
- The former, since functions cannot return reference variables, and TensorFlow never frees those that functions use; a
  session's variables and tables end with it. And functions load either all signatures or none, a session leaves out
  what one of them lacks until it is called.
- A fetched reference is the variable's own memory, and an assignment to it may be no single step. So if a signature of
  the model writes, calls of all signatures that use reference variables take turns, and answers are copied in the turn.
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
from app.core.errors import InferenceFailed, SignatureNotFound
from app.core.inference import Array, ModelSignature
from app.core.values.value_hints import NO_HINTS, ValueHints
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.accepted_values.value_hints import hints_of_graph
from app.runtimes.tensorflow.error_mapping import map_error
from app.runtimes.tensorflow.execution.graph_fingerprint import graph_fingerprint, weights_digest
from app.runtimes.tensorflow.execution.operations import (
    REFERENCE_VARIABLES,
    drawing_operations,
    has_loops,
    may_have_vector_keys,
    reads_files,
    takes_one_rank,
    writing_operations,
)
from app.runtimes.tensorflow.row_proof.proof import rows_of_signature
from app.runtimes.tensorflow.saved_model.graph_part import full_name, needed_nodes
from app.runtimes.tensorflow.saved_model.loading_folder import LoadingFolder
from app.runtimes.tensorflow.saved_model.signature_defs import (
    TAGS,
    check_names,
    listed,
    read_signatures,
    with_types_of,
)

#: Sets of outputs whose callables are kept, per signature: callers choose them. Chosen.
_MAX_CALLABLES = 64


class SessionModel:
    """The PlainModel of folder `path`: its graph, its variables and its tables in a session of its own.

    Args:
        meta_graph: the MetaGraphDef of the folder that is served.
        tf32: whether products of float32 are computed in TF32 where it runs.
        note: that it runs in a session, and why.

    Raises:
        Exception: TensorFlow cannot load the folder.
    """

    def __init__(self, path: Path, meta_graph: Any, *, tf32: bool = False, note: str = "") -> None:
        threading = tf.config.threading
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=threading.get_intra_op_parallelism_threads(),
            inter_op_parallelism_threads=threading.get_inter_op_parallelism_threads(),
            allow_soft_placement=True,
            gpu_options=tf.compat.v1.GPUOptions(allow_growth=True),
        )
        graph = tf.Graph()
        self._functions: dict[str, _SessionFunction] = {}
        self.note = note
        self._folder = LoadingFolder(path, meta_graph, as_functions=False)
        self._session: Any = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default(), private_api.quiet():  # it warns that this is TensorFlow 1
                tf.compat.v1.saved_model.load(self._session, list(TAGS), str(self._folder.path))
            definitions = read_signatures(with_types_of(graph, meta_graph), "/".join(path.parts[-2:]))
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
            if self._session is None:
                raise InferenceFailed("the model is closed")
            raise SignatureNotFound(f"signature {signature!r} not found; there are {listed(self.signatures)}")
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
        """Nothing to stop: a session has no variants."""

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

    def __init__(self, session: Any, signature: ModelSignature, turn: AbstractContextManager[Any]) -> None:
        self.signature = signature
        self._session = session
        self._turn = turn
        self._callables: BoundedCache[tuple[str, ...], _Callable] = BoundedCache(_MAX_CALLABLES)
        self._keeping = Lock()

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        wanted = outputs or tuple(self.signature.outputs)
        call = self._callables.get(wanted) or self._make(wanted)
        with self._turn:
            return call(inputs)

    def _make(self, wanted: tuple[str, ...]) -> _Callable:
        call = _Callable(self._session, self.signature, wanted)
        with self._keeping:
            self._callables.keep(wanted, call)
        return call

    @cached_property
    def value_hints(self) -> ValueHints:
        """What the graph tells of the values that its inputs accept."""
        inputs = {name: full_name(spec.tensor_name) for name, spec in self.signature.inputs.items()}
        return hints_of_graph(self._session.graph.as_graph_def(), self.signature, inputs)


class _Callable:
    """From all inputs to the outputs wanted, which may include a tensor that is an input, or one tensor twice."""

    def __init__(self, session: Any, signature: ModelSignature, wanted: Sequence[str]) -> None:
        feeds = {full_name(spec.tensor_name): name for name, spec in signature.inputs.items()}
        tensors = [full_name(signature.outputs[name].tensor_name) for name in wanted]
        self._inputs = list(feeds.values())
        fetches = list(dict.fromkeys(tensor for tensor in tensors if tensor not in feeds))
        self._run = private_api.session_call(session, list(feeds), fetches)
        self._outputs = [
            (name, signature.outputs[name].dtype, feeds.get(tensor), 0 if tensor in feeds else fetches.index(tensor))
            for name, tensor in zip(wanted, tensors, strict=True)
        ]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        results = self._run([inputs[name] for name in self._inputs])
        # Copies: a result may be the memory of a variable.
        return {
            name: np.array(results[index] if fed is None else inputs[fed], dtype)
            for name, dtype, fed, index in self._outputs
        }


def _functions(session: Any, definitions: Mapping[str, ModelSignature]) -> dict[str, _SessionFunction]:
    graph = session.graph.as_graph_def()
    parts = {name: _part_of(graph, signature) for name, signature in definitions.items()}
    signatures = {name: _with_facts(signature, parts[name]) for name, signature in definitions.items()}
    stateful = any(signature.writes for signature in signatures.values())
    shared = Lock()  # by the signatures that use reference variables

    def turn(name: str) -> AbstractContextManager[Any]:
        if stateful and any(node.op in REFERENCE_VARIABLES for node in parts[name].node):
            return shared
        return Lock() if signatures[name].writes else nullcontext()

    return {name: _SessionFunction(session, signature, turn(name)) for name, signature in signatures.items()}


def _with_facts(signature: ModelSignature, part: Any) -> ModelSignature:
    """The signature with what its part of the graph says of it."""
    writes, draws = tuple(writing_operations(part)), tuple(drawing_operations(part))
    return replace(
        signature,
        writes=writes,
        draws=draws,
        loops=has_loops(part),
        reads_files=reads_files(part),
        one_rank=takes_one_rank(part),
        fingerprint=graph_fingerprint(part),
        graph_rows=rows_of_signature(
            signature,
            part,
            {name: full_name(spec.tensor_name) for name, spec in signature.inputs.items()},
            {name: full_name(spec.tensor_name) for name, spec in signature.outputs.items()},
            writes=writes,
            vector_keys=may_have_vector_keys(part),
        ),
    )


def _part_of(graph: Any, signature: ModelSignature) -> Any:
    """The GraphDef of what a call of the signature runs."""
    by_name = {node.name: node for node in graph.node}
    outputs, inputs = ([spec.tensor_name for spec in specs.values()] for specs in (signature.outputs, signature.inputs))
    part = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions)
    part.node.extend(by_name[name] for name in sorted(needed_nodes(by_name, outputs, inputs)))
    return part
