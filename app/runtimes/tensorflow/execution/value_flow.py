"""Which inputs of a graph decide by their values how long it runs or how much memory it takes.

A model may count a loop by an input, or make a tensor of as many rows as an input says. Such an input must not be tried
with the greatest whole number. An operation that is not listed is taken to be decided by the values of its operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app.runtimes.tensorflow.execution.operations import ACCEPT_ANY_VALUE, READ_SHAPES
from app.runtimes.tensorflow.function_names import names

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_LOOPS = frozenset({"While", "StatelessWhile"})

# The operand that says how large the result is; the others do not matter.
_SIZE_OPERAND = {
    "BroadcastTo": 1, "Fill": 0, "LinSpace": 2, "MirrorPad": 1, "OneHot": 1, "Pad": 1, "PadV2": 1, "ResizeBicubic": 1,
    "ResizeBilinear": 1, "ResizeNearestNeighbor": 1, "ScatterNd": 2, "SpaceToBatchND": 1, "SparseToDense": 1,
    "TensorListReserve": 1, "Tile": 1, "TopKV2": 1, "UnsortedSegmentMax": 2, "UnsortedSegmentMean": 2,
    "UnsortedSegmentMin": 2, "UnsortedSegmentProd": 2, "UnsortedSegmentSum": 2,
}  # fmt: skip

# Their results are not larger than what they are given, whatever the values are; some reject values.
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
    """Those of the placeholders `inputs` of a GraphDef whose values may steer the time or memory that a call takes."""
    flow = _Flow(graph)
    return frozenset(name for name in inputs if flow.steers(graph.node, {name}))


class _Flow:
    def __init__(self, graph: Any) -> None:
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._known: dict[tuple[str, tuple[bool, ...]], tuple[tuple[bool, ...], bool]] = {}

    def steers(self, nodes: Sequence[Any], varying: set[str]) -> bool:
        """Adds the nodes that depend on the values of the nodes `varying` to that set. Does one of them steer?"""
        steers = False
        before = -1
        while len(varying) > before:  # again, because a node may come before a node that it depends on
            before = len(varying)
            for node in nodes:
                varies = [_giver(name) in varying for name in node.input if not name.startswith("^")]
                if any(varies):
                    result, steered = self._node(node, varies)
                    steers |= steered
                    if result:
                        varying.add(node.name)
        return steers

    def _node(self, node: Any, varies: list[bool]) -> tuple[bool, bool]:
        """Does its result depend on the operands that vary, and do these steer it?"""
        if node.op in READ_SHAPES:
            return False, False
        if node.op in _LOOPS:
            return self._loop(node.attr["cond"].func.name, node.attr["body"].func.name, varies)
        if node.op in _BRANCHES:
            attributes = node.attr
            listed = attributes["branches"].list.func or (
                attributes["then_branch"].func,
                attributes["else_branch"].func,
            )
            outcomes = [self._call(branch.name, varies[1:]) for branch in listed]
            return True, any(steers for _, steers in outcomes)
        called = node.attr["f"].func.name if node.op in _CALLS else node.op
        if called in self._functions:
            results, steers = self._call(called, varies)
            return any(results), steers
        if node.op in _SIZE_OPERAND:
            return True, varies[_SIZE_OPERAND[node.op]]
        return True, node.op not in ACCEPT_ANY_VALUE and node.op not in _BOUNDED

    def _loop(self, condition: str, body: str, varies: list[bool]) -> tuple[bool, bool]:
        """A loop steers if its condition depends on a value that varies, at the first turn or a later one."""
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
        """Which results of a function depend on the arguments that vary, and whether these steer it."""
        key = name, tuple(varies)
        if key not in self._known:
            self._known[key] = (True,) * len(varies), True  # a function that calls itself
            function = self._functions.get(name)
            if function is not None:
                arguments = [argument.name for argument in function.signature.input_arg]
                varying = {argument for argument, each in zip(arguments, varies, strict=True) if each}
                steers = self.steers(function.node_def, varying)
                results = [function.ret[result.name] for result in function.signature.output_arg]
                self._known[key] = tuple(_giver(result) in varying for result in results), steers
        return self._known[key]


def _giver(name: str) -> str:
    return name.partition(":")[0]
