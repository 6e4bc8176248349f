"""The walk from the inputs of a graph forward, through its functions and loops, which notes demands on their values.

Each output of a node is followed once for each origin of its values, so a walk takes time in proportion to the graph.
An operation that is not listed ends the way: a missing hint costs a proof, never an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.accepted_values.graph_scopes import Graph, Output, Scope
from app.runtimes.tensorflow.accepted_values.parsed_parts import DECODERS
from app.runtimes.tensorflow.accepted_values.value_facts import (
    Comparison,
    Condition,
    Dimensions,
    Facts,
    Track,
    Values,
    turned,
)
from app.runtimes.tensorflow.graph_nodes import BRANCHES, CALLS, LOOPS, branches, names

#: The most outputs that are followed. Chosen: 10^4 nodes take some 10 ms.
_MOST_OUTPUTS = 20_000

#: The most constants of one comparison. Chosen.
_MOST_EQUAL = 16

# Their results hold values of their first operand, and have its shape.
_SAME_SHAPE = names("""
    Cast CheckNumerics CheckNumericsV2 EnsureShape Enter Exit Identity NextIteration PlaceholderWithDefault
    PreventGradient RefEnter RefExit RefIdentity RefNextIteration RefSwitch RegexReplace Snapshot StaticRegexReplace
    StopGradient StringLower StringStrip StringUpper Switch
""")

# Their results hold values of their first operand, in another shape, or some of them.
_SAME_VALUES = names("""
    BatchToSpaceND BroadcastTo ExpandDims Gather GatherNd GatherV2 Max Min RaggedGather Reshape ReverseV2 Slice Squeeze
    Split StridedSlice TensorListFromTensor TensorListGather TensorListGetItem TensorListStack Tile TopKV2
    Transpose Unique UniqueV2 Unpack
""")

# Their results hold values of the operands at these places.
_VALUES_AT: Mapping[str, frozenset[int]] = {
    "Select": frozenset({1, 2}), "SelectV2": frozenset({1, 2}), "SplitV": frozenset({0}),
    "TensorListSetItem": frozenset({2}), "TensorListPushBack": frozenset({1}), "TensorArrayScatterV3": frozenset({2}),
    "TensorArrayWriteV3": frozenset({2, 3}), "TensorArrayReadV3": frozenset({2}), "TensorArrayGatherV3": frozenset({2}),
    "RaggedTensorToVariant": frozenset({1}), "RaggedTensorToTensor": frozenset({1}), "SparseToDense": frozenset({2}),
}  # fmt: skip

_ALL_OPERANDS = names("ConcatV2 Merge Pack ParallelConcat RefMerge")

_COMPARISONS: Mapping[str, Comparison] = {
    "Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">=", "Equal": "==", "NotEqual": "!=",
}  # fmt: skip

_ARITHMETIC = names("Add AddV2 Div FloorDiv Mul RealDiv Sub")

_CONVOLUTIONS = names("Conv2D DepthwiseConv2dNative")

_MATCHES = names("RegexFullMatch StaticRegexFullMatch")

_LOOK_UPS = names("LookupTableFind LookupTableFindV2")


class ValueWalk:
    """A walk over one graph; `run` ends when no output is left to follow."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._waiting: deque[tuple[Scope, Output, Track]] = deque()
        self._seen: set[tuple[str, Output, Any, type[Track]]] = set()
        self._halves: dict[tuple[str, str], Condition] = {}  # the condition of a LogicalOr that came first

    def follow(self, scope: Scope, output: Output, track: Track) -> None:
        """Queues an output, once for the same function, output and origin, in any call."""
        origin: Any = track.notes if isinstance(track, Condition) else track.facts
        key = scope.name, output, origin, type(track)
        if key not in self._seen and len(self._seen) < _MOST_OUTPUTS:
            self._seen.add(key)
            self._waiting.append((scope, output, track))

    def run(self) -> None:
        while self._waiting:
            scope, output, track = self._waiting.popleft()
            self._leave(scope, output, track)
            for node, place in scope.body.readers.get(output, ()):
                self._enter(scope, node, place, track)
                if isinstance(track, Values):
                    self._read_values(scope, node, place, track)
                elif isinstance(track, Dimensions):
                    self._read_shape(scope, node, place, track)
                else:
                    self._read_condition(scope, node, place, track)

    # --- calls ---

    def _enter(self, scope: Scope, node: Any, place: int, track: Track) -> None:
        """Into the functions that a node calls."""
        for name, first in _called(node, self._graph):
            body = self._graph.body(name)
            if body is not None and place >= first and place - first < len(body.arguments):
                inner = self._graph.call(scope, node, name, first)
                if inner is not None:
                    self.follow(inner, Output(list(body.arguments)[place - first]), track)

    def _leave(self, scope: Scope, output: Output, track: Track) -> None:
        """Out of the function, where it returns the output."""
        if scope.caller is not None:
            for number in scope.body.returned.get(output, ()):
                self.follow(scope.caller, Output(scope.node.name, number), track)

    def _on(self, scope: Scope, node: Any, track: Track | None) -> None:
        """Goes on with all outputs of a node."""
        if track is not None:
            for output in scope.body.outputs_of(node.name):
                self.follow(scope, output, track)

    # --- values ---

    def _read_values(self, scope: Scope, node: Any, place: int, track: Values) -> None:
        # 1. An operation that passes values on.
        passed = _passed(node.op, place, track)
        if passed is not None:
            self._note_shape(scope, node, track)
            if node.op == "IdentityN":
                self.follow(scope, Output(node.name, place), passed)
            else:
                self._on(scope, node, passed)
            return

        # 2. The demands of the operation.
        if node.op in DECODERS and place == 0:
            self._decode(scope, node, track.facts)
        elif node.op in _LOOK_UPS and place == 1:
            self._look_up(scope, node, track.facts)
        else:
            self._note_index(scope, node, place, track)
            self._note_operand(scope, node, place, track)

        # 3. The results that follow from them.
        self._on(scope, node, self._made_of(scope, node, place, track))

    def _made_of(self, scope: Scope, node: Any, place: int, track: Values) -> Track | None:
        if node.op in _COMPARISONS:
            return self._compared(scope, node, place, track)
        if node.op == "Shape" and track.same_shape:
            return Dimensions(track.facts)
        if node.op in _MATCHES and place == 0:
            pattern = self._pattern(scope, node)
            return None if pattern is None else Condition(((track.note, "matches", pattern),))
        return self._moved(scope, node, place, track)

    def _look_up(self, scope: Scope, node: Any, facts: Facts) -> None:
        found = Facts(np.dtype(tf.as_dtype(node.attr["Tout"].type).as_numpy_dtype))
        facts.keys += self._graph.table_keys(scope, node)
        facts.looked_up.append(found)
        self._on(scope, node, Values(found, same_shape=False))

    def _compared(self, scope: Scope, node: Any, place: int, track: Values | Dimensions) -> Condition | None:
        constant = self._graph.constant(scope, scope.giver(node, 1 - place))
        if constant is None or not constant.size or constant.dtype == bool:
            return None
        comparison = _COMPARISONS[node.op] if place == 0 else turned(_COMPARISONS[node.op])
        # 1. A whole shape: a comparison for each known size.
        if isinstance(track, Dimensions) and track.axis is None:
            sizes = constant.ravel()
            notes = [
                (Dimensions(track.facts, axis).note, comparison, size) for axis, size in enumerate(sizes) if size >= 0
            ]
            return Condition(tuple(notes))
        # 2. Values: with equality all constants count, with an order the strictest one.
        values = constant.ravel().tolist()
        if comparison in {"==", "!="}:
            return Condition(tuple((track.note, comparison, value) for value in values[:_MOST_EQUAL]))
        if constant.dtype == object:
            return None
        bound = min(values) if comparison.startswith("<") else max(values)
        return Condition(((track.note, comparison, bound),))

    def _moved(self, scope: Scope, node: Any, place: int, track: Values) -> Values | None:
        """The results of arithmetic with a constant."""
        if node.op == "Neg":
            return track.times(-1.0)
        constant = self._graph.constant(scope, scope.giver(node, 1 - place)) if node.op in _ARITHMETIC else None
        if constant is None or constant.size != 1 or constant.dtype == object:
            return None
        value = float(constant.ravel()[0])
        if node.op in {"Add", "AddV2"}:
            return track.plus(value)
        if node.op == "Sub":
            return track.plus(-value) if place == 0 else track.times(-1.0).plus(value)
        divides = node.op != "Mul"
        return track.times(1.0 / value if divides else value) if value and not (divides and place) else None

    def _note_index(self, scope: Scope, node: Any, place: int, track: Values) -> None:
        """Notes that values are indices of an axis of known size."""
        below: float | None = None
        if node.op in {"Gather", "GatherV2", "ResourceGather"} and place == 1:
            axis = self._graph.constant(scope, scope.giver(node, 2)) if node.op == "GatherV2" else None
            shape = self._graph.shape(scope, scope.giver(node, 0))
            number = int(axis.ravel()[0]) if axis is not None else 0
            if shape is not None and -len(shape) <= number < len(shape):
                below = shape[number]
        elif node.op == "OneHot" and place == 0:
            depth = self._graph.constant(scope, scope.giver(node, 1))
            below = float(depth.ravel()[0]) if depth is not None else None
        if below is not None and below > 0:
            one, other = track.undone(0), track.undone(below - 1)
            track.facts.index_below.append(max(one, other) + 1)
            if min(one, other) > 0:
                track.facts.bounds.append((">=", min(one, other)))

    def _pattern(self, scope: Scope, node: Any) -> str | None:
        if node.op == "StaticRegexFullMatch":
            return str(node.attr["pattern"].s.decode("utf-8", "replace"))
        constant = self._graph.constant(scope, scope.giver(node, 1))
        return None if constant is None else constant.ravel()[0].decode("utf-8", "replace")

    # --- shapes ---

    def _note_shape(self, scope: Scope, node: Any, track: Values) -> None:
        """Notes the shape that values, or values decoded of them, are reshaped to."""
        shape: list[int] = []
        if node.op == "EnsureShape" and not node.attr["shape"].shape.unknown_rank:
            shape = [each.size for each in node.attr["shape"].shape.dim]
            if track.same_shape:
                _note_sizes(track.facts, shape)
        elif node.op in {"Reshape", "TensorListStack"}:
            constant = self._graph.constant(scope, scope.giver(node, 1))
            shape = [] if constant is None else [int(each) for each in constant.ravel()]
            if node.op == "Reshape" and track.same_shape and len(shape) == 2 and shape[0] == -1:
                _note_sizes(track.facts, shape)
        if shape:
            track.facts.shapes.append(tuple(shape))

    def _note_operand(self, scope: Scope, node: Any, place: int, track: Values) -> None:
        """Notes sizes that products with constants and variables demand."""
        if not track.same_shape or place != 0:
            return
        shape = self._graph.shape(scope, scope.giver(node, 1))
        if shape is None:
            return
        if node.op == "MatMul" and len(shape) == 2 and not node.attr["transpose_a"].b:
            track.facts.sizes.setdefault(1, shape[1 if node.attr["transpose_b"].b else 0])
        elif node.op in _CONVOLUTIONS and len(shape) == 4 and node.attr["data_format"].s != b"NCHW":
            track.facts.sizes.setdefault(3, shape[2])

    def _read_shape(self, scope: Scope, node: Any, place: int, track: Dimensions) -> None:
        if node.op in _SAME_SHAPE and place == 0:
            self._on(scope, node, track)
        elif node.op == "StridedSlice" and place == 0 and track.axis is None:
            begin = self._graph.constant(scope, scope.giver(node, 1))
            if begin is not None and begin.size == 1 and node.attr["shrink_axis_mask"].i == 1:
                self._on(scope, node, Dimensions(track.facts, int(begin.ravel()[0])))
        elif node.op in _COMPARISONS:
            self._on(scope, node, self._compared(scope, node, place, track))

    # --- conditions ---

    def _read_condition(self, scope: Scope, node: Any, place: int, track: Condition) -> None:
        if node.op in _SAME_SHAPE | {"Reshape", "All", "LogicalAnd"}:
            self._on(scope, node, track)
        elif node.op == "Any" and place == 0:
            self._on(scope, node, track._replace(any_of=True))
        elif node.op == "LogicalOr":
            before = self._halves.setdefault((scope.name, node.name), track)
            other = () if before is track else before.notes
            self._on(scope, node, Condition((*other, *track.notes), any_of=True))
        elif node.op == "LogicalNot":
            self._on(scope, node, track.negated())
        elif node.op == "Assert" and place == 0:
            track.demand()
        elif node.op in {"If", "StatelessIf"} and place == 0:
            demanded = track if self._asserts(node, "else_branch") else None
            if demanded is None and self._asserts(node, "then_branch"):
                demanded = track.negated()
            if demanded is not None:
                demanded.demand()

    def _asserts(self, node: Any, branch: str) -> bool:
        body = self._graph.body(node.attr[branch].func.name)
        return body is not None and "Assert" in body.operations

    # --- decoders ---

    def _decode(self, scope: Scope, node: Any, facts: Facts) -> None:
        def constant(place: int) -> Any:
            return self._graph.constant(scope, scope.giver(node, place))

        found = DECODERS[node.op](node, constant)
        if found is not None:
            decoder, outputs = found
            facts.decoders.append(decoder)
            for number, inner in outputs.items():
                self.follow(scope, Output(node.name, number), Values(inner, same_shape=False))


def _passed(operation: str, place: int, track: Values) -> Values | None:
    """The track of the values that an operation passes on; None if it makes other values."""
    if operation == "IdentityN" or (operation in _SAME_SHAPE and place == 0):
        return track
    some = operation in _ALL_OPERANDS or place in _VALUES_AT.get(operation, ())
    return track._replace(same_shape=False) if some or (operation in _SAME_VALUES and place == 0) else None


def _note_sizes(facts: Facts, shape: list[int]) -> None:
    for axis, size in enumerate(shape[1:], 1):
        if size >= 0:
            facts.sizes.setdefault(axis, size)


def _called(node: Any, graph: Graph) -> Iterator[tuple[str, int]]:
    """The functions that a node calls, and the first of its operands that is an argument."""
    if node.op in CALLS:
        yield node.attr["f"].func.name, 0
    elif node.op in LOOPS:
        yield node.attr["body"].func.name, 0
    elif node.op in BRANCHES:
        yield from ((name, 1) for name in branches(node))
    elif graph.body(node.op) is not None:
        yield node.op, 0
