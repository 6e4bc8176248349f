"""A graph with its functions, walked from a tensor forward to the nodes that read it, and back to a node's operands.

A scope is the graph itself or one call of a function; its arguments lie in the scope of the caller. The nodes of a
function are indexed once, however often it is called. An output is named by its node and its number among all outputs
of that node, in graphs and in functions alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.graph_nodes import data_inputs, functions_of, names
from app.runtimes.tensorflow.operation_results import first_result

#: Constants of more elements than this are not read. Chosen: keys of parsed examples and bounds are few.
_MOST_ELEMENTS = 4096

#: The most scopes within scopes, and results that are followed backwards. Chosen: so each walk has an end.
_DEEPEST, _FARTHEST = 24, 64

#: Their first result is their first operand, as far as its constant value goes.
_LOOK_THROUGH = names("""
    Cast DisableCopyOnRead Enter EnsureShape ExpandDims GuaranteeConst Identity IdentityN ReadVariableOp Reshape Squeeze
    StopGradient Switch
""")


class Output(NamedTuple):
    """An output of a node, or an argument of a function (whose number is 0)."""

    node: str
    number: int = 0


class Reader(NamedTuple):
    """A node that reads an output, and the number of the operand."""

    node: Any
    place: int


class IndexedBody:
    """The nodes of a graph or of a function.

    Attributes:
        arguments: the numbers of a function's arguments, by name.
        results: the outputs that a function returns, in its order.
    """

    def __init__(self, nodes: Sequence[Any], arguments: Sequence[str] = (), results: Sequence[str] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.arguments = {name: number for number, name in enumerate(arguments)}
        self.results = [self.output(result) for result in results]

    @cached_property
    def readers(self) -> Mapping[Output, Sequence[Reader]]:
        found: dict[Output, list[Reader]] = {}
        for node in self.nodes.values():
            for place, text in enumerate(data_inputs(node)):
                found.setdefault(self.output(text), []).append(Reader(node, place))
        return found

    @cached_property
    def returned(self) -> Mapping[Output, Sequence[int]]:
        """The numbers of the results that are an output."""
        found: dict[Output, list[int]] = {}
        for number, output in enumerate(self.results):
            found.setdefault(output, []).append(number)
        return found

    @cached_property
    def _read(self) -> Mapping[str, Sequence[Output]]:
        found: dict[str, list[Output]] = {}
        for output in {**self.readers, **self.returned}:
            found.setdefault(output.node, []).append(output)
        return found

    def outputs_of(self, node: str) -> Sequence[Output]:
        """The outputs of a node that nodes read, or that are results."""
        return self._read.get(node, ())

    @cached_property
    def operations(self) -> frozenset[str]:
        return frozenset(node.op for node in self.nodes.values())

    def output(self, text: str) -> Output:
        """'node', 'node:2' in a graph; 'argument', 'node:result:2' in a function."""
        name, *place = text.split(":")
        if len(place) < 2:
            return Output(name, int(place[0]) if place else 0)
        first = first_result(self.nodes[name], place[0]) if name in self.nodes else None
        return Output(name, (first or 0) + int(place[1]))


@dataclass(eq=False)
class Scope:
    """The graph, or one call of a function by `node` in the scope `caller`; `givers` are its arguments there."""

    body: IndexedBody
    name: str = ""
    caller: Scope | None = None
    node: Any = None
    givers: Sequence[Output] = ()
    depth: int = 0

    def giver(self, node: Any, place: int) -> Output | None:
        """The operand of a node of this scope at a place; None if it has none there."""
        operands = data_inputs(node)
        return self.body.output(operands[place]) if place < len(operands) else None

    def outer(self, output: Output) -> tuple[Scope, Output] | None:
        """The source of an argument in the caller's scope; None if the output is no argument."""
        number = self.body.arguments.get(output.node)
        if number is None or self.caller is None or number >= len(self.givers):
            return None
        return self.caller, self.givers[number]


@dataclass(eq=False)
class Graph:
    """A GraphDef with its functions.

    Args:
        shapes: gives the shape of a variable that comes from outside, by the placeholder that holds it.
        keys: gives some keys of a table that comes from outside, by its placeholder and a node that looks up in it.
    """

    definition: Any
    shapes: Callable[[str], Sequence[int] | None] = lambda _: None
    keys: Callable[[str, Any], Sequence[Any]] = lambda *_: ()

    def __post_init__(self) -> None:
        self.top = Scope(IndexedBody(self.definition.node))
        self._functions = functions_of(self.definition)
        self._bodies: dict[str, IndexedBody] = {}

    # --- functions ---

    def body(self, name: str) -> IndexedBody | None:
        if name not in self._bodies and name in self._functions:
            function = self._functions[name]
            self._bodies[name] = IndexedBody(
                function.node_def,
                [each.name for each in function.signature.input_arg],
                [function.ret[each.name] for each in function.signature.output_arg],
            )
        return self._bodies.get(name)

    def call(self, scope: Scope, node: Any, name: str, first: int) -> Scope | None:
        """The call of a function by a node whose operands from `first` on are its arguments."""
        body = self.body(name)
        if body is None or scope.depth >= _DEEPEST:
            return None
        arguments = [scope.body.output(text) for text in data_inputs(node)[first:]]
        return Scope(body, name, scope, node, arguments, scope.depth + 1)

    # --- backwards ---

    def constant(self, scope: Scope, output: Output | None) -> Array | None:
        """The value of an output that is a small constant; None for any other."""
        place = self._source(scope, output)
        node = None if place is None else place[0].body.nodes.get(place[1].node)
        if node is None or node.op != "Const":
            return None
        tensor = node.attr["value"].tensor
        size = int(np.prod([each.size for each in tensor.tensor_shape.dim]))
        return np.asarray(tf.make_ndarray(tensor)) if size <= _MOST_ELEMENTS else None

    def shape(self, scope: Scope, output: Output | None) -> tuple[int, ...] | None:
        """The shape of a constant or a variable; None if it is not known."""
        place = self._source(scope, output)
        if place is None:
            return None
        where, source = place
        node = where.body.nodes.get(source.node)
        if where is self.top and (node is None or node.op == "Placeholder"):
            outside = self.shapes(source.node)
            return None if outside is None else tuple(outside)
        if node is None or node.op not in {"Const", "VarHandleOp", "Variable", "VariableV2"}:
            return None
        shape = node.attr["value"].tensor.tensor_shape if node.op == "Const" else node.attr["shape"].shape
        return None if shape.unknown_rank else tuple(each.size for each in shape.dim)

    def table_keys(self, scope: Scope, reader: Any) -> Sequence[Any]:
        """Some keys of the table that a node looks up in."""
        place = self._source(scope, scope.giver(reader, 0))
        if place is None or place[0] is not self.top:
            return ()
        node = self.top.body.nodes.get(place[1].node)
        if node is None or node.op == "Placeholder":
            return self.keys(place[1].node, reader)
        for node, number in self.top.body.readers.get(place[1], ()):
            if number == 0 and node.op.startswith(("LookupTableImport", "InitializeTable")):
                keys = self.constant(self.top, self.top.giver(node, 1))
                if keys is not None and keys.ndim == 1:
                    return list(keys)
        return ()

    def _source(self, scope: Scope, output: Output | None) -> tuple[Scope, Output] | None:
        """The source of an output, followed back through identities, reshapes and calls."""
        for _ in range(_FARTHEST):
            if output is None:
                return None
            if outer := scope.outer(output):
                scope, output = outer
                continue
            node = scope.body.nodes.get(output.node)
            if node is None or node.op not in _LOOK_THROUGH:
                return scope, output
            output = scope.giver(node, output.number if node.op == "IdentityN" else 0)
        return None
