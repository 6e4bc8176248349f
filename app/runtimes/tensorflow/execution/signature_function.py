"""One signature as a function from arrays to arrays that computes only the wanted outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

from app.core.bounded_cache import BoundedCache
from app.core.graph_rows import GraphRows
from app.core.inference import Array, ModelSignature
from app.core.validation import check_shapes
from app.core.values.value_hints import ValueHints
from app.core.values.value_kinds import inputs_beyond
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.accepted_values.graph_hints import hints_of_function
from app.runtimes.tensorflow.execution.executors import Executor, make_executor, public_executor
from app.runtimes.tensorflow.execution.graph_facts import with_facts
from app.runtimes.tensorflow.execution.graph_inlining import Tensors, trace
from app.runtimes.tensorflow.execution.guarded_call import Call, guarded
from app.runtimes.tensorflow.execution.in_graph_batching import without_batching
from app.runtimes.tensorflow.execution.inline_graph import InlineGraph
from app.runtimes.tensorflow.execution.operations import operations_with_state
from app.runtimes.tensorflow.execution.prepared_call import PreparedCall
from app.runtimes.tensorflow.execution.staging import InputShapes
from app.runtimes.tensorflow.execution.unchanged_writes import changes_nothing
from app.runtimes.tensorflow.execution.value_flow import steering_inputs
from app.runtimes.tensorflow.execution.variant import Variant
from app.runtimes.tensorflow.row_proof.proof import rows_of_signature

#: The most graphs of a signature, one for each set of outputs: each costs a trace and memory. Chosen.
MAX_GRAPHS = 16

#: The most prepared calls of a signature: callers choose the shapes and the outputs. Chosen.
MAX_CALLS = 256


class SignatureFunction:
    """The function of a loaded signature, between arrays by name. May be called from any thread.

    Each set of outputs is computed by a graph cut down to it: nodes that only other outputs need do not run. Nodes that
    the model orders to run always (assertions and assignments inside a tf.function) still run. After MAX_GRAPHS
    different sets all outputs are computed and the rest is dropped.

    The graph of all outputs may be replaced by variants, each for a number of rows or for exact shapes. The choice is
    made once for each set of outputs and shapes of inputs.

    Args:
        device: the device where it executes, such as '/device:GPU:1'; None lets TensorFlow choose.
        vector_keys: whether tables that it reads may have vectors for keys.

    Attributes:
        traced_s: seconds that tracing the graph of all outputs took.
        signature: with the facts of the graph of all outputs.
        state: the types of its operations that may change the answers of later calls, of any signature.
        changes: whether a written value may be another one than the value before.
        graph_rows: the verdicts of its graph on its rows; None if no input has rows.
    """

    def __init__(
        self,
        signature: ModelSignature,
        function: Callable[..., Tensors],
        device: str | None = None,
        *,
        vector_keys: bool = True,
    ) -> None:
        # --- the loaded function ---
        self._function = _dense(function, signature.ragged_outputs) if signature.ragged_outputs else function
        self._device = device
        self._inputs = tuple(sorted(signature.inputs))
        self._all = frozenset(signature.outputs)
        self.signature = signature

        # --- graphs and calls made so far ---
        self._tracing = Lock()
        begin_s = time.perf_counter()
        self._graphs = {self._all: self._trace(self._all)}
        self.traced_s = time.perf_counter() - begin_s
        self._variants: Mapping[int, Variant] = {}
        self._compiled: Mapping[InputShapes, Variant] = {}
        self._keeping = Lock()
        self._calls: BoundedCache[tuple[tuple[str, ...], InputShapes], Call] = BoundedCache(MAX_CALLS)

        # --- facts about the graph ---
        graph = self.plain.graph.as_graph_def()
        self.signature = signature = with_facts(signature, graph)
        self.state = operations_with_state(graph)
        self.changes = bool(signature.writes) and not changes_nothing(graph, signature.writes)
        self.graph_rows = self._prove_rows(graph, vector_keys=vector_keys)
        if shared := replace(signature, graph_rows=self.graph_rows).shared:  # all other inputs are rows
            self.signature = replace(signature, graph_rows=self.graph_rows)
        self._row_inputs = [place for place, name in enumerate(self._inputs) if name not in shared]
        # Calls that write exclude each other: for TensorFlow, reading and writing again is not one step.
        self._writing = Lock() if signature.writes else None
        # On a GPU, too: when all outputs are here, an input that is still on its way to it is one that none depends on.
        self._reuse_inputs = not self.state

    @property
    def plain(self) -> Any:
        """The concrete function of the signature as it was saved, for all outputs."""
        return self._graphs[self._all]

    @cached_property
    def steering(self) -> frozenset[str]:
        """The inputs with values that may decide the time or the memory of a call."""
        names = {tensor.op.name: name for name, tensor in zip(self._inputs, self.plain.inputs, strict=False)}
        return frozenset(names[each] for each in steering_inputs(self.plain.graph.as_graph_def(), names))

    @cached_property
    def value_hints(self) -> ValueHints:
        """The hints that its graph gives of the values that its inputs accept."""
        return hints_of_function(self.plain, self.signature, private_api.captures(self.plain.graph))

    def use(self, variants: Mapping[int, Variant]) -> None:
        """Use these variants in later calls, by their numbers of rows (1 if the signature shares no calls)."""
        with self._keeping:
            self._variants = variants
            self._calls.clear()

    def use_compiled(self, variants: Iterable[Variant]) -> None:
        """Use these variants in later calls with exactly their shapes."""
        compiled = {variant.shapes: variant for variant in variants if variant.shapes is not None}
        with self._keeping:
            self._compiled = compiled
            self._calls.clear()

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        shapes = tuple([inputs[name].shape for name in self._inputs])
        call = self._calls.get((outputs, shapes)) or self._choose(inputs, outputs, shapes)
        if self._writing is None:
            return call(inputs)
        with self._writing:
            return call(inputs)

    def run_plain(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """The outputs, computed by the plain graph, without variants."""
        return self.prepare(self._graph(frozenset(outputs) or self._all), inputs, outputs)(inputs)

    def prepare(self, graph: Any, inputs: Mapping[str, Array], outputs: tuple[str, ...] = ()) -> PreparedCall:
        """The call of a concrete function with inputs of these shapes.

        Args:
            graph: computes at least `outputs`; all outputs, if that is empty.
        """
        inline = isinstance(graph, InlineGraph)
        execute = graph.run if inline else make_executor(graph, self._inputs, self._device)
        return self._prepared(execute, sorted(graph.structured_outputs), inputs, outputs, arrays=inline)

    def prepare_variant(self, variant: Variant, inputs: Mapping[str, Array], outputs: tuple[str, ...] = ()) -> Call:
        """The call of a variant with inputs of these shapes; plain answers values beyond the variant's reach."""
        call = self.prepare(variant.graph, inputs, outputs)
        if names := inputs_beyond(self.signature, variant.reach):
            return guarded(call, self.prepare(self.plain, inputs, outputs), names, variant.reach)
        return call

    def _prepared(
        self,
        execute: Executor,
        results: list[str],
        inputs: Mapping[str, Array],
        outputs: tuple[str, ...],
        *,
        arrays: bool = False,
    ) -> PreparedCall:
        signature = self.signature
        places = {name: place for place, name in enumerate(results)}
        indices = {name: places[name] for name in outputs or signature.outputs}
        shapes = {name: inputs[name].shape for name in self._inputs}
        return PreparedCall(signature, execute, shapes, indices, reuse=self._reuse_inputs, arrays=arrays)

    def _choose(self, inputs: Mapping[str, Array], outputs: tuple[str, ...], shapes: InputShapes) -> Call:
        # 1. Shapes that the signature does not declare: the loaded function may still accept them; our graphs, which
        #    are traced for the declared shapes, would not.
        if not all(spec.accepts_shape(inputs[name].shape) for name, spec in self.signature.inputs.items()):
            if self._called_plainly:  # the loaded function waits for other calls
                check_shapes(self.signature, inputs)
            as_loaded = public_executor(lambda tensors: self._function(**tensors), self._inputs, self._device)
            return self._prepared(as_loaded, sorted(self.signature.outputs), inputs, outputs)

        # 2. All outputs: the variant for these shapes, if one was chosen. 3. Some outputs: a graph of these alone.
        wanted, in_use = frozenset(outputs) or self._all, (self._variants, self._compiled)
        variant = self._variant(shapes) if wanted == self._all else None
        if variant:
            call: Call = self.prepare_variant(variant, inputs, outputs)
        else:
            call = self.prepare(self._graph(wanted), inputs, outputs)
        with self._keeping:
            if in_use == (self._variants, self._compiled):  # else the next call chooses among the new ones
                self._calls.keep((outputs, shapes), call)
            return call

    def _variant(self, shapes: InputShapes) -> Variant | None:
        variant = self._compiled.get(shapes) or self._variants.get(self._rows(shapes))
        return variant if variant and variant.takes(shapes) else None

    def _rows(self, shapes: InputShapes) -> int:
        if not self.signature.shares_calls:
            return 1
        outermost = [splits[0] for splits in self.signature.ragged.values()]
        return shapes[self._inputs.index(outermost[0])][0] - 1 if outermost else shapes[self._row_inputs[0]][0]

    def _graph(self, wanted: frozenset[str]) -> Any:
        with self._tracing:
            if wanted not in self._graphs and len(self._graphs) < MAX_GRAPHS:
                self._graphs[wanted] = self._trace(wanted)
            return self._graphs.get(wanted) or self._graphs[self._all]

    def _prove_rows(self, graph: Any, *, vector_keys: bool) -> GraphRows | None:
        plain = self.plain
        inputs = {name: tensor.name for name, tensor in zip(self._inputs, plain.inputs, strict=False)}
        outputs = {name: tensor.name for name, tensor in zip(sorted(self._all), plain.outputs, strict=True)}
        shape_of = {id(variable.handle): variable.shape for variable in plain.graph.variables}
        held = [(inner.op.name, shape_of.get(id(outer))) for outer, inner in private_api.captures(plain.graph)]
        variables = {name: shape.as_list() for name, shape in held if shape is not None and shape.rank is not None}
        return rows_of_signature(
            self.signature,
            graph,
            inputs,
            outputs,
            writes=self.signature.writes,
            variables=variables,
            vector_keys=vector_keys,
        )

    def _trace(self, wanted: frozenset[str]) -> Any:
        """A graph from all inputs to the wanted outputs."""
        function = self._function

        def wanted_outputs(tensors: Tensors) -> Tensors:
            # TensorFlow inlines the signature here and prunes nodes that no returned tensor needs.
            results = function(**tensors)
            return {name: results[name] for name in wanted}

        shapes = {name: spec.shape for name, spec in self.signature.inputs.items()}
        traced = trace(wanted_outputs, shapes, self.signature)
        plain = without_batching(self.signature, traced)
        self._called_plainly = plain is not traced
        return plain


def _dense(function: Callable[..., Tensors], ragged: Mapping[str, tuple[str, ...]]) -> Callable[..., Tensors]:
    """The function with the values and the row splits of each RaggedTensor as separate results."""

    def dense(**tensors: Any) -> Tensors:
        results = function(**tensors)
        for name, splits in ragged.items():
            result = results[name]
            results |= {name: result.flat_values, **dict(zip(splits, result.nested_row_splits, strict=True))}
        return results

    return dense
