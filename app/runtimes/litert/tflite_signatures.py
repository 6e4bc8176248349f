"""The signatures of a TFLite file: names, types and shapes, and how rows of requests become calls.

Rules
- SignatureDefs keep their names. A file without any has `serving_default`, with the names of its tensors, as
  TensorFlow Serving has; the only signature of a file answers as `serving_default`, too, for the same reason.
- Most files have a first dimension of 1 in all inputs and outputs: a row. Callers see it as a free one. Each row is
  then a call of its own with the shape of the file (`TFLiteFunction.by_row`), so that rows cannot see each other.
- Else a first dimension is free only if the file says so, and requests share a call only if calls prove that they may
  (app/loading/rows).
- State: variables (VAR_HANDLE) and the memory of SVDF keep their values between calls, so such a signature writes. The
  memory of the fused RNNs does not: the converter makes them from layers that begin each call with zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import ml_dtypes
import numpy as np

from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import DEFAULT_SIGNATURE, STRING, ModelSignature, TensorSpec
from app.runtimes.litert.tflite_file import TFLiteFile, TFLiteFileError, TFLiteGraph, TFLiteSignature, TFLiteTensor

#: The types of tensors, by the schema's numbers. Others (resources, int4, ...) are no inputs and outputs.
_DTYPES: Mapping[int, np.dtype[Any]] = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float16),
    2: np.dtype(np.int32),
    3: np.dtype(np.uint8),
    4: np.dtype(np.int64),
    5: STRING,
    6: np.dtype(np.bool_),
    7: np.dtype(np.int16),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int8),
    10: np.dtype(np.float64),
    11: np.dtype(np.complex128),
    12: np.dtype(np.uint64),
    15: np.dtype(np.uint32),
    16: np.dtype(np.uint16),
    18: np.dtype(ml_dtypes.bfloat16),
}

# Numbers of operations in the schema.
_WRITES = {144: "ASSIGN_VARIABLE", 27: "SVDF"}
_RANDOM = {146: "RANDOM_STANDARD_NORMAL", 148: "RANDOM_UNIFORM", 149: "MULTINOMIAL", 204: "STABLEHLO_RNG_BIT_GENERATOR"}
_LOOPS = frozenset({119, 199})  # WHILE, STABLEHLO_WHILE
_FUSED_RNNS = frozenset({16, 24, 35, 44, 46, 52})  # LSTM, RNN, and those of sequences

#: The beginning of the names of TensorFlow's own operations among the custom ones.
_FLEX = "Flex"


@dataclass(frozen=True, slots=True)
class TFLiteFunction:
    """One signature.

    key: its name in the file; None for the tensors of a file without signatures.
    inputs, outputs: numbers of tensors, by name.
    by_row: each row is a call of its own.
    """

    signature: ModelSignature
    key: str | None
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    by_row: bool

    @property
    def has_free_rows(self) -> bool:
        """Whether a call may have any number of rows."""
        return self.signature.all_rows and not self.by_row


@dataclass(frozen=True, slots=True)
class TFLiteFunctions:
    """The functions of a file, by the names of their signatures.

    is_stateful: calls change variables.
    forgets: variables are reset after each call.
    """

    by_name: Mapping[str, TFLiteFunction]
    is_stateful: bool
    forgets: bool

    @property
    def signatures(self) -> dict[str, ModelSignature]:
        return {name: function.signature for name, function in self.by_name.items()}


def functions_of(file: TFLiteFile, content: bytes) -> TFLiteFunctions:
    """The functions of a file. Raises TFLiteFileError: LiteRT cannot execute it, or its tensors are no arrays."""
    if flex := sorted({each.custom for each in file.operations if each.custom.startswith(_FLEX)}):
        raise TFLiteFileError(
            f"it needs operations of TensorFlow that LiteRT does not have ({', '.join(flex)}): convert it without "
            "SELECT_TF_OPS, or serve the SavedModel that it was made from"
        )
    codes = {each.code for each in file.operations}
    facts = _Facts(
        writes=tuple(name for code, name in _WRITES.items() if code in codes),
        draws=tuple(name for code, name in _RANDOM.items() if code in codes),
        loops=not _LOOPS.isdisjoint(codes),
        fingerprint=f"tflite {sha256(content).hexdigest()}",
    )
    made = list(_functions(file, facts))
    by_name = {function.signature.name: function for function in made}
    if len(made) == 1 and DEFAULT_SIGNATURE not in by_name:
        by_name[DEFAULT_SIGNATURE] = replace(made[0], signature=replace(made[0].signature, name=DEFAULT_SIGNATURE))
    return TFLiteFunctions(by_name, bool(facts.writes), not _FUSED_RNNS.isdisjoint(codes) and not facts.writes)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the operations of a file say of all its signatures; as the fields of ModelSignature."""

    writes: tuple[str, ...]
    draws: tuple[str, ...]
    loops: bool
    fingerprint: str


def _functions(file: TFLiteFile, facts: _Facts) -> Iterable[TFLiteFunction]:
    if not file.signatures:
        graph = file.graphs[0]
        inputs, outputs = _by_tensor_name(graph, graph.inputs), _by_tensor_name(graph, graph.outputs)
        yield _function(graph, TFLiteSignature("", inputs, outputs, 0), facts)
    for each in file.signatures:
        yield _function(file.graphs[each.graph], each, facts)


def _by_tensor_name(graph: TFLiteGraph, tensors: Sequence[int]) -> dict[str, int]:
    """Tensors by their names; of equal names all but the first get a number."""
    named: dict[str, int] = {}
    for position, tensor in enumerate(tensors):
        name = graph.tensors[tensor].name or f"tensor_{position}"
        unique = name if name not in named else f"{name}_{position}"
        named[unique] = tensor
    return named


def _function(graph: TFLiteGraph, found: TFLiteSignature, facts: _Facts) -> TFLiteFunction:
    inputs, outputs = found.inputs, found.outputs
    by_row = _is_a_row(graph, inputs.values()) and _is_a_row(graph, outputs.values())
    signature = ModelSignature(
        found.key or DEFAULT_SIGNATURE,
        {name: _spec(name, graph.tensors[tensor], free_rows=by_row) for name, tensor in inputs.items()},
        {name: _spec(name, graph.tensors[tensor], free_rows=by_row) for name, tensor in outputs.items()},
        writes=facts.writes,
        draws=facts.draws,
        loops=facts.loops,
        one_rank=True,
        fingerprint=f"{facts.fingerprint} {found.key}",
        weights=facts.fingerprint,
        graph_rows=_rows_alone(inputs, outputs) if by_row else None,
    )
    return TFLiteFunction(signature, found.key or None, inputs, outputs, by_row)


def _is_a_row(graph: TFLiteGraph, tensors: Collection[int]) -> bool:
    """Whether all these tensors, at least one, have a first dimension of 1."""
    shapes = [graph.tensors[tensor].shape for tensor in tensors]
    return bool(shapes) and all(shape and shape[0] == 1 for shape in shapes)


def _rows_alone(inputs: Iterable[str], outputs: Iterable[str]) -> GraphRows:
    """The verdict on rows that are calls of their own."""
    return GraphRows(dict.fromkeys(outputs, OutputRows("proven")), frozenset(inputs))


def _spec(name: str, tensor: TFLiteTensor, *, free_rows: bool) -> TensorSpec:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TFLiteFileError(f"{name!r} has the type {tensor.dtype} of TFLite's schema, which requests cannot carry")
    if tensor.shape is None:
        return TensorSpec(name, dtype, None, tensor.name)
    dimensions = tuple(None if size < 0 else size for size in tensor.shape)
    return TensorSpec(name, dtype, (None, *dimensions[1:]) if free_rows else dimensions, tensor.name)
