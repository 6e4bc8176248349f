"""One signature as a function from arrays to arrays that computes only the outputs wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf

from app.inference import Array, ModelSignature, TensorSpec

#: Sets of outputs that get a graph of their own, per signature. Each costs a trace and memory.
MAX_GRAPHS = 16

_Tensors = dict[str, Any]
_Graph = Callable[[_Tensors], _Tensors]


class SignatureFunction:
    """Calls a loaded signature; may be called from any thread. Arrays in and out are by name.

    Each set of outputs is computed by a graph cut down to it: what only other outputs
    need does not run, except for what the model itself ordered to run always (the assertions
    and assignments inside a tf.function). Beyond MAX_GRAPHS different sets, all outputs
    are computed and the rest is thrown away.
    """

    def __init__(self, signature: ModelSignature, function: Callable[..., _Tensors]) -> None:
        self._signature = signature
        self._function = function
        self._dtypes = {name: tf.as_dtype(spec.dtype) for name, spec in signature.inputs.items()}
        self._all = frozenset(signature.outputs)
        self._graphs = {self._all: self._trace(self._all)}
        self._tracing = Lock()

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        graph = self._graph(frozenset(outputs) or self._all)
        results = graph({name: tf.constant(inputs[name], dtype) for name, dtype in self._dtypes.items()})
        specs = self._signature.outputs
        return {name: _to_array(results[name], specs[name]) for name in outputs or specs}

    def _graph(self, wanted: frozenset[str]) -> _Graph:
        with self._tracing:
            if wanted not in self._graphs and len(self._graphs) < MAX_GRAPHS:
                self._graphs[wanted] = self._trace(wanted)
            return self._graphs.get(wanted) or self._graphs[self._all]

    def _trace(self, wanted: frozenset[str]) -> _Graph:
        """A graph from all inputs to the outputs wanted. Calling it is quicker than the loaded function, too."""
        function = self._function

        def wanted_outputs(tensors: _Tensors) -> _Tensors:
            # TensorFlow inlines the signature here and prunes what no returned tensor needs.
            results = function(**tensors)
            return {name: results[name] for name in wanted}

        specs = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in self._signature.inputs.items()}
        traced = tf.function(wanted_outputs, input_signature=[specs], autograph=False)
        graph: _Graph = traced.get_concrete_function()
        return graph


def _to_array(tensor: Any, spec: TensorSpec) -> Array:
    # numpy() copies. A view would be quicker, but a TensorFlow 1 model may return the very
    # memory of a variable, which its next call overwrites.
    return np.asarray(tensor.numpy(), dtype=spec.dtype)
