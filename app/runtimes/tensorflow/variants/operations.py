"""What TensorFlow's operations may do that decides how a graph may be executed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

# Called stateful, because they read what others may write, call what may be stateful, or only reject.
_ONLY_READ = """
    Assert Case If LookupTableFindV2 LookupTableSizeV2 Placeholder ReadVariableOp ResourceGather ResourceGatherNd
    StatefulPartitionedCall VarHandleOp VarIsInitializedOp VariableShape While
    _Arg _Retval
"""

# They compute something from any value of their inputs: XLA's kernels and TensorFlow's reject nothing but
# shapes, and shapes are fixed where XLA is used.
_TAKE_ANY_VALUE = """
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
"""

# They take any value to cut, but not any place to cut at: 'a place' are all inputs after the first.
_TAKE_ANY_FIRST_VALUE = frozenset({"Slice", "StridedSlice", "TopKV2"})

# Whole numbers have no answer to a division by 0, nor to a negative power.
_TAKE_ANY_FRACTION = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "Pow", "TruncateDiv", "TruncateMod"})

_LOOK_AT_SHAPES = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "VariableShape", "ZerosLike"})


def operations_with_state(graph: Any) -> list[str]:
    """The operations of a GraphDef and its functions that may write, draw random numbers or look outside, by type."""
    return sorted({node.op for node in _all_nodes(graph) if _has_state(node.op, graph)})


def is_shared(operation: str) -> bool:
    """Is what this operation with state writes or reads kept between calls? Random numbers and files are not: they
    are drawn and read on each device alike."""
    definition = op_def_registry.get(operation)
    if definition is None:
        return True
    arguments = (*definition.input_arg, *definition.output_arg)
    return any(each.is_ref or each.type == tf.resource.as_datatype_enum for each in arguments)


def devices_named(graph: Any) -> set[str]:
    """The devices that nodes of a GraphDef insist on, but for the first CPU, which every machine has."""
    named = {node.device for node in _all_nodes(graph) if node.device}
    return {device for device in named if tf.DeviceSpec.from_string(device).device_type not in {None, "CPU"}}


def rejecting_nodes(graph: Any, inputs: Iterable[str]) -> list[str]:
    """The nodes of an inlined GraphDef that may reject a value which comes from the nodes `inputs`.

    Not those that are known to take any value: an operation that nobody thought of rejects.
    """
    varying = _reached_by_values(graph, frozenset(inputs))
    return [
        node.name
        for node in graph.node
        if (varies := [giver in varying for giver in _givers(node)]) and any(varies) and not _takes_any(node, varies)
    ]


def rounds_to_integers(graph: Any) -> bool:
    """Does an operation turn fractions into whole numbers? What becomes of NaN and of 1e30 is then up to the kernel."""
    return any(
        node.op == "Cast" and _is_floating(node.attr["SrcT"].type) and tf.as_dtype(node.attr["DstT"].type).is_integer
        for node in _all_nodes(graph)
    )


def _reached_by_values(graph: Any, inputs: frozenset[str]) -> set[str]:
    """The nodes whose result depends on the values, not only on the shapes, that `inputs` give."""
    reached = set(inputs)
    before = 0
    while len(reached) > before:  # a second round for nodes that stand before what they take from: loops
        before = len(reached)
        for node in graph.node:
            if node.op not in _LOOK_AT_SHAPES and not reached.isdisjoint(_givers(node)):
                reached.add(node.name)
    return reached


def _givers(node: Any) -> list[str]:
    return [name.partition(":")[0] for name in node.input if not name.startswith("^")]


def _takes_any(node: Any, varies: list[bool]) -> bool:
    if node.op in _TAKE_ANY_FRACTION:
        return _is_floating(node.attr["T"].type)
    if node.op in _TAKE_ANY_FIRST_VALUE:
        return not any(varies[1:])
    return node.op in _TAKE_ANY_VALUE.split()


def _is_floating(dtype: int) -> bool:
    return bool(tf.as_dtype(dtype).is_floating)


def _has_state(operation: str, graph: Any) -> bool:
    definition = op_def_registry.get(operation)
    if definition is None:
        return not any(function.signature.name == operation for function in graph.library.function)
    arguments = (*definition.input_arg, *definition.output_arg)
    return (definition.is_stateful and operation not in _ONLY_READ.split()) or any(each.is_ref for each in arguments)


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
