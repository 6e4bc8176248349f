"""The types that every part of Ferry shares: tensors, signatures, requests, responses.

A tensor is a numpy array. Strings are arrays of dtype `object` that hold `bytes`.
bfloat16 and the other types outside plain numpy are the `ml_dtypes` ones.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.graph_rows import GraphRows

Buffer = bytes | memoryview

Array = NDArray[Any]

#: The inputs of one row, by name, each of shape [1, ...].
Row = Mapping[str, Array]

#: The inner shape (all dimensions but the first) of each input, in the order of the signature.
InnerShapes = tuple[tuple[int, ...], ...]

STRING = np.dtype(object)

#: Quantized numbers, as TensorFlow has them (structures of one field with the type's name), and how they are stored.
QUANTIZED = {
    np.dtype([(name, stored)]): np.dtype(stored)
    for name, stored in {"qint8": "i1", "quint8": "u1", "qint16": "i2", "quint16": "u2", "qint32": "i4"}.items()
}

#: The signature of a request that names none.
DEFAULT_SIGNATURE = "serving_default"

#: A dimension whose size is not fixed by the signature is None.
Dimension = int | None


def dtype_name(dtype: np.dtype[Any]) -> str:
    """TensorFlow's name of a tensor type: 'float32', 'bfloat16', 'string', ..."""
    return "string" if dtype == STRING else dtype.names[0] if dtype.names else dtype.name


def string_array(values: Sequence[bytes], shape: Sequence[int] | None = None) -> Array:
    """The strings as an array of this shape; [len(values)] without one. Raises ValueError if they do not fill it."""
    array = np.empty(len(values), STRING)
    array[:] = values
    return array if shape is None else array.reshape(shape)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a signature.

    `shape` includes the batch dimension where there is one; None means unknown rank.
    `tensor_name` is the graph tensor behind it ('serving_default_x:0'), for metadata only.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Dimension, ...] | None
    tensor_name: str = ""

    def accepts_shape(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want is None or want == got for want, got in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}{format_shape(self.shape)}"


def has_rows(shape: Sequence[Dimension] | None) -> bool:
    """Whether the first dimension is free."""
    return bool(shape) and shape is not None and shape[0] is None


def format_shape(shape: tuple[Dimension, ...] | None) -> str:
    """'[?,8,8]' for (None, 8, 8); '<unknown rank>' for None."""
    if shape is None:
        return "<unknown rank>"
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


class SparseParts(NamedTuple):
    """The names of the three inputs of one SparseTensor: indices [n, rank], values [n], its shape [rank]."""

    indices: str
    values: str
    shape: str


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """One callable of a SavedModel.

    `method_name` is the SignatureDef's ('tensorflow/serving/predict', '.../classify', '.../regress').
    `batchable`: by its shapes rows of several requests may share a call. Every input and output has a free first
    dimension (an output of unknown rank counts as one that has; its real first dimension is checked at run time), and
    the graph does not say otherwise (graph_rows).
    `shared`: inputs without rows, such as a temperature. Requests share a call if these are equal. Empty unless the
    graph proves that all outputs are rows beside them. Such a signature is not `batchable`: not all inputs are rows.
    `has_sparse_rows`: as `batchable`, but some inputs are SparseTensors: their first size is the number of rows.
    `all_rows`: by shapes all inputs and outputs are rows, whatever the graph says of them.
    `answers_rows`: outputs have a first dimension of rows, by shapes and graph, also where each request runs alone.
    `shares_calls`: by shapes and graph requests may share calls: all inputs are rows, or all beside the shared ones.
    `fixed_inner_shapes`: all dimensions of the inputs but the first have a fixed size.
    `alone`: by output, why each request that wants it runs alone and unpadded although the shapes are batchable.
    `finite_only`: why a request that holds NaN or infinity runs alone where others share calls; empty if it does not.
    `writes`: the types of its operations that write state between calls; each call of it counts.
    `draws`: the types of its operations that draw random numbers.
    `loops`: it has a loop, which may take as long as values say, and might never end for infinite ones.
    `reads_files`: a call of it may wait for storage.
    `one_rank`: inputs of another rank may end the process, so they are rejected.
    `ragged`: by the name of a RaggedTensor's values, the names of its row splits, outermost first; all are inputs.
    `ragged_outputs`: the same for outputs.
    `sparse`: the SparseTensors among the inputs.
    `sparse_sizes`: by the name of a SparseTensor's indices, its sizes beside the number of rows, as far as declared.
    `defaults`: by the name of an input that callers may leave out, its value (optional_inputs.py).
    `masks`: by the name of an input that callers may leave out, the input whose lengths it describes (same file).
    `labels`: by the name of an output, the names of its classes, one for each number of a row.
    `mixed_rows`: its inputs have rows of several kinds, such as leaves and nodes, so that a request is a whole.
    `strict_names`: of a pipeline: unknown names are errors in each format. JSON's `inputs` ignores unknown names of a
        model, as TensorFlow Serving does.
    `tf32`: where it is computed, factors of float32 are rounded to the 11 binary digits of TF32.
    `graph_rows`: the verdicts of its graph on rows; None if no graph was read.
    `fingerprint`: a name for its graph without the values of variables; empty if there is none.
    `weights`: a name for the values of its model's variables and tables.
    `most_rows`: the most rows of a shared call: the model rejects more, or nothing is proven beyond; 0 for any number.
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = "tensorflow/serving/predict"
    ragged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Array] = field(default_factory=dict, compare=False)  # arrays are neither equal nor unequal
    ragged_outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sparse: tuple[SparseParts, ...] = ()
    sparse_sizes: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)
    finite_only: str = ""
    writes: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    loops: bool = False
    reads_files: bool = False
    one_rank: bool = False
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mixed_rows: bool = False
    strict_names: bool = False
    tf32: bool = False
    graph_rows: GraphRows | None = field(default=None, compare=False)  # facts of the loaded model, as the next three
    fingerprint: str = field(default="", compare=False)
    weights: str = field(default="", compare=False)
    most_rows: int = field(default=0, compare=False)
    batchable: bool = field(init=False, compare=False)  # from here on fields follow from the fields above
    shared: frozenset[str] = field(init=False, compare=False)
    has_sparse_rows: bool = field(init=False, compare=False)
    all_rows: bool = field(init=False, compare=False)
    answers_rows: bool = field(init=False, compare=False)
    shares_calls: bool = field(init=False, compare=False)
    fixed_inner_shapes: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Once for all requests: a signature may have thousands of inputs.
        rows, known = self._are_rows, self.graph_rows
        whole = self.mixed_rows or (known is not None and (bool(known.shared) or (known.unequal and not known.proven)))
        all_rows, shapes = rows(self.inputs), {names.shape for names in self.sparse}
        self._set("all_rows", all_rows and not self.mixed_rows)
        self._set("batchable", all_rows and not (whole or self.sparse))
        self._set("has_sparse_rows", bool(shapes) and not whole and rows(self.inputs.keys() - shapes))
        self._set("shared", self._shared_inputs())
        self._set("shares_calls", self.batchable or bool(self.shared) or self.has_sparse_rows)
        self._set("answers_rows", self.all_rows or bool(self.shared))
        inner = [spec.shape is not None and None not in spec.shape[1:] for spec in self.inputs.values()]
        self._set("fixed_inner_shapes", all(inner))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # as the dataclass itself, which is frozen, sets its fields

    def _shared_inputs(self) -> frozenset[str]:
        known = self.graph_rows
        if known is None or not (known.shared and known.proven) or self.mixed_rows or self.ragged or self.sparse:
            return frozenset()
        shared = known.shared & self.inputs.keys()
        return shared if self._are_rows(self.inputs.keys() - shared) and not self.ragged_outputs else frozenset()

    def why_alone(self, outputs: Collection[str] = ()) -> str:
        """The reason why a request for these outputs (none: all) runs alone; empty if it shares calls."""
        return next((self.alone[name] for name in outputs or self.outputs if name in self.alone), "")

    def _are_rows(self, inputs: Collection[str]) -> bool:
        """Whether these inputs, at least one, and all outputs have a free first dimension."""
        return (
            bool(inputs)
            and all(has_rows(self.inputs[name].shape) for name in inputs)
            and all(spec.shape is None or has_rows(spec.shape) for spec in self.outputs.values())
        )

    @property
    def rows_may_differ(self) -> bool:
        """Whether inputs may have different numbers of rows: a request with different numbers is a whole."""
        return self.graph_rows is not None and self.graph_rows.unequal

    def expected(self, sent: Container[str]) -> Mapping[str, TensorSpec]:
        """The inputs that a request with the inputs `sent` must have: all but the optional ones that it leaves out."""
        if not self.masks and not self.defaults:
            return self.inputs
        return {name: spec for name, spec in self.inputs.items() if name in sent or not self.optional(name)}

    def optional(self, name: str) -> bool:
        """Whether callers may leave this input out."""
        return name in self.masks or name in self.defaults

    def unnamed(self) -> Mapping[str, TensorSpec]:
        """The inputs that a value without a name may be for: the required ones, or all if none is."""
        return self.expected(()) or self.inputs


#: Bytes of a string object beside its content; and the number of strings that are counted, the rest is estimated
#: (chosen: 50 us).
_STRING_BYTES, _STRINGS_COUNTED = 33, 1024


def tensor_bytes(inputs: Mapping[str, Array]) -> int:
    """The bytes of tensors, and of the strings in them."""
    size = 0
    for array in inputs.values():  # runs for each request: a comprehension would take twice as long
        size += array.nbytes
        if array.dtype.hasobject:
            size += _string_bytes(array)
    return size


def _string_bytes(array: Array) -> int:
    counted = array.flat[:_STRINGS_COUNTED].tolist()
    size = sum(map(len, counted)) + _STRING_BYTES * len(counted)
    return size * array.size // max(1, len(counted))


@dataclass(slots=True)
class InferenceRequest:
    """One request, as a protocol parsed it.

    `inputs`: by name, arrays of shape `[rows, ...]` with the signature's dtypes.
    `outputs` are the names wanted, empty for all.
    `deadline_s` is absolute on the event loop's monotonic clock, in seconds.
    `priority` is 1 for the highest, 0 for the default, -1 for work in bulk.
    `caller` names its sender, for fairness among callers; empty where callers are not distinguished.
    """

    inputs: dict[str, Array]
    signature: str = DEFAULT_SIGNATURE
    outputs: tuple[str, ...] = ()
    deadline_s: float = inf
    priority: int = 0
    caller: str = ""


class StepTiming(NamedTuple):
    """The seconds that a step of a pipeline waited and was computed; `rows` is the size of its batch without padding.

    ended_s: seconds from the arrival of its request at the pipeline until its answer.
    """

    name: str
    queue_s: float
    compute_s: float
    rows: int
    ended_s: float = 0.0


class BatchTiming(NamedTuple):
    """The seconds that a request waited and was computed; `rows` is the size of its batch without padding.

    steps: of a pipeline, in their order; `compute_s` is then that of the longest way through them.
    """

    queue_s: float = 0.0
    compute_s: float = 0.0
    rows: int = 0
    steps: tuple[StepTiming, ...] = ()


NO_TIME = BatchTiming()


@dataclass(slots=True)
class InferenceResponse:
    """The rows of one request, by output name, and the model and version that computed them."""

    outputs: dict[str, Array]
    model: str
    version: int
    signature: str
    timing: BatchTiming = NO_TIME
