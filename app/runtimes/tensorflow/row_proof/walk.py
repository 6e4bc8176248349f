"""The walk over a graph and the functions that it calls: from the values of the inputs to those of the outputs.

Rules
- A node is looked at once for each different tuple of arguments of its function.
- An operation without a rule is unknown. Tainted operands taint the result; "mixes" comes before "unknown".
- An operation whose operands are all uniform is uniform, if TensorFlow calls it stateless, or if the table of readers
  lists it: it computes the same from the same.
- Work is bounded: after MAX_STEPS looks at nodes the walk ends with `Exhausted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from app.runtimes.tensorflow.graph_nodes import names
from app.runtimes.tensorflow.private_api import operation_definition
from app.runtimes.tensorflow.row_proof.abstract_values import ListOf, Rows, Sink, Taint, Uniform, Value
from app.runtimes.tensorflow.row_proof.bodies import Body, NotReadable, function_body
from app.runtimes.tensorflow.row_proof.call import RULES, TAKES_ALL, WALKING, Call, Finding
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Shape, Symbols
from app.runtimes.tensorflow.row_proof.origins import Origins

#: The most looks at nodes in one proof. Chosen: some seconds.
MAX_STEPS = 1_000_000

Values = tuple[Value, ...]

# Stateful by name, but they compute the same from the same as long as nothing is written (operations.py tells whether).
_READERS = names("""
    CheckNumerics CheckNumericsV2 DeepCopy DisableCopyOnRead GuaranteeConst HashTable HashTableV2 IsVariableInitialized
    LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTableV2
    MutableHashTableOfTensorsV2 MutableHashTableV2 Placeholder ReadVariableOp ResourceGather ResourceGatherNd
    SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp
    SentencepieceVocabSizeOp WordpieceTokenizeWithOffsets
    SimpleMLInferenceLeafIndexOpWithHandle SimpleMLInferenceOp SimpleMLInferenceOpWithHandle
    SimpleMLLoadModelFromPathWithHandle StatelessRandomGetAlg
    TensorArrayV3 VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2
""")


class Exhausted(Exception):
    """The graph needs more steps than a proof may take."""


class Walk:
    """The walk over one graph with its functions.

    Attributes:
        makers: by the space of rows with any number of entries, the operation that made it.
    """

    def __init__(
        self, library: Sequence[Any], origins: Origins, variables: Mapping[str, Shape], *, vector_keys: bool
    ) -> None:
        self.symbols = Symbols()
        self.origins = origins
        self._variables = variables
        self._vector_keys = vector_keys
        self.row_loop = False
        self.makers: dict[int, str] = {}
        self._functions = {function.signature.name: function for function in library}
        self._bodies: dict[str, Body] = {}
        self._known: dict[tuple[str, Values], Values] = {}
        self._steps = 0

    def body(self, name: str) -> Body:
        if name not in self._bodies:
            if name not in self._functions:
                raise NotReadable(f"there is no function {name!r}")
            self._bodies[name] = function_body(self._functions[name])
        return self._bodies[name]

    def function(self, name: str, arguments: Values) -> Values:
        """The results of a function of the library for these arguments."""
        # A size or a space without a key belongs to one call: in another call it may be another number.
        key = (name, arguments)
        if key in self._known:
            return self._known[key]
        unique = self.symbols.unique
        found = self.run(self.body(name), arguments)
        if unique == self.symbols.unique:
            self._known[key] = found
        return found

    def run(self, body: Body, arguments: Values) -> Values:
        if len(arguments) != len(body.arguments):
            raise NotReadable(f"{body.name!r} takes {len(body.arguments)} arguments, not {len(arguments)}")
        found: list[Values] = [()] * body.size
        for place, argument in zip(body.arguments, arguments, strict=True):
            found[place] = (argument,)
        self._steps += len(body.steps)
        if self._steps > MAX_STEPS:
            raise Exhausted(f"more than {MAX_STEPS} steps")
        where = readable(body.name)
        for place, node, reads in body.steps:
            found[place] = self._step(node, where, [_result(found, giver, number) for giver, number in reads])
        return tuple([_result(found, place, number) for place, number in body.results])

    def _step(self, node: Any, where: str, operands: list[Value]) -> Values:
        call = Call(node, where, self.symbols, vector_keys=self._vector_keys)
        try:
            results = self._apply(call, operands)
        except Finding as found:
            results = (found.value,)
        except (OverflowError, IndexError, KeyError, TypeError, ValueError) as error:
            results = (Taint("unknown", f"{call.name}: {error}"),)
        for each in results:
            if type(each) is Rows and each.space != ROWS and each.space not in self.makers:
                self.makers[each.space] = call.name
        mark = self.origins.walked if node.op in WALKING else self.origins.mark
        return mark(operands, results)

    def _apply(self, call: Call, operands: list[Value]) -> Values:
        operation = call.node.op
        rule = RULES.get(operation)
        # 1. Calls, branches and loops look at all operands themselves.
        if rule is not None and operation in TAKES_ALL:
            return _tuple(rule(self, call, *operands) if operation in WALKING else rule(call, *operands))
        if operation in self._functions:  # called by its name
            return self.function(operation, tuple(operands))
        uniform, of_row, tainted, listed = True, False, False, False
        for each in operands:
            kind = type(each)
            if kind is Uniform:
                of_row = of_row or each.of_row  # type: ignore[union-attr]  # it is Uniform
            elif kind is not Rows:
                uniform, tainted, listed = False, tainted or kind is Taint, listed or kind is ListOf or kind is Sink
            else:
                uniform = False
        # 2. A tainted operand taints the result.
        if tainted:
            return (_tainted(call, operands),)
        # 3. Uniform operands give uniform results.
        if uniform:
            return self._uniform(call, operands, of_row=of_row)
        # 4. The value of a single row beside that of all rows.
        if of_row and not listed:
            raise call.mixes("combines one row with all rows, in a loop over rows")
        if rule is None:
            raise call.unknown("there is no rule for this operation")
        return _tuple(rule(call, *operands))

    def _uniform(self, call: Call, operands: list[Value], *, of_row: bool) -> Values:
        if call.node.op not in _READERS and not _is_stateless(call.node.op):
            raise call.unknown("it is not known to compute the same each time")
        rule = RULES.get(call.node.op)
        if call.node.op == "Placeholder" and call.node.name in self._variables:
            return (Uniform(self._variables[call.node.name]),)
        results: Values
        if rule is None:
            results = (Uniform(),)
        else:
            try:
                results = _tuple(rule(call, *[Uniform(each.shape, each.ints) for each in operands]))  # type: ignore[union-attr]  # all are
            except (Finding, ValueError, IndexError, TypeError, KeyError, OverflowError):
                results = (Uniform(),)  # its rule does not know its shape
        if not of_row:
            return results
        return tuple([Uniform(each.shape, each.ints, True) if isinstance(each, Uniform) else each for each in results])


def _result(found: list[Values], place: int, number: int) -> Value:
    """The value of one result; a single value of a node counts for all of its results."""
    values = found[place]
    if number < len(values):
        return values[number]
    if len(values) == 1:
        value = values[0]
        if isinstance(value, Taint):
            return value
        if isinstance(value, Uniform):
            return Uniform(None, None, value.of_row)
    return Taint("unknown", "a result is not known")


def _tuple(results: Any) -> Values:
    return tuple(results) if isinstance(results, list | tuple) else (results,)


# Operands that decide the size of a result. If they depend on other rows, the values of a row need not.
_SIZES = {
    "BroadcastTo": {1}, "DenseBincount": {1}, "Fill": {0}, "Pad": {1}, "PadV2": {1}, "RaggedTensorToTensor": {0},
    "Range": {0, 1, 2}, "Reshape": {1}, "ResizeBilinear": {1}, "ScatterNd": {2}, "Slice": {1, 2},
    "SparseReshape": {1, 2}, "RaggedBincount": {2},
    "SparseToDense": {1}, "StridedSlice": {1, 2, 3}, "TensorListReserve": {0, 1}, "Tile": {1}, "TopKV2": {1},
    "SparseSlice": {2, 3, 4}, "SparseFillEmptyRows": {2}, "SparseTensorDenseMatMul": {2}, "SparseReduceSum": {2},
    "UnsortedSegmentSum": {2}, "UnsortedSegmentMax": {2}, "UnsortedSegmentMin": {2}, "UnsortedSegmentProd": {2},
}  # fmt: skip


def _tainted(call: Call, operands: Sequence[Value]) -> Taint:
    """The taint of the result: it mixes if an operand mixes that is more than a size."""
    taints = {place: each for place, each in enumerate(operands) if isinstance(each, Taint)}
    values = taints.keys() - _SIZES.get(call.node.op, set())
    for place in sorted(values):
        if taints[place].verdict == "mixes":
            return taints[place]
    first = next(iter(taints.values()))
    return Taint(
        "unknown",
        first.reason if first.verdict == "unknown" else f"{call.name}: its size depends on all rows: {first.reason}",
    )


@cache
def _is_stateless(operation: str) -> bool:
    definition = operation_definition(operation)
    return (
        definition is not None
        and not definition.is_stateful
        and not any(each.is_ref for each in (*definition.input_arg, *definition.output_arg))
    )


def readable(function: str) -> str:
    """The name of a function without TensorFlow's decoration."""
    name = function.removeprefix("__inference_").removeprefix("__forward_").removeprefix("ferry_")
    return name.rstrip("0123456789_") or name
