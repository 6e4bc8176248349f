"""The signatures of a SavedModel that is not loaded, for a quick check without a server.

They are the signatures of a server without the facts of a loaded graph: which requests share calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.error_mapping import load_failure, model_name
from app.runtimes.tensorflow.operation_libraries.needed import (
    OperationsMissing,
    load_named,
    load_needed,
    needed_libraries,
)
from app.runtimes.tensorflow.operation_libraries.shared_libraries import Loadable
from app.runtimes.tensorflow.saved_model.operation_check import check_operations
from app.runtimes.tensorflow.saved_model.signature_defs import (
    read_signatures,
    serving_graph,
    why_session,
    with_types_of,
)


def offline_signatures(
    path: Path, allowed_operations: Collection[str] = (), operation_libraries: Collection[str] = ()
) -> Mapping[str, ModelSignature]:
    """The signatures of the model in folder `path` by name. Nothing of it runs, and its variables are not read.

    Libraries of operations are loaded only if the graph is imported, or if the table does not know an operation.

    Raises InferenceFailed, FilesUnreadable: it cannot be loaded, as far as its graph shows that.
    """
    try:
        meta_graph = serving_graph(path)
        needed = _needed(meta_graph, operation_libraries)
        check_operations(meta_graph, allowed_operations)
        if why_session(meta_graph):
            load_needed(needed, model_name(path))
            meta_graph = with_types_of(_imported(meta_graph), meta_graph)
        return read_signatures(meta_graph, model_name(path))
    except Exception as error:
        raise load_failure(path, error) from error


def _needed(meta_graph: Any, named: Collection[str]) -> Mapping[Loadable, Sequence[str]]:
    """The libraries that the graph needs, where those of the setting are loaded if the table is not enough."""
    try:
        return needed_libraries(meta_graph)
    except OperationsMissing:
        if not named:
            raise
    load_named(named)
    return needed_libraries(meta_graph)


def _imported(meta_graph: Any) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta_graph.graph_def, name="")
    return graph
