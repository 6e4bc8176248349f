"""The nodes of graphs: their operands, and the functions that they call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables of operations."""
    return frozenset(text.split())


#: Operations that pass all operands to the one function of their attribute `f`.
CALLS = names("PartitionedCall StatefulPartitionedCall")

#: Operations that pass all operands but the first to one of their `branches`.
BRANCHES = names("Case If StatelessCase StatelessIf")

#: Operations that pass all operands to their functions `cond` and `body`.
LOOPS = names("StatelessWhile While")


def branches(node: Any) -> Sequence[str]:
    """The names of the functions of one of BRANCHES."""
    if "branches" in node.attr:
        return [each.name for each in node.attr["branches"].list.func]
    return [node.attr[name].func.name for name in ("then_branch", "else_branch")]


def sizes_of(shape: Any) -> tuple[int | None, ...] | None:
    """The sizes of a TensorShapeProto, None for open ones; None for an unknown rank."""
    return None if shape.unknown_rank else tuple([None if each.size < 0 else each.size for each in shape.dim])


def node_of(tensor: str) -> str:
    """'x' for 'x', 'x:1', 'x:output:1' and for '^x', a node to wait for."""
    return tensor.removeprefix("^").partition(":")[0]


def data_inputs(node: Any) -> list[str]:
    """The tensors that a node reads; nodes that it only waits for are left out."""
    return [text for text in node.input if text[0] != "^"]


def called_in(node: Any) -> Iterator[Any]:
    """The functions that a node names in its attributes, as protobufs."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func
        yield from value.list.func


def called_names(node: Any) -> list[str]:
    """The names of the functions that a node may call; its operation may be a function, too."""
    return [node.op, *[each.name for each in called_in(node)]]


def functions_of(graph: Any) -> dict[str, Any]:
    """The FunctionDefs in the library of a GraphDef, by name."""
    return {function.signature.name: function for function in graph.library.function}


def bodies_of(graph: Any) -> list[Any]:
    """The lists of nodes of a GraphDef and of all functions in its library."""
    return [graph.node, *[function.node_def for function in graph.library.function]]


def with_called(nodes: Iterable[Any], graph: Any) -> Iterator[Any]:
    """The nodes, and the nodes of all functions of a GraphDef that they may call; its library may hold others."""
    bodies = {name: function.node_def for name, function in functions_of(graph).items()}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for name in called_names(node):
            waiting += bodies.pop(name, ())  # each function once
