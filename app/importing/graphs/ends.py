"""The ends of a graph that has no signature: the tensors that are its inputs, and those that are its outputs.

1. Outputs depend on an input, and no other operation of the inference reads them. Training is left out: gradients,
   optimizers, losses, what depends on labels; and what is no result: summaries, assertions, saving, empty nodes.
2. Inputs are the placeholders that the outputs need, and what an input pipeline (queues, iterators) gives.
3. Switches of training with a known name (`is_training`, `keep_prob`) are fixed to their value for inference.
4. In doubt the caller names them: the error lists the candidates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.graphs.graph_file import attribute
from app.importing.order import CannotImport
from app.runtimes.tensorflow.graph_nodes import data_inputs, names, node_of, sizes_of
from app.runtimes.tensorflow.graph_part import full_name, needed_nodes

_PLACEHOLDERS = names("Placeholder PlaceholderV2")
_WITH_DEFAULT = "PlaceholderWithDefault"

#: Operations of input pipelines, whose results are inputs: those that read them are the model.
_PIPELINES = names("""
    IteratorGetNext IteratorGetNextSync IteratorV2 OneShotIterator QueueDequeue QueueDequeueV2 QueueDequeueMany
    QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 ReaderRead ReaderReadV2 ReaderReadUpTo ReaderReadUpToV2
    Unstage
""")

#: Operations that only look at what others compute.
_OBSERVERS = names("""
    Assert AudioSummary AudioSummaryV2 HistogramSummary ImageSummary MergeSummary NoOp Print PrintV2 ScalarSummary
    TensorSummary TensorSummaryV2
""")

#: Operations that give no result of a model, and whose operands may be its results: they save, count and keep.
_NO_RESULTS = _OBSERVERS | names("""
    Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp Const MergeV2Checkpoints
    QueueCloseV2 QueueEnqueue QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 QueueSizeV2 Save SaveSlices SaveV2
    ScatterAdd ScatterSub ScatterUpdate Stage
""")

#: Operations of losses, and measures of training.
_LOSSES = names("""
    CTCLoss CTCLossV2 EditDistance InTopK InTopKV2 L2Loss SoftmaxCrossEntropyWithLogits
    SparseSoftmaxCrossEntropyWithLogits
""")

#: Operations that choose a way of the graph.
_BRANCHES = names("RefSwitch Switch")

#: Last parts of the names of placeholders for labels.
_LABELS = frozenset({"label", "labels", "target", "targets", "y_true", "y_", "ground_truth", "truth", "annotations"})

#: Last parts of the names of outputs, where there are several candidates.
_KNOWN_OUTPUTS = frozenset({
    "softmax", "prediction", "predictions", "probability", "probabilities", "probs", "prob", "output", "outputs",
    "scores", "logits", "sigmoid", "embeddings", "final_result", "detection_boxes", "detection_scores",
    "detection_classes", "detection_masks", "num_detections",
})  # fmt: skip

#: Switches of training: last parts of names, and their values for inference.
_SWITCHES: Mapping[str, bool | float] = {
    **dict.fromkeys(("is_training", "is_train", "training", "train", "phase_train", "phase", "train_phase"), False),
    **dict.fromkeys(("keras_learning_phase", "learning_phase", "train_mode", "istraining", "istrain"), False),
    **dict.fromkeys(("keep_prob", "dropout_keep_prob", "keep_probability", "dropout_keep", "keepprob"), 1.0),
    **dict.fromkeys(("dropout_rate", "drop_rate", "dropout_prob"), 0.0),
}

#: The most outputs that are found without being asked for.
_MOST_OUTPUTS = 32

#: Operations whose results say nothing of the values of their operands.
_SIZES = names("Rank Shape ShapeN Size")

#: Parts of the names of the layers of TensorFlow 1 that take whether they train; True means so in all of them.
_SWITCHED_LAYERS = ("batch_normalization", "batchnorm", "dropout")

#: Types as a NodeDef numbers them: bool; float32, float64, bfloat16 and float16.
_DT_BOOL, _FLOATS = 10, frozenset({1, 2, 14, 19})


@dataclass(frozen=True, slots=True)
class Ends:
    """Inputs and outputs by name, each a tensor of the graph ('x:0').

    fixed: values of switches of training, by tensor.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    fixed: Mapping[str, Array] = field(default_factory=dict)

    def fed(self) -> list[str]:
        """The tensors that have values from outside."""
        return [*self.inputs.values(), *self.fixed]


class GraphEnds:
    """The search for the ends of a GraphDef."""

    def __init__(self, graph: Any) -> None:
        self._nodes = {node.name: node for node in graph.node}
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._awaited: set[str] = set()  # other operations wait for these: assertions
        for node in graph.node:
            for tensor in data_inputs(node):
                self._readers[node_of(tensor)].append(node.name)
            if node.op != "NoOp":
                self._awaited.update(node_of(each) for each in node.input if each.startswith("^"))

    def asked(self, tensors: Sequence[str], flag: str) -> list[str]:
        """Tensors of the graph by names that a caller gave, with or without ':0'. Raises CannotImport."""
        for tensor in tensors:
            if node_of(tensor) not in self._nodes:
                near = [name for name in self._nodes if node_of(tensor).lower() in name.lower()]
                hint = f"; near it are {', '.join(near[:8])}" if near else ""
                raise CannotImport(f"{flag} {tensor}: the graph has no such node{hint}")
        return [full_name(tensor) for tensor in tensors]

    def of(self, outputs: Sequence[str], inputs: Sequence[str] = ()) -> Ends:
        """The ends for these outputs: `inputs`, or what is found. Raises CannotImport: the outputs need no input."""
        cut = [*inputs, *self._pipeline_tensors()]
        needed = needed_nodes(self._nodes, outputs, cut)
        fixed = self._switches(needed, set(inputs))
        found = list(inputs) or self._found_inputs(needed, outputs, fixed)
        if not found:
            raise CannotImport(
                "no placeholder was found that the outputs "
                f"{', '.join(outputs)} need; --inputs NAME,NAME names the tensors that are inputs"
            )
        return Ends(named(found), named(outputs), fixed)

    # --- outputs ---

    def output_nodes(self) -> list[str]:
        """The names of the nodes that give results. Raises CannotImport: there is none, or too many to choose from."""
        training = self._training()
        model = self._after(self._source_nodes(), without=training, stop=_SIZES)
        ends = [name for name in self._nodes if name in model and self._is_end(name, model, training)]
        ends = [name for name in ends if self._nodes[name].op != "Exit"] or ends  # counters of loops
        ends = [each for end in ends for each in self._with_chosen_of(end, is_trained=bool(training))]
        known = [name for name in ends if _last(name) in _KNOWN_OUTPUTS]
        if len(ends) > _MOST_OUTPUTS or (training and len(ends) > 1):
            numbers = [name for name in ends if attribute(self._nodes[name], "T").type in _FLOATS]
            if not known and len(numbers) != 1:
                self._ask(ends)
            ends = known or numbers
        if not ends:
            self._ask([name for name in self._nodes if not self._readers[name]])
        return list(dict.fromkeys(ends))

    def _ask(self, ends: Sequence[str]) -> None:
        candidates = [name for name in ends if self._nodes[name].op not in _NO_RESULTS]
        shown = ", ".join(f"{name} ({self._nodes[name].op})" for name in candidates[-12:])
        raise CannotImport(
            "the graph does not say which of its tensors are outputs; --outputs NAME,NAME names them"
            + (f"; candidates are {shown}" if shown else "; nothing in it depends on a placeholder")
        )

    def _is_end(self, name: str, model: set[str], training: set[str]) -> bool:
        """Whether a node gives a result: nothing reads it, or nothing but losses, and measures of training."""
        if self._nodes[name].op in _NO_RESULTS | _PLACEHOLDERS | _PIPELINES | _BRANCHES:
            return False
        readers = self._readers[name]
        if any(each in model and self._nodes[each].op not in _NO_RESULTS for each in readers):
            return False
        if not readers:
            return name not in self._awaited
        return any(each in training and not _is_gradient(each) for each in readers)

    def _with_chosen_of(self, name: str, *, is_trained: bool) -> list[str]:
        """An end; with what it chooses from, if a measure of training made it the end (accuracy)."""
        node = self._nodes[name]
        if not is_trained or node.op not in {"ArgMax", "TopKV2"}:
            return [name]
        return [node_of(data_inputs(node)[0]), name]

    def _training(self) -> set[str]:
        """The nodes of training: gradients, optimizers, losses, labels, and all that depends on them."""
        roots = [
            name
            for name, node in self._nodes.items()
            if node.op in _LOSSES
            or node.op.startswith(("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply"))
            or _is_gradient(name)
            or (node.op in _PLACEHOLDERS and {_last(name), name.rpartition("/")[2].lower()} & _LABELS)
        ]
        return self._after(roots)

    def _after(self, roots: Iterable[str], without: Iterable[str] = (), stop: Collection[str] = ()) -> set[str]:
        """The nodes that depend on these, and these; not by way of nodes `without`, or of operations `stop`."""
        barred = set(without)
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name not in found and name not in barred and self._nodes[name].op not in stop:
                found.add(name)
                waiting += self._readers[name]
        return found

    # --- inputs ---

    def _source_nodes(self) -> list[str]:
        sources = [name for name, node in self._nodes.items() if node.op in _PLACEHOLDERS | _PIPELINES]
        sources = [name for name in sources if _last(name) not in _SWITCHES]
        return sources or [name for name, node in self._nodes.items() if node.op == _WITH_DEFAULT]

    def _pipeline_tensors(self) -> list[str]:
        """The tensors of input pipelines that the model reads."""
        found = [
            full_name(tensor)
            for node in self._nodes.values()
            for tensor in data_inputs(node)
            if node_of(tensor) in self._nodes and self._nodes[node_of(tensor)].op in _PIPELINES
        ]
        return list(dict.fromkeys(found))

    def _found_inputs(self, needed: set[str], outputs: Sequence[str], fixed: Mapping[str, Any]) -> list[str]:
        read = {full_name(each) for name in needed for each in data_inputs(self._nodes[name])} | set(outputs)
        placeholders = [
            f"{name}:0" for name, node in self._nodes.items() if name in needed and node.op in _PLACEHOLDERS
        ]
        pipelines = [tensor for tensor in self._pipeline_tensors() if tensor in read]
        found = [each for each in [*placeholders, *pipelines] if each not in fixed]
        if found:
            return found
        return [
            f"{name}:0"
            for name, node in self._nodes.items()
            if name in needed and node.op == _WITH_DEFAULT and f"{name}:0" not in fixed
        ]

    def _switches(self, needed: set[str], inputs: set[str]) -> dict[str, Array]:
        switches = {
            name: self._value_for_inference(node)
            for name, node in self._nodes.items()
            if name in needed and f"{name}:0" not in inputs
        }
        return {f"{name}:0": value for name, value in switches.items() if value is not None}

    def _value_for_inference(self, node: Any) -> Array | None:
        """The value of a switch of training; None if the node is no switch."""
        if not (node.op in _PLACEHOLDERS or node.op == _WITH_DEFAULT) or not _is_scalar(node):
            return None
        dtype = attribute(node, "dtype").type
        value = _SWITCHES.get(_last(node.name))
        if value is None and dtype == _DT_BOOL:
            value = self._value_without_training(node.name)
        if value is None or (dtype == _DT_BOOL) is not isinstance(value, bool):
            return None
        return np.asarray(value, tf.as_dtype(dtype).as_numpy_dtype)

    def _value_without_training(self, name: str) -> bool | None:
        """The value of a condition in inference, by what depends on it; None if that says nothing.

        A branch that assigns variables is that of training. Layers that are told whether they train are told by True.
        """
        readers = [each for each in self._readers[name] if not _is_gradient(each)]
        readers = [each for one in readers for each in (self._readers[one] if self._is_copy(one) else [one])]
        for each in readers:
            if self._nodes[each].op == "RefSwitch":
                for reader in self._readers[each]:
                    if self._nodes[reader].op.startswith("Assign"):
                        return f"{each}:1" not in self._nodes[reader].input
        layers = [each for each in readers if not _is_gradient(each)]
        known = layers and all(any(layer in each.lower() for layer in _SWITCHED_LAYERS) for each in layers)
        return False if known else None

    def _is_copy(self, name: str) -> bool:
        operation: str = self._nodes[name].op
        return operation == "Identity"


def _is_gradient(name: str) -> bool:
    return any(part in {"gradients", "gradient_tape", "train_op", "optimizer"} for part in name.split("/")[:-1])


def _is_scalar(node: Any) -> bool:
    return not sizes_of(attribute(node, "shape").shape)  # none, or not known


def _last(name: str) -> str:
    """The last part of a node's name, in small letters and without the number that makes it unique."""
    return name.rpartition("/")[2].lower().rstrip("0123456789").rstrip("_") or name.lower()


def ends_of_signature(definition: Any) -> Ends:
    """The ends that a SignatureDef names. Raises CannotImport: one is no plain tensor."""
    for kind in (definition.inputs, definition.outputs):
        for name, info in kind.items():
            if info.WhichOneof("encoding") != "name":
                raise CannotImport(f"{name!r} in its signature is no dense tensor")
    return Ends(
        {name: full_name(info.name) for name, info in sorted(definition.inputs.items())},
        {name: full_name(info.name) for name, info in sorted(definition.outputs.items())},
    )


def named(tensors: Iterable[str]) -> dict[str, str]:
    """Tensors by their names without ':0'."""
    return {tensor.removesuffix(":0"): tensor for tensor in tensors}
