"""The signatures of a SavedModel that is not loaded: for a check without a server, which should take no time.

They are those that a server serves, except what only a loaded graph says: which requests share calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.error_mapping import load_failure
from app.runtimes.tensorflow.saved_model.operation_check import check_operations
from app.runtimes.tensorflow.saved_model.signature_defs import (
    read_signatures,
    serving_graph,
    why_session,
    with_types_of,
)


def offline_signatures(path: Path, allowed_operations: Collection[str] = ()) -> Mapping[str, ModelSignature]:
    """By name. Nothing of the model in folder `path` runs, and its variables are not read.

    Raises InferenceFailed, FilesUnreadable: it cannot be loaded, as far as its graph says that.
    """
    try:
        meta_graph = serving_graph(path)
        check_operations(meta_graph, allowed_operations)
        if why_session(meta_graph):
            meta_graph = with_types_of(_imported(meta_graph), meta_graph)
        return read_signatures(meta_graph, "/".join(path.parts[-2:]))
    except Exception as error:
        raise load_failure(path, error) from error


def _imported(meta_graph: Any) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta_graph.graph_def, name="")
    return graph
