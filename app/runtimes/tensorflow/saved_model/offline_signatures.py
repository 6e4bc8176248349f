"""The signatures of a SavedModel that is not loaded, for a quick check without a server.

They are the signatures of a server without the facts of a loaded graph: which requests share calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.error_mapping import load_failure, model_name
from app.runtimes.tensorflow.saved_model.operation_check import check_operations
from app.runtimes.tensorflow.saved_model.signature_defs import (
    read_signatures,
    serving_graph,
    why_session,
    with_types_of,
)


def offline_signatures(path: Path, allowed_operations: Collection[str] = ()) -> Mapping[str, ModelSignature]:
    """The signatures of the model in folder `path` by name. Nothing of it runs, and its variables are not read.

    Raises InferenceFailed, FilesUnreadable: it cannot be loaded, as far as its graph shows that.
    """
    try:
        meta_graph = serving_graph(path)
        check_operations(meta_graph, allowed_operations)
        if why_session(meta_graph):
            meta_graph = with_types_of(_imported(meta_graph), meta_graph)
        return read_signatures(meta_graph, model_name(path))
    except Exception as error:
        raise load_failure(path, error) from error


def _imported(meta_graph: Any) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta_graph.graph_def, name="")
    return graph
