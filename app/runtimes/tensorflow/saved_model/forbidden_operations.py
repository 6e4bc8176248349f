"""Operations that reach outside a model: files, connections, Python, the process itself.

Every operation of TensorFlow 2.21 was looked at. One that is not listed computes, or keeps state in memory. Of an
operation of a library the table of libraries says whether it is harmless; of a library that is not in it, none is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from app.runtimes.tensorflow.graph_nodes import names
from app.runtimes.tensorflow.operation_libraries.known_libraries import libraries_of
from app.runtimes.tensorflow.operation_libraries.shared_libraries import LIBRARIES_HERE

_READ_FILES = names("""
    CSVDataset CSVDatasetV2 DTensorRestoreV2 ExperimentalCSVDataset ExperimentalLMDBDataset
    ExperimentalMatchingFilesDataset ExperimentalSqlDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2
    FixedLengthRecordReader FixedLengthRecordReaderV2 GenerateVocabRemapping ImmutableConst InitializeTRTResource
    InitializeTableFromTextFile InitializeTableFromTextFileV2 LMDBDataset LMDBReader ListSnapshotChunksDataset
    LoadAndRemapMatrix LoadDataset MatchingFiles MatchingFilesDataset ReadFile RecordInput Restore RestoreSlice
    RestoreV2 SnapshotChunkDataset SnapshotDatasetReader SnapshotNestedDatasetReader SqlDataset TFRecordDataset
    TFRecordDatasetV2 TFRecordReader TFRecordReaderV2 TextLineDataset TextLineReader TextLineReaderV2
    WholeFileReader WholeFileReaderV2
""")

_WRITE_FILES = names("""
    CacheDataset CacheDatasetV2 CalibrationStatisticsSaver CreateSummaryDbWriter CreateSummaryFileWriter
    DatasetToTFRecord DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary DumpTensor
    ExperimentalDatasetToTFRecord MergeV2Checkpoints Save SaveDataset SaveDatasetV2 SaveSlices SaveV2
    SerializeTRTResource SnapshotDataset SnapshotDatasetV2 WriteFile
""")

_CONNECT = names("""
    BigQueryReader ConfigureDistributedTPU DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3
    DataServiceDatasetV4 DistributedSave FileSystemSetConfiguration GcsConfigureBlockCache GcsConfigureCredentials
    KafkaDataset RegisterDataset RegisterDatasetV2 RemoteCall Rpc RpcCall RpcClient RpcServer RpcServerRegister
    RpcServerStart TryRpc
""")

_READ_FORESTS = names("SimpleMLLoadModelFromPath SimpleMLLoadModelFromPathWithHandle")

_REASONS: Mapping[str, str] = {
    **dict.fromkeys(_READ_FILES, "reads a file that is no asset of the model"),
    **dict.fromkeys(_WRITE_FILES, "writes files"),
    **dict.fromkeys(_CONNECT, "opens connections"),
    **dict.fromkeys(("EagerPyFunc", "PyFunc", "PyFuncStateless"), "calls Python code, which no SavedModel holds"),
    **dict.fromkeys(("XlaCustomCall", "XlaCustomCallV2"), "calls code that the SavedModel does not hold"),
    **dict.fromkeys(_READ_FORESTS, "reads a forest that is no asset of the model"),
    "Abort": "ends the process",
    "DatasetFromGraph": "runs a graph that the SavedModel does not show",
}

#: The number of the operand with the path, for operations that may read files of the model.
PATH_INPUT: Mapping[str, int] = {
    "InitializeTableFromTextFile": 1,
    "InitializeTableFromTextFileV2": 1,
    "ReadFile": 0,
    "Restore": 0,
    "RestoreSlice": 0,
    "RestoreV2": 0,
    "SimpleMLLoadModelFromPath": 0,
    "SimpleMLLoadModelFromPathWithHandle": 1,
    "TextLineDataset": 0,
}

#: Operations that reach outside by the value of an attribute: its name, the condition, and the reason.
_BY_ATTRIBUTE: Mapping[str, tuple[str, Callable[[str], bool], str]] = {
    "PrintV2": ("output_stream", lambda value: value.startswith("file:"), "writes files"),
    "Skipgram": ("filename", bool, "reads files"),
    "FixedUnigramCandidateSampler": ("vocab_file", bool, "reads files"),
    **dict.fromkeys(
        ("DecodeProtoV2", "EncodeProto"),
        (
            "descriptor_source",
            lambda value: not value.startswith(("local://", "bytes://")) and bool(value),
            "reads files",
        ),
    ),
}


def why_forbidden(node: Any) -> str:
    """The effect of a NodeDef outside of the model, as a verb with its object; empty if it has none."""
    if node.op in _BY_ATTRIBUTE:
        attribute, reaches_outside, reason = _BY_ATTRIBUTE[node.op]
        value = node.attr[attribute]
        given_by_the_caller = bool(value.placeholder)  # of the function that the node is in
        return reason if given_by_the_caller or reaches_outside(value.s.decode(errors="replace")) else ""
    return _REASONS.get(node.op) or _why_of_library(node.op)


def _why_of_library(operation: str) -> str:
    """The reason why an operation of a library is forbidden; empty for TensorFlow's own and for harmless ones."""
    if reason := _why_of_known(operation):
        return reason if reason != _HARMLESS else ""
    if operation in LIBRARIES_HERE.operations:
        return "is of a library that Ferry does not know: it may reach outside of the model"
    return ""


_HARMLESS = "harmless"


@cache
def _why_of_known(operation: str) -> str:
    """The reason by the table of libraries, or _HARMLESS; empty for an operation that is not in it."""
    library = next(libraries_of(operation), None)
    if library is None:
        return ""
    return _HARMLESS if library.is_harmless(operation) else f"of {library.package} may reach files or connections"
