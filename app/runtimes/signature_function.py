"""One signature as a function from arrays to arrays that computes only the outputs wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf

from app.inference import Array, ModelSignature, TensorSpec
from app.runtimes.inlining import Graph, trace
from app.runtimes.variants import Variant

#: Sets of outputs that get a graph of their own, per signature. Each costs a trace and memory.
MAX_GRAPHS = 16

_Tensors = dict[str, Any]


class SignatureFunction:
    """Calls a loaded signature; may be called from any thread. Arrays in and out are by name.

    Each set of outputs is computed by a graph cut down to it: what only other outputs
    need does not run, except for what the model itself ordered to run always (the assertions
    and assignments inside a tf.function). Beyond MAX_GRAPHS different sets, all outputs
    are computed and the rest is thrown away.

    The graph of all outputs may be replaced by variants, each for a number of rows.
    """

    def __init__(self, signature: ModelSignature, function: Callable[..., _Tensors]) -> None:
        self.signature = signature
        self._function = function
        self._dtypes = {name: tf.as_dtype(spec.dtype) for name, spec in signature.inputs.items()}
        self._all = frozenset(signature.outputs)
        self._graphs = {self._all: self._trace(self._all)}
        self._tracing = Lock()
        self._variants: Mapping[int, Variant] = {}

    @property
    def plain(self) -> Any:
        """The signature as it is, for all outputs: a concrete function."""
        return self._graphs[self._all]

    def use(self, variants: Mapping[int, Variant]) -> None:
        """From now on calls with these numbers of rows (1 where the signature is not batchable) run these variants."""
        self._variants = variants

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if not all(spec.accepts_shape(inputs[name].shape) for name, spec in self.signature.inputs.items()):
            return self.run(self._as_loaded, inputs, outputs)
        wanted = frozenset(outputs) or self._all
        graph = self._variant(inputs) if self._variants and wanted == self._all else None
        return self.run(graph or self._graph(wanted), inputs, outputs)

    def run(self, graph: Graph, inputs: Mapping[str, Array], outputs: tuple[str, ...] = ()) -> dict[str, Array]:
        """Calls a graph that computes at least `outputs`, or all where that is empty."""
        results = graph({name: tf.constant(inputs[name], dtype) for name, dtype in self._dtypes.items()})
        specs = self.signature.outputs
        return {name: _to_array(results[name], specs[name]) for name in outputs or specs}

    def _as_loaded(self, tensors: _Tensors) -> _Tensors:
        """The loaded function itself: it lets the graph say whether it can; ours are traced for the declared shapes."""
        return self._function(**tensors)

    def _variant(self, inputs: Mapping[str, Array]) -> Graph | None:
        rows = 1
        if self.signature.batchable:
            shape = next(iter(inputs.values())).shape
            rows = shape[0] if shape else 0
        variant = self._variants.get(rows)
        return variant.graph if variant and variant.takes(self.signature, inputs) else None

    def _graph(self, wanted: frozenset[str]) -> Graph:
        with self._tracing:
            if wanted not in self._graphs and len(self._graphs) < MAX_GRAPHS:
                self._graphs[wanted] = self._trace(wanted)
            return self._graphs.get(wanted) or self._graphs[self._all]

    def _trace(self, wanted: frozenset[str]) -> Graph:
        """A graph from all inputs to the outputs wanted. Calling it is quicker than the loaded function, too."""
        function = self._function

        def wanted_outputs(tensors: _Tensors) -> _Tensors:
            # TensorFlow inlines the signature here and prunes what no returned tensor needs.
            results = function(**tensors)
            return {name: results[name] for name in wanted}

        shapes = {name: spec.shape for name, spec in self.signature.inputs.items()}
        graph: Graph = trace(wanted_outputs, shapes, self.signature)
        return graph


def _to_array(tensor: Any, spec: TensorSpec) -> Array:
    # numpy() copies. A view would be quicker, but a TensorFlow 1 model may return the very
    # memory of a variable, which its next call overwrites.
    return np.asarray(tensor.numpy(), dtype=spec.dtype)
