"""The flow of values through a graph: the inputs that steer its time or memory, and the nodes that may reject values.

A model may count a loop by an input, or make a tensor with as many rows as the value of an input. Such an input must
not be tried with the greatest whole number. The values of operands steer an operation that is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app.runtimes.tensorflow.execution.operations import ACCEPT_ANY_VALUE, READ_SHAPES, accepts_any_value
from app.runtimes.tensorflow.graph_nodes import (
    BRANCHES,
    CALLS,
    LOOPS,
    branches,
    data_inputs,
    functions_of,
    names,
    node_of,
)

# The operand that decides the size of the result; the others do not matter.
_SIZE_OPERAND = {
    "BroadcastTo": 1, "Fill": 0, "LinSpace": 2, "MirrorPad": 1, "OneHot": 1, "Pad": 1, "PadV2": 1, "ResizeBicubic": 1,
    "ResizeBilinear": 1, "ResizeNearestNeighbor": 1, "ScatterNd": 2, "SpaceToBatchND": 1, "SparseToDense": 1,
    "TensorListReserve": 1, "Tile": 1, "TopKV2": 1, "UnsortedSegmentMax": 2, "UnsortedSegmentMean": 2,
    "UnsortedSegmentMin": 2, "UnsortedSegmentProd": 2, "UnsortedSegmentSum": 2,
}  # fmt: skip

# Their results are not larger than their operands, whatever the values are; some reject values.
_BOUNDED = names("""
    _Arg _Retval Angle Assert AsString AudioSpectrogram BitwiseAnd BitwiseOr BitwiseXor Bucketize CheckNumerics
    Complex ComplexAbs Conj DecodeBase64 DecodeBmp DecodeImage DecodeJpeg DecodePng DecodeRaw Digamma Div
    DynamicPartition DynamicStitch EncodeBase64 Erfinv FFT FloorDiv FloorMod Gather GatherNd GatherV2 HSVToRGB IFFT
    Imag InTopK InTopKV2 Inv InvertPermutation IRFFT L2Loss Lgamma LookupTableFindV2 LookupTableSizeV2
    MatrixBandPart MatrixDiagPart Mod Ndtri NextAfter NonMaxSuppressionV3 ParseExample ParseExampleV2
    ParseSingleExample Placeholder Pow ReadVariableOp Real RegexFullMatch RegexReplace ResourceGather
    ResourceGatherNd ReverseSequence RFFT RGBToHSV Roll Slice SparseSoftmax StaticRegexFullMatch StaticRegexReplace
    StridedSlice StringJoin StringLength StringLower StringSplitV2 StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr TensorListFromTensor
    TensorListGather TensorListGetItem TensorListLength TensorListSetItem TensorListStack TensorScatterAdd
    TensorScatterMax TensorScatterMin TensorScatterUpdate Timestamp TruncateDiv TruncateMod UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeScript UnicodeTranscode Unique UniqueV2 Where
""")


def steering_inputs(graph: Any, inputs: Iterable[str]) -> frozenset[str]:
    """The placeholders among `inputs` of a GraphDef whose values may steer the time or memory of a call."""
    flow = _Flow(graph)
    return frozenset(name for name in inputs if flow.steers(graph.node, {name}))


def rejecting_nodes(graph: Any, inputs: Iterable[str]) -> list[str]:
    """The nodes of an inlined GraphDef that may reject a value that depends on the nodes `inputs`.

    An operation is taken to reject values unless it is known to accept all.
    """
    varying = set(inputs)
    _Flow(graph).steers(graph.node, varying)
    return [
        node.name
        for node in graph.node
        if (varies := [node_of(giver) in varying for giver in data_inputs(node)])
        and any(varies)
        and not accepts_any_value(node, varies)
    ]


class _Flow:
    """The flow of values through the functions of one graph."""

    def __init__(self, graph: Any) -> None:
        self._functions = functions_of(graph)
        self._known: dict[tuple[str, tuple[bool, ...]], tuple[tuple[bool, ...], bool]] = {}

    def steers(self, nodes: Sequence[Any], varying: set[str]) -> bool:
        """Adds the nodes that depend on the values of the nodes `varying` to that set. Returns whether one steers."""
        steers = False
        before = -1
        while len(varying) > before:  # again, because a node may come before a node that it depends on
            before = len(varying)
            for node in nodes:
                varies = [node_of(name) in varying for name in data_inputs(node)]
                if any(varies):
                    result, steered = self._node(node, varies)
                    steers |= steered
                    if result:
                        varying.add(node.name)
        return steers

    def _node(self, node: Any, varies: list[bool]) -> tuple[bool, bool]:
        """Whether its result depends on the operands that vary, and whether these steer it."""
        if node.op in READ_SHAPES:
            return False, False
        if node.op in LOOPS:
            return self._loop(node.attr["cond"].func.name, node.attr["body"].func.name, varies)
        if node.op in BRANCHES:
            outcomes = [self._call(branch, varies[1:]) for branch in branches(node)]
            return True, any(steers for _, steers in outcomes)
        called = node.attr["f"].func.name if node.op in CALLS else node.op
        if called in self._functions:
            results, steers = self._call(called, varies)
            return any(results), steers
        if node.op in _SIZE_OPERAND:
            return True, varies[_SIZE_OPERAND[node.op]]
        return True, node.op not in ACCEPT_ANY_VALUE and node.op not in _BOUNDED

    def _loop(self, condition: str, body: str, varies: list[bool]) -> tuple[bool, bool]:
        """A loop steers if its condition depends on a value that varies, in the first iteration or a later one."""
        steers = False
        while True:
            results, steered = self._call(body, varies)
            steers |= steered
            after = [one or other for one, other in zip(varies, results, strict=True)]
            if after == varies:
                break
            varies = after
        decided, steered = self._call(condition, varies)
        return True, steers or steered or any(decided)

    def _call(self, name: str, varies: Sequence[bool]) -> tuple[tuple[bool, ...], bool]:
        """A mask of the function's results that depend on the arguments that vary, and whether these steer it."""
        key = name, tuple(varies)
        if key not in self._known:
            self._known[key] = (True,) * len(varies), True  # a function that calls itself
            function = self._functions.get(name)
            if function is not None:
                arguments = [argument.name for argument in function.signature.input_arg]
                varying = {argument for argument, each in zip(arguments, varies, strict=True) if each}
                steers = self.steers(function.node_def, varying)
                results = [function.ret[result.name] for result in function.signature.output_arg]
                self._known[key] = tuple(node_of(result) in varying for result in results), steers
        return self._known[key]
