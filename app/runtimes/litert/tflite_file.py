"""What a `model.tflite` file says of itself, read without LiteRT: tensors, signatures, operations, labels.

The numbers of fields and types are those of TensorFlow Lite's schema (schema.fbs).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from app.model_files import TFLITE_FILE
from app.runtimes.litert.flatbuffer import Flatbuffer, NotAFlatbuffer, Table

#: The identifier of the format, at offset 4.
_IDENTIFIER, _IDENTIFIER_AT, _LEAST_BYTES = b"TFL3", 4, 8

# Numbers of fields.
_OPERATOR_CODES, _SUBGRAPHS, _BUFFERS, _SIGNATURES = 1, 2, 4, 7  # of Model
_OLD_CODE, _CUSTOM_CODE, _CODE = 0, 1, 3  # of OperatorCode
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = 0, 1, 2, 3  # of SubGraph
_SHAPE, _TYPE, _BUFFER, _NAME, _IS_VARIABLE, _FREE_SHAPE, _HAS_RANK = 0, 1, 2, 3, 5, 7, 8  # of Tensor
_OPERATOR_CODE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS = 0, 1, 2  # of Operator
_SIGNATURE_INPUTS, _SIGNATURE_OUTPUTS, _SIGNATURE_KEY, _SIGNATURE_SUBGRAPH = 0, 1, 2, 4  # of SignatureDef
_MAPPED_NAME, _MAPPED_TENSOR = 0, 1  # of TensorMap
_DATA, _DATA_OFFSET, _DATA_SIZE = 0, 1, 2  # of Buffer

#: Operation 32 is the place of all custom operations, 127 the old place of all with larger numbers.
CUSTOM, _LARGER = 32, 127

#: The bytes of a constant that are kept: enough for operands that are numbers, not for weights. Chosen.
_MOST_CONSTANT_BYTES = 64

#: The largest file of labels that is read. Chosen.
_MOST_LABEL_BYTES = 1 << 20


class TFLiteFileError(Exception):
    """The file is no TFLite model, or is cut short; the text says so, with its name."""


@dataclass(frozen=True, slots=True)
class TFLiteTensor:
    """A tensor. `dtype`: the schema's number.

    `shape`: -1 for a free dimension; None for a scalar or an unknown rank, which older files do not tell apart.
    `constant`: its bytes, if it is one.
    """

    name: str
    dtype: int
    shape: tuple[int, ...] | None
    is_variable: bool
    constant: bytes = b""


class TFLiteOperation(NamedTuple):
    """An operation: the schema's number, the name of a custom one, the tensors that it reads, and those that it makes.

    An input of -1 is left out.
    """

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TFLiteGraph:
    """A subgraph. `inputs` and `outputs` are numbers of tensors."""

    tensors: Sequence[TFLiteTensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operations: Sequence[TFLiteOperation]


@dataclass(frozen=True, slots=True)
class TFLiteSignature:
    """A SignatureDef: the tensors of its inputs and outputs, by name, and the number of its subgraph."""

    key: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    graph: int


@dataclass(frozen=True, slots=True)
class TFLiteFile:
    """The content of a file."""

    graphs: Sequence[TFLiteGraph]
    signatures: Sequence[TFLiteSignature]

    @property
    def operations(self) -> Iterator[TFLiteOperation]:
        return (operation for graph in self.graphs for operation in graph.operations)


def missing_part(version: Path) -> str:
    """The part that is missing in the folder of a version, or cut short; empty if it is whole.

    Raises OSError: the file cannot be read.
    """
    file = version / TFLITE_FILE
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        if size < _LEAST_BYTES:
            return _cut_short(size)
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            try:
                _check_buffers(view)
            except NotAFlatbuffer:
                return _cut_short(size)
    return ""


def read_tflite(content: bytes) -> TFLiteFile:
    """The content of a file. Raises TFLiteFileError."""
    try:
        _check_buffers(memoryview(content))
        return _read(Flatbuffer(content).root)
    except (NotAFlatbuffer, IndexError):
        raise TFLiteFileError(_cut_short(len(content))) from None


def labels_of(content: bytes) -> Sequence[str]:
    """The labels in the one text file that the model's metadata pack, as a zip archive behind it; else none."""
    import zipfile  # noqa: PLC0415 - files are looked at in processes that import little

    failures = (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError)
    with suppress(*failures), zipfile.ZipFile(BytesIO(content)) as archive:
        texts = [each for each in archive.infolist() if each.filename.endswith(".txt")]
        if len(texts) == 1 and texts[0].file_size <= _MOST_LABEL_BYTES:
            with archive.open(texts[0]) as text:
                return tuple(text.read(_MOST_LABEL_BYTES).decode().splitlines())
    return ()


def _cut_short(size: int) -> str:
    return f"{TFLITE_FILE}, of {size:,} bytes, is cut short or no TFLite model"


def _check_buffers(view: memoryview) -> None:
    """Raises NotAFlatbuffer unless the file has its identifier, and all its constants lie in it."""
    if view[_IDENTIFIER_AT:_LEAST_BYTES] != _IDENTIFIER:
        raise NotAFlatbuffer
    model = Flatbuffer(view).root
    for buffer in model.tables(_BUFFERS):
        buffer.part(_DATA).release()
        start, size = buffer.number(_DATA_OFFSET, "<Q"), buffer.number(_DATA_SIZE, "<Q")
        if start > 1 and start + size > len(view):
            raise NotAFlatbuffer


def _read(model: Table) -> TFLiteFile:
    codes = [_code(each) for each in model.tables(_OPERATOR_CODES)]
    constants = [each.part(_DATA) for each in model.tables(_BUFFERS)]
    graphs = [_graph(each, codes, constants) for each in model.tables(_SUBGRAPHS)]
    signatures = [_signature(each, graphs) for each in model.tables(_SIGNATURES)]
    if not graphs:
        raise NotAFlatbuffer
    return TFLiteFile(graphs, signatures)


def _code(code: Table) -> tuple[int, str]:
    number = max(code.number(_OLD_CODE, "<b"), code.number(_CODE))
    return number, code.text(_CUSTOM_CODE) if number == CUSTOM else ""


def _graph(graph: Table, codes: Sequence[tuple[int, str]], constants: Sequence[memoryview]) -> TFLiteGraph:
    tensors = [_tensor(each, constants) for each in graph.tables(_TENSORS)]
    inputs, outputs = graph.numbers(_INPUTS), graph.numbers(_OUTPUTS)
    if any(not 0 <= each < len(tensors) for each in (*inputs, *outputs)):
        raise NotAFlatbuffer
    operations = [_operation(each, codes) for each in graph.tables(_OPERATORS)]
    return TFLiteGraph(tensors, inputs, outputs, operations)


def _operation(operation: Table, codes: Sequence[tuple[int, str]]) -> TFLiteOperation:
    code, custom = codes[operation.number(_OPERATOR_CODE, "<I")]
    return TFLiteOperation(code, custom, operation.numbers(_OPERATOR_INPUTS), operation.numbers(_OPERATOR_OUTPUTS))


def _tensor(tensor: Table, constants: Sequence[memoryview]) -> TFLiteTensor:
    shape: tuple[int, ...] | None = tensor.numbers(_FREE_SHAPE) or tensor.numbers(_SHAPE)
    if not (shape or tensor.number(_HAS_RANK, "<?", default=False)):
        shape = None
    is_variable = tensor.number(_IS_VARIABLE, "<?", default=False)
    constant = bytes(constants[tensor.number(_BUFFER, "<I")][:_MOST_CONSTANT_BYTES])
    return TFLiteTensor(tensor.text(_NAME), tensor.number(_TYPE, "<b"), shape, is_variable, constant)


def _signature(signature: Table, graphs: Sequence[TFLiteGraph]) -> TFLiteSignature:
    inputs, outputs = (
        {each.text(_MAPPED_NAME): each.number(_MAPPED_TENSOR, "<I") for each in signature.tables(field)}
        for field in (_SIGNATURE_INPUTS, _SIGNATURE_OUTPUTS)
    )
    graph = signature.number(_SIGNATURE_SUBGRAPH, "<I")
    count = len(graphs[graph].tensors)
    if any(each >= count for each in (*inputs.values(), *outputs.values())):
        raise NotAFlatbuffer
    return TFLiteSignature(signature.text(_SIGNATURE_KEY), inputs, outputs, graph)
