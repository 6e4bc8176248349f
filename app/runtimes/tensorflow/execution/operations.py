"""Properties of TensorFlow's operations that decide how a graph may be executed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.graph_nodes import (
    LOOPS,
    bodies_of,
    data_inputs,
    functions_of,
    names,
    node_of,
    with_called,
)
from app.runtimes.tensorflow.private_api import operation_definition

# TensorFlow calls these stateful because they read state, call functions that may be stateful, or only reject.
_READ_ONLY = names("""
    Assert Case If LookupTableFindV2 LookupTableSizeV2 Placeholder ReadVariableOp ResourceGather ResourceGatherNd
    StatefulPartitionedCall VarHandleOp VarIsInitializedOp VariableShape While
    _Arg _Retval
""") | names("""
    SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceStringToIdOp SentencepieceVocabSizeOp
    WordpieceTokenizeWithOffsets
""")  # they read a loaded model or a table (TensorFlow Text: sentencepiece_kernels.cc, wordpiece_kernel.cc)

# These read a model, too, and draw random numbers unless they give the best tokens, which their third operand says.
_TOKENIZERS = names("SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp")
_NUMBER_OF_BEST = 2

# These draw random numbers, and keep nothing between calls but the state of the generator.
_DRAWING = names("""
    AllCandidateSampler CudnnRNN CudnnRNNV2 CudnnRNNV3 FixedUnigramCandidateSampler LearnedUnigramCandidateSampler
    LogUniformCandidateSampler Multinomial NonDeterministicInts ParameterizedTruncatedNormal RandomCrop RandomGamma
    RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt
    SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 Skipgram ThreadUnsafeUnigramCandidateSampler
    TruncatedNormal UniformCandidateSampler
""")

# TensorFlow calls these stateful, too, but a later call sees nothing of them: they make a handle to a resource, read,
# print, tell the time, or keep something for as long as their call takes. JAX exports XlaCallModule.
_KEEP_NOTHING = names("""
    BoostedTreesPredict CheckNumerics CheckNumericsV2 DeepCopy DeviceIndex DisableCopyOnRead DtypeWithDefaultOp Empty
    GuaranteeConst HashTable HashTableV2 IsTensorFloat32Enabled IsVariableInitialized LookupTableExport
    LookupTableExportV2 LookupTableFind LookupTableSize MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable
    MutableHashTableOfTensors MutableHashTableOfTensorsV2 MutableHashTableV2 Print PrintV2 RefEnter RefExit RefIdentity
    RefMerge RefNextIteration RefSelect RefSwitch Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush
    StackPushV2 StackV2 StatelessRandomGetAlg TensorArray TensorArrayClose TensorArrayCloseV3 TensorArrayConcat
    TensorArrayConcatV3 TensorArrayGather TensorArrayGatherV3 TensorArrayPack TensorArrayRead TensorArrayReadV3
    TensorArrayScatter TensorArrayScatterV3 TensorArraySize TensorArraySizeV3 TensorArraySplit TensorArraySplitV3
    TensorArrayUnpack TensorArrayV2 TensorArrayV3 TensorArrayWrite TensorArrayWriteV3 Timestamp Variable VariableV2
    SentencepieceOp XlaCallModule XlaLaunch
""") | names("""
    SimpleMLInferenceOp SimpleMLInferenceOpWithHandle SimpleMLInferenceLeafIndexOpWithHandle
""")  # they read a loaded model (Yggdrasil: ops/inference/kernel.cc)

#: Variables of a session; all nodes that read or assign them use the same memory.
REFERENCE_VARIABLES = frozenset({"TemporaryVariable", "Variable", "VariableV2"})

# These read files, each time that they run.
_READ_FILES = names("""
    FixedLengthRecordDataset FixedLengthRecordDatasetV2 InitializeTableFromTextFile InitializeTableFromTextFileV2
    MatchingFiles ReadFile ReaderRead ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2 Restore RestoreSlice RestoreV2
    TFRecordDataset TFRecordDatasetV2 TextLineDataset WriteFile
""")

# These accept any value of their inputs: the kernels of XLA and of TensorFlow reject only shapes, and shapes are
# fixed where XLA is used.
ACCEPT_ANY_VALUE = names("""
    Abs Acos Acosh Add AddN AddV2 All Any ArgMax ArgMin Asin Asinh Atan Atan2 Atanh AvgPool AvgPool3D
    BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchToSpaceND BiasAdd BiasAddV1 Bitcast BroadcastArgs BroadcastTo
    Cast Ceil ClipByValue ConcatV2 Const Conv2D Conv2DBackpropInput Conv3D Cos Cosh Cumsum DepthToSpace
    DepthwiseConv2dNative DivNoNan Einsum Elu EnsureShape Equal Erf Erfc Exp ExpandDims Expm1 Fill Floor
    FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Greater GreaterEqual Identity IdentityN Inv IsFinite IsInf IsNan
    LeakyRelu Less LessEqual Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul Max MaxPool MaxPool3D
    MaxPoolV2 Maximum Mean Min Minimum MirrorPad Mul MulNoNan Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2
    PreventGradient Prod Rank RealDiv Reciprocal Relu Relu6 Reshape ResizeBilinear ResizeNearestNeighbor ReverseV2
    Rint Round Rsqrt Select SelectV2 Selu Shape ShapeN Sigmoid Sign Sin Sinh Size Snapshot Softmax Softplus Softsign
    SpaceToBatchND SpaceToDepth Split SplitV Sqrt Square SquaredDifference Squeeze StopGradient Sub Sum Tan Tanh
    Tile Transpose Unpack Xdivy Xlog1py Xlogy ZerosLike
""")

# These accept any value in their first input, but not in the others, the places of a cut.
_ACCEPT_ANY_FIRST_VALUE = frozenset({"Slice", "StridedSlice", "TopKV2"})

# These accept any floating-point value, but integers cannot be divided by 0 or raised to a negative power.
_ACCEPT_ANY_FLOAT = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "Pow", "TruncateDiv", "TruncateMod"})

# Their results depend on the shapes of their inputs, not on the values.
READ_SHAPES = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "VariableShape", "ZerosLike"})

_KNOWN = _READ_ONLY | ACCEPT_ANY_VALUE | _ACCEPT_ANY_FIRST_VALUE | _ACCEPT_ANY_FLOAT | {"PartitionedCall"}


def operations_with_state(graph: Any) -> list[str]:
    """The types of operations of a graph, called functions included, that may write, draw random numbers or do I/O."""
    functions = functions_of(graph)
    used = {node.op for node in _all_nodes(graph)} - _TOKENIZERS | _drawing_tokenizers(graph)
    return sorted([each for each in used if _has_state(each, functions)])


def writing_operations(graph: Any) -> list[str]:
    """The `operations_with_state` that write state between calls: variables, tables, queues, files.

    An operation with state counts as writing unless it is known not to.
    """
    return [each for each in operations_with_state(graph) if each not in _DRAWING | _KEEP_NOTHING | _TOKENIZERS]


def drawing_operations(graph: Any) -> list[str]:
    """The types of operations of a graph, called functions included, that draw random numbers."""
    return sorted({node.op for node in _all_nodes(graph)} & _DRAWING | _drawing_tokenizers(graph))


def _drawing_tokenizers(graph: Any) -> set[str]:
    """The tokenizers of a GraphDef whose number of best ones is not known to be 0 or 1."""
    found = set()
    for nodes in bodies_of(graph):
        if drawing := [node for node in nodes if node.op in _TOKENIZERS]:
            constants = {node.name: node for node in nodes if node.op == "Const"}
            found |= {node.op for node in drawing if not _gives_the_best(node, constants)}
    return found


def _gives_the_best(node: Any, constants: Mapping[str, Any]) -> bool:
    best = constants.get(node_of(data_inputs(node)[_NUMBER_OF_BEST]))
    return best is not None and tf.make_ndarray(best.attr["value"].tensor).tolist() in (0, 1)


def has_loops(graph: Any) -> bool:
    return any(node.op in LOOPS or node.op in {"NextIteration", "RefNextIteration"} for node in _all_nodes(graph))


def takes_one_rank(graph: Any) -> bool:
    """Whether an operation counts dimensions by a data format, as those on images do, or reads matrices, as forests do.

    Such kernels do not reject another rank: TensorFlow ends the process (tensor_format.h, tensor.h). BiasAdd's does.
    """
    return any(
        ("data_format" in node.attr and not node.op.startswith("BiasAdd")) or node.op.startswith("SimpleMLInference")
        for node in _all_nodes(graph)
    )


def reads_files(graph: Any) -> bool:
    return any(node.op in _READ_FILES for node in _all_nodes(graph))


def may_have_vector_keys(graph: Any) -> bool:
    """Whether a GraphDef or a function of its library makes a table whose keys may be vectors."""
    return any(node.op.startswith("MutableDenseHashTable") for node in chain.from_iterable(bodies_of(graph)))


def has_references(graph: Any) -> bool:
    """Whether nodes of a GraphDef give references to variables, tables or queues, as TensorFlow 1 did by default."""
    return any(_gives_reference(operation) for operation in {node.op for node in graph.node})


def devices_named(graph: Any) -> set[str]:
    """The devices that nodes of a GraphDef require. CPUs are left out: every machine has one."""
    named = {node.device for node in _all_nodes(graph) if node.device}
    return {device for device in named if tf.DeviceSpec.from_string(device).device_type not in {None, "CPU"}}


def accepts_any_value(node: Any, varies: list[bool]) -> bool:
    """Whether a node is known to accept any value of the operands that vary."""
    if node.op in _ACCEPT_ANY_FLOAT:
        return _is_floating(node.attr["T"].type)
    if node.op in _ACCEPT_ANY_FIRST_VALUE:
        return not any(varies[1:])
    return node.op in ACCEPT_ANY_VALUE


def rounds_to_integers(graph: Any) -> bool:
    """Whether an operation casts floating-point numbers to integers: the results for NaN and 1e30 differ by kernel."""
    return any(
        node.op == "Cast" and _is_floating(node.attr["SrcT"].type) and tf.as_dtype(node.attr["DstT"].type).is_integer
        for node in _all_nodes(graph)
    )


def _is_floating(dtype: int) -> bool:
    return bool(tf.as_dtype(dtype).is_floating)


def _has_state(operation: str, functions: Container[str]) -> bool:
    definition = operation_definition(operation)
    if definition is None:
        return operation not in _KNOWN and operation not in functions
    arguments = (*definition.input_arg, *definition.output_arg)
    return (definition.is_stateful and operation not in _READ_ONLY) or any(each.is_ref for each in arguments)


def _gives_reference(operation: str) -> bool:
    if operation in REFERENCE_VARIABLES:
        return True
    definition = operation_definition(operation)
    return definition is not None and any(each.is_ref for each in definition.output_arg)


def _all_nodes(graph: Any) -> Iterator[Any]:
    return with_called(graph.node, graph)
