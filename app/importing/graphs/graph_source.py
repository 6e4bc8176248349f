"""An endpoint from a GraphDef without variables, and its ends: the function for the export, and the source's session.

- The function imports the part of the graph that the outputs need. Its oracle is a session of TensorFlow 1 with the
  whole graph as it was, for which the caller may restore variables.
- A fixed batch is freed where the graph then still answers as before: three rows together as each alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from app.config.sources import load_settings
from app.core.agreement import agree
from app.core.inference import DEFAULT_SIGNATURE, Array
from app.core.values.sample_inputs import SEED
from app.importing.graphs.branches import taken_branches
from app.importing.graphs.dropout import without_dropout
from app.importing.graphs.ends import Ends
from app.importing.graphs.graph_file import attribute
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Tensors
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.graph_nodes import data_inputs, node_of, sizes_of
from app.runtimes.tensorflow.graph_part import full_name, part_of
from app.runtimes.tensorflow.operation_libraries.needed import OperationsMissing, load_needed, needed_libraries
from app.runtimes.tensorflow.operation_libraries.shared_libraries import LibraryUnusable
from app.runtimes.tensorflow.saved_model.operation_check import ForbiddenOperation, check_operations

tf1 = tf.compat.v1

#: The most elements of an input whose sizes are fixed. Chosen: a gigabyte of float32.
_MOST_ELEMENTS = 1 << 28

#: Rows whose answers together are compared with those alone.
_TRIED_ROWS = 3

#: Operations whose first input must have a rank, and the place of its weights, whose second last size is the input's
#: last one.
_RANKS = {"Conv1D": 3, "Conv2D": 4, "DepthwiseConv2dNative": 4, "Conv3D": 5, "MatMul": 2}

#: Types without an array form.
_NOT_ARRAYS = frozenset({tf.resource, tf.variant})

Specs = Mapping[str, Any]


# --- checks ---


def checked_part(graph: Any, ends: Ends) -> Any:
    """The part of a GraphDef that its outputs need. Raises CannotImport: an operation of it reaches outside."""
    part = part_of(graph, ends.outputs.values(), ends.fed())
    if ends.fixed:
        part = part_of(taken_branches(part, ends.fixed), ends.outputs.values(), ends.fed())
    meta_graph = tf1.MetaGraphDef(graph_def=part)
    infos = meta_graph.signature_def["ferry_import"].outputs
    for name, tensor in ends.outputs.items():
        infos[name].name = tensor
    check_meta_graph(meta_graph)
    return part


def check_meta_graph(meta_graph: Any, called: Sequence[str] = ()) -> None:
    """Checks a graph before anything of it runs, and loads the libraries of operations that it needs.

    Args:
        called: functions of its objects that run, beside its signatures.

    Raises CannotImport: an operation that runs reaches outside, or is in no library that is there.
    """
    try:
        needed = needed_libraries(meta_graph)
        check_operations(meta_graph, load_settings({}).allowed_operations, called)
        load_needed(needed, "the source")
    except (ForbiddenOperation, LibraryUnusable, OperationsMissing) as error:
        raise CannotImport(f"{error}") from None


def import_into_graph(graph: Any, producer: Any = None) -> Any:
    """A tf.Graph of a GraphDef. Raises CannotImport: TensorFlow rejects it."""
    imported = tf.Graph()
    try:
        with imported.as_default(), private_api.quiet():
            tf.import_graph_def(graph, name="", producer_op_list=producer)
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        raise rejected(error) from None
    return imported


def rejected(error: Exception) -> CannotImport:
    """The refusal for an error of TensorFlow at the import of a graph."""
    return CannotImport(f"TensorFlow rejects its graph: {first_meaningful_line(error)}")


def with_placeholders(part: Any, ends: Ends, imported: Any) -> tuple[Any, Ends]:
    """A part of a graph whose inputs and switches are placeholders, and its ends.

    Args:
        imported: the tf.Graph that the part is of.
    """
    closed = tf1.GraphDef()
    closed.CopyFrom(part)
    taken = {node.name for node in part.node}
    places: dict[str, str] = {}
    for tensor in ends.fed():
        found = imported.get_tensor_by_name(tensor)
        name, _, number = tensor.partition(":")
        name = name if number == "0" else f"{name}_{number}"
        while name in taken:
            name += "_fed"
        taken.add(name)
        node = closed.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = found.dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(found.shape.as_proto())
        places[tensor] = f"{name}:0"
    for node in closed.node:
        node.input[:] = [places.get(full_name(each), each) for each in node.input]
    inputs = {name: places[tensor] for name, tensor in ends.inputs.items()}
    outputs = {name: places.get(tensor, tensor) for name, tensor in ends.outputs.items()}
    return closed, Ends(inputs, outputs, {places[tensor]: value for tensor, value in ends.fixed.items()})


def tensor_names(imported: Any, nodes: Sequence[str]) -> list[str]:
    """All results of these nodes of a tf.Graph that have an array form, as tensors."""
    results = [each for name in nodes for each in imported.get_operation_by_name(name).outputs]
    return [each.name for each in results if each.dtype not in _NOT_ARRAYS and not each.dtype._is_ref_dtype]


def specs_of(imported: Any, ends: Ends) -> Specs:
    """The tf.TensorSpecs of the inputs. Raises CannotImport: there is no such tensor, or one of a huge size."""
    specs = {}
    for name, tensor in ends.inputs.items():
        try:
            found = imported.get_tensor_by_name(tensor)
        except (KeyError, ValueError) as error:
            raise CannotImport(f"--inputs {name}: {first_meaningful_line(error)}") from None
        if found.dtype in _NOT_ARRAYS:
            raise CannotImport(f"its input {name!r} is of type {found.dtype.name}, which has no array form")
        elements = np.prod([size or 1 for size in found.shape.as_list()], dtype=float) if found.shape.rank else 1
        if elements > _MOST_ELEMENTS:
            raise CannotImport(f"its input {name!r} has the shape {found.shape}; expected at most 2**28 elements")
        specs[name] = tf.TensorSpec(found.shape, found.dtype.base_dtype, name)
    return specs


# --- the source ---


def new_session(imported: Any) -> Any:
    """A session of TensorFlow 1 with a tf.Graph."""
    return tf1.Session(graph=imported, config=tf1.ConfigProto(allow_soft_placement=True))


class GraphSession:
    """The source itself: a session of TensorFlow 1 with the graph as it was.

    Attributes:
        batch: the fixed number of rows of the graph where callers may send any: rows then go in groups of it.
    """

    def __init__(self, session: Any, ends: Ends) -> None:
        self.batch = 0
        self._ends = ends
        self._session = session

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, from inputs by name."""
        if not self.batch:
            return self._run(inputs)
        rows = max(len(each) for each in inputs.values())
        answers = [self._run_group(inputs, start) for start in range(0, rows, self.batch)]
        return {name: np.concatenate([each[name] for each in answers])[:rows] for name in answers[0]}

    def _run_group(self, inputs: Mapping[str, Array], start: int) -> dict[str, Array]:
        """The answers to the rows from `start` on, with the last row repeated where they are too few."""
        places = np.minimum(np.arange(start, start + self.batch), max(len(each) for each in inputs.values()) - 1)
        return self._run({name: each[places] for name, each in inputs.items()})

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        feeds: dict[str, Any] = {self._ends.inputs[name]: array for name, array in inputs.items()}
        values = self._session.run(list(self._ends.outputs.values()), feeds | dict(self._ends.fixed))
        return dict(zip(self._ends.outputs, map(np.asarray, values), strict=True))


# --- the endpoint ---


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a graph without variables.

    specs: the inputs as the source has them.
    producer: the operations of the TensorFlow that wrote it, where that is known.
    weights: variables in place of constants, by tensor: TensorFlow computes with constants ahead, and rounds otherwise.
    """

    graph: Any
    ends: Ends
    specs: Specs
    producer: Any = None
    weights: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphEndpoint:
    """An endpoint, and remarks on it."""

    endpoint: Endpoint
    notes: Sequence[str] = field(default=())


def endpoint_of(part: Part, source: GraphSession, name: str = DEFAULT_SIGNATURE) -> GraphEndpoint:
    """The endpoint of a part of a graph.

    Args:
        source: the session of the source; it gets the source's batch if that of the endpoint is free.

    Raises CannotImport: TensorFlow rejects the graph.
    """
    notes = [f"{tensor.removesuffix(':0')} is fixed to {value}" for tensor, value in part.ends.fixed.items()]
    if any(value.dtype.kind == "f" for value in part.ends.fixed.values()):
        part = replace(part, graph=without_dropout(part.graph))
    wanted, call = _with_free_batch(part), None
    if wanted != part.specs:
        call = _freed(part, wanted, source)
        if call is None:
            notes.append(_why_fixed(part.specs))
    if call is None:
        wanted = part.specs
        call = _function(part, wanted)
    return GraphEndpoint(Endpoint(wanted, call, source.run, name), notes)


def _why_fixed(specs: Specs) -> str:
    fixed = ", ".join(f"{name} {spec.shape}" for name, spec in specs.items())
    return f"its number of rows stays as it is ({fixed}), since other numbers give other answers, or none"


def _function(part: Part, specs: Specs) -> Callable[[Tensors], Tensors]:
    """The function of a part of a graph. Raises CannotImport: it rejects these shapes."""
    ends = part.ends
    traced: list[Any] = []

    def build() -> None:
        places = [tf1.placeholder(spec.dtype, spec.shape, f"ferry_{n}") for n, spec in enumerate(specs.values())]
        given = {ends.inputs[name]: place for name, place in zip(specs, places, strict=True)}
        given |= {tensor: tf.constant(value) for tensor, value in ends.fixed.items()}
        given |= {tensor: variable.read_value() for tensor, variable in part.weights.items()}
        outputs = list(ends.outputs.values())
        graph = part_of(part.graph, outputs, given)
        read = {full_name(each) for node in graph.node for each in node.input}
        mapped = {tensor: value for tensor, value in given.items() if tensor in read}
        # An output may be an input, which is none of the imported nodes.
        computed = [tensor for tensor in outputs if tensor not in given]
        results = tf.import_graph_def(
            graph, input_map=mapped, return_elements=computed, name="", producer_op_list=part.producer
        )
        known = given | dict(zip(computed, results, strict=True))
        traced.extend((places, [tf.identity(known[tensor]) for tensor in outputs]))

    try:
        with private_api.quiet():
            pruned = tf1.wrap_function(build, []).prune(*traced)
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        raise rejected(error) from None

    def call(tensors: Tensors) -> Tensors:
        results = pruned(*[tensors[name] for name in specs])
        return dict(zip(ends.outputs, results, strict=True))

    return call


# --- a free batch ---


def _with_free_batch(part: Part) -> Specs:
    """The specs with any number of rows; of an unknown rank, with the rank that the operation that reads it needs.

    Where some inputs have any number of rows, the first sizes of others are no number of rows.
    """
    rows = [spec.shape[0] for spec in part.specs.values() if spec.shape.rank]
    free = {}
    for name, spec in part.specs.items():
        shape = spec.shape
        if shape.rank is None:
            shape = _needed_shape(part.graph, part.ends.inputs[name])
        elif shape.rank and None not in rows:
            shape = tf.TensorShape([None, *shape[1:]])
        free[name] = tf.TensorSpec(shape, spec.dtype, name)
    return free


def _needed_shape(graph: Any, tensor: str) -> Any:
    """The shape that the operations need that read a tensor, or its copy; unknown if they do not say."""
    nodes = {node.name: node for node in graph.node}
    copies = {node_of(tensor)}
    for node in graph.node:
        given = [node_of(each) for each in data_inputs(node)]
        if node.op == "Switch" and given[1] in copies:
            return tf.TensorShape([])
        if not given or given[0] not in copies:
            continue
        if node.op == "Identity":
            copies.add(node.name)
        elif node.op in _RANKS:
            last = _second_last_size(nodes, given[1]) if not attribute(node, "transpose_b").b else None
            if attribute(node, "data_format").s in {b"", b"NHWC", b"NDHWC"}:
                return tf.TensorShape([*[None] * (_RANKS[node.op] - 1), last])
            return tf.TensorShape([None] * _RANKS[node.op])
    return tf.TensorShape(None)


def _second_last_size(nodes: Mapping[str, Any], name: str) -> int | None:
    """The size of a constant along its second last dimension; None if it is not known."""
    node = nodes.get(name)
    while node is not None and node.op == "Identity":
        node = nodes.get(node_of(node.input[0]))
    sizes = sizes_of(attribute(node, "value").tensor.tensor_shape) if node is not None and node.op == "Const" else None
    return sizes[-2] if sizes is not None and len(sizes) > 1 else None


def _freed(part: Part, wanted: Specs, source: GraphSession) -> Callable[[Tensors], Tensors] | None:
    """The function for any number of rows; None if it does not answer as the source."""
    batches = {spec.shape[0] for spec in part.specs.values() if spec.shape.rank and spec.shape[0] is not None}
    if len(batches) > 1:
        return None
    try:
        call = _function(part, wanted)
    except CannotImport:
        return None
    source.batch = next(iter(batches), 0)
    try:
        if all(_answers_alike(call, wanted, source, kind) for kind in (0, 1)):
            return call
    except Exception:  # noqa: S110 - whatever TensorFlow raises where a graph has another batch: it stays fixed
        pass
    source.batch = 0
    return None


def _answers_alike(call: Callable[[Tensors], Tensors], specs: Specs, source: GraphSession, kind: int) -> bool:
    """Whether rows together, and one alone, have the answers of the source, a row for a row."""
    for rows in (1, _TRIED_ROWS):
        inputs = {name: _made(spec, rows, kind) for name, spec in specs.items()}
        answers = {name: each.numpy() for name, each in call({k: tf.constant(v) for k, v in inputs.items()}).items()}
        if any(np.ndim(each) == 0 or len(each) != rows for each in answers.values()):
            return False
        if not agree(source.run(inputs), answers):
            return False
    return True


def _made(spec: Any, rows: int, kind: int) -> Array:
    """Values for a trial: numbers from 0 to 1 and small whole ones, then normal and larger ones."""
    random = np.random.default_rng([SEED, kind, rows])
    shape = [rows if axis == 0 else size or 32 for axis, size in enumerate(spec.shape)]
    if spec.dtype == tf.string:
        return np.full(shape, b"1", object)
    dtype = spec.dtype.as_numpy_dtype
    if spec.dtype.is_floating or spec.dtype.is_complex:
        return np.asarray(random.standard_normal(shape) * 4 if kind else random.random(shape), dtype)
    return np.asarray(random.integers(0, 2 if spec.dtype.is_bool or not kind else 100, shape), dtype)
