"""The graph of a signature whose operations all run in the calling thread.

TensorFlow runs a function in threads of its pools, and the caller waits for them: two switches of threads and the
conversions of tensors take 50 us, more than a call of a small model. A session needs neither: it runs all operations
of a call one after the other in the caller's thread, and takes and returns arrays.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.execution.denormals import flushing


class InlineGraph:
    """A session that computes all outputs of a signature. May be called from several threads at once.

    Args:
        graph: it has constants in place of variables, and no tables.
        feeds, fetches: the tensors of the inputs and of the outputs, by name.

    Attributes:
        structured_outputs: the outputs by name, as those of a concrete function.
        run: from the arrays of the inputs, in the order of their names, to those of the outputs. Their memory may be
            that of an input or of a constant.

    Raises:
        PrivateApiUnusable: sessions cannot be called this way with this TensorFlow.
        NotPossible: this machine's threads cannot be told to compute as TensorFlow's do.
    """

    def __init__(self, graph: tf.Graph, feeds: Mapping[str, str], fetches: Mapping[str, str]) -> None:
        private_api.require(private_api.SESSION_CALLABLES)
        self.structured_outputs = fetches
        session = tf.compat.v1.Session(graph=graph, config=session_config())
        fetched = [fetches[name] for name in sorted(fetches)]
        self.run = flushing(
            private_api.session_call(session, [feeds[name] for name in sorted(feeds)], fetched, in_thread=True)
        )
        weakref.finalize(self.run, _close, session).atexit = False  # a call may outlive this object


def session_config() -> Any:
    """A ConfigProto with the threads of this process; memory of GPUs grows with its use, as that of functions."""
    threading = tf.config.threading
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=threading.get_inter_op_parallelism_threads(),
        allow_soft_placement=True,
        gpu_options=tf.compat.v1.GPUOptions(allow_growth=True),
    )


def _close(session: Any) -> None:
    graph = session.graph
    session.close()
    private_api.free_graph(graph)
