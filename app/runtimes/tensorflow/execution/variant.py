"""The variants in which one signature can be executed, and their requirements.

plain   as the SavedModel has it.
frozen  variables are constants, so that Grappler folds, fuses and lays out operations that depend on them.
inline  as frozen, in the calling thread: a call of a small model takes a third of the time.
xla     compiled by XLA for one shape of each input. Small variables are constants there, too, because passing them
        takes longer than a small model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import tensorflow as tf

from app.core.inference import STRING, Array, ModelSignature
from app.core.values.value_kinds import Reach
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.execution.graph_inlining import InlinedGraph, TensorFunction, Tensors, trace
from app.runtimes.tensorflow.execution.inline_graph import InlineGraph
from app.runtimes.tensorflow.execution.operations import rounds_to_integers
from app.runtimes.tensorflow.execution.programs import PROGRAMS, Programs
from app.runtimes.tensorflow.execution.staging import InputShapes
from app.runtimes.tensorflow.execution.value_flow import rejecting_nodes

PLAIN, FROZEN, INLINE, XLA = "plain", "frozen", "inline", "xla"

#: Tried in this order: frozen is made faster.
ALTERNATIVES = (FROZEN, INLINE, XLA)

#: Larger variables are not frozen. Chosen: constants take 7 times their size in memory, 17 times while they are made.
FROZEN_LIMIT_MB = 64

#: Larger variables are passed to XLA's code: XLA folds constants while it compiles, which takes long for large ones.
#: Chosen.
_XLA_CONSTANTS_MB = 1


#: The largest constants of inline: a session keeps them several times, and a model with more takes too long for inline
#: to matter. Chosen.
_INLINE_CONSTANTS_MB = 16


class VariantNotPossible(Exception):
    """A signature cannot have this variant; the text says why."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A function for all outputs of a signature.

    shapes: the input shapes that it is made for; None for any shapes.
    reach: the input values for which it was proven to answer as plain does.
    """

    name: str
    graph: TensorFunction | InlineGraph
    shapes: InputShapes | None = None
    reach: Reach = Reach.ANY

    def takes(self, shapes: InputShapes) -> bool:
        return self.shapes is None or self.shapes == shapes


class VariantMaker:
    """The maker of the variants of one signature.

    Args:
        traced: the plain variant, a concrete function for all outputs.
        content: names the content of the model and its device; None if no compiled program may serve another load.
        on_devices: whether it runs on other devices than the machine's cores.
        frozen_limit_mb: larger variables are not frozen.
    """

    def __init__(
        self,
        signature: ModelSignature,
        traced: Any,
        content: Hashable = None,
        programs: Programs = PROGRAMS,
        *,
        on_devices: bool = False,
        frozen_limit_mb: int = FROZEN_LIMIT_MB,
    ) -> None:
        self._signature = signature
        self._frozen_limit_mb = frozen_limit_mb
        self._traced = traced
        self._content = content
        self._programs = programs
        self._on_devices = on_devices

    def make(self, name: str, inputs: Mapping[str, Array]) -> Variant:
        """The variant for inputs of these shapes. XLA compiles at its first call.

        Raises:
            VariantNotPossible: the signature cannot have it.
            Exception: TensorFlow cannot rewrite the graph.
        """
        if name == FROZEN:
            return self._frozen
        if name == INLINE:
            return self._inline
        signature = self._signature
        first = 1 if signature.shares_calls else 0  # the dimension of rows may be free
        if any(spec.shape is None or None in spec.shape[first:] for spec in signature.inputs.values()):
            raise VariantNotPossible("XLA compiles each shape of its inputs: only those that shape_buckets name")
        return self.compile(inputs)

    def compile(self, inputs: Mapping[str, Array]) -> Variant:
        """XLA's variant for inputs of exactly these shapes. Raises VariantNotPossible, or TensorFlow's error."""
        signature = self._signature
        specs = (*signature.inputs.values(), *signature.outputs.values())
        if any(spec.dtype == STRING for spec in specs):
            raise VariantNotPossible("XLA has no strings")
        inlined = self._inlined
        if rounds_to_integers(inlined.graph):
            raise VariantNotPossible("XLA rounds some floating-point numbers to other integers")
        shapes = {name: inputs[name].shape for name in sorted(signature.inputs)}
        key = None if self._content is None else (self._content, signature.name, tuple(shapes.values()))
        make = partial(_compiled, signature, inlined, shapes)
        return Variant(XLA, self._programs.get(key, make), tuple(shapes.values()))

    @cached_property
    def _inlined(self) -> InlinedGraph:
        """The graph that XLA compiles, and of which parts run beside its code; small variables are constants."""
        small = self._variables_mb <= _XLA_CONSTANTS_MB
        return InlinedGraph(self._signature, self._traced, with_constants=small)

    @cached_property
    def _frozen(self) -> Variant:
        return Variant(FROZEN, self._with_constants(self._frozen_limit_mb).function())

    @cached_property
    def _inline(self) -> Variant:
        if self._on_devices or tf.config.list_logical_devices("GPU"):
            raise VariantNotPossible("only what the machine's cores compute runs inline")
        separate = self._with_constants(_INLINE_CONSTANTS_MB).separate()
        if separate is None:
            raise VariantNotPossible("it has tables, or outputs that are inputs")
        return Variant(INLINE, InlineGraph(*separate))

    def _with_constants(self, limit_mb: int) -> InlinedGraph:
        if self._variables_mb > limit_mb:
            raise VariantNotPossible(f"its variables take {self._variables_mb:.0f} MB, more than the limit, {limit_mb}")
        return InlinedGraph(self._signature, self._traced, with_constants=True)

    @property
    def _variables_mb(self) -> float:
        variables = self._traced.graph.variables
        size: int = sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
        return size / 2**20


def _compiled(
    signature: ModelSignature, inlined: InlinedGraph, shapes: Mapping[str, tuple[int, ...]]
) -> TensorFunction:
    compiled: TensorFunction = private_api.named_by_content(
        trace(inlined.outputs_of, shapes, signature, jit_compile=True)
    )
    rejecting = rejecting_nodes(inlined.graph, inlined.inputs)
    if not rejecting:
        return compiled

    # XLA's code rejects nothing: it omits assertions, and an index beyond the end reads the last element. So the
    # nodes that may reject a value run a second time without XLA, and fail the call as in plain.
    check = inlined.importer(rejecting)

    def checked(tensors: Tensors) -> Tensors:
        # One element of each result becomes an output. Else TensorFlow would prune the check.
        proofs = {
            f"\0{number}": tf.reshape(result, [-1])[:1]
            for number, result in enumerate(check(tensors))
            if result is not None and result.dtype not in {tf.resource, tf.variant}
        }
        return compiled(tensors) | proofs

    function: TensorFunction = trace(checked, shapes, signature)
    return function
