"""Lists of nodes, of a graph or of a function, in an order in which each comes after those that it reads.

Only nodes that a result needs by its value are kept: control edges order what is written, and change no value of a
graph that writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from app.runtimes.tensorflow.private_api import operation_definition

#: One result of a node: the place of the node in the body, and the number of the result.
Ref = tuple[int, int]


class Step(NamedTuple):
    """A node, where its results are kept, and what it reads. node: None for an argument of the body."""

    place: int
    node: Any
    reads: tuple[Ref, ...]


class Body(NamedTuple):
    """arguments: the places of the arguments in the list of results. size: how long that list is."""

    name: str
    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[Ref, ...]
    size: int


class NotReadable(Exception):
    """The nodes have a form that is not followed."""


def function_body(function: Any) -> Body:
    """The body of a FunctionDef; its arguments and results in the order of its signature."""
    arguments = [argument.name for argument in function.signature.input_arg]
    nodes = function.node_def
    place_of = {name: place for place, name in enumerate(arguments)}
    place_of.update((node.name, len(arguments) + place) for place, node in enumerate(nodes))

    def ref(text: str) -> Ref:
        name, _, result = text.partition(":")
        place = place_of[name]
        if place < len(arguments):
            return place, 0
        result, _, number = result.partition(":")
        return place, _result_number(nodes[place - len(arguments)], result, int(number or 0))

    results = [ref(function.ret[result.name]) for result in function.signature.output_arg]
    return _ordered(function.signature.name, nodes, ref, results, range(len(arguments)))


def graph_body(nodes: Sequence[Any], arguments: Iterable[str], results: Iterable[str], name: str = "") -> Body:
    """The body of a graph from the tensors `arguments` to the tensors `results`, such as 'x:0'."""
    names = list(arguments)
    place_of = {node.name: len(names) + place for place, node in enumerate(nodes)}
    fed = {text: (place, 0) for place, text in enumerate(names)}
    fed.update([(text.removesuffix(":0"), ref) for text, ref in fed.items()])

    def ref(text: str) -> Ref:
        found = fed.get(text)
        if found is not None:
            return found
        giver, colon, number = text.partition(":")
        return place_of[giver], int(number) if colon else 0

    return _ordered(name, nodes, ref, [ref(text) for text in results], range(len(names)))


def _ordered(name: str, nodes: Sequence[Any], ref: Any, results: list[Ref], arguments: range) -> Body:
    first = len(arguments)
    steps: list[Step] = []
    reads: dict[int, tuple[Ref, ...]] = {}
    done: set[int] = set(arguments)
    waiting = [place for place, _ in reversed(results)]
    while waiting:
        place = waiting.pop()
        if place in done:
            continue
        node = nodes[place - first]
        if place in reads:  # for the second time: all that it reads is done, or waits for it in turn
            if any([giver not in done for giver, _ in reads[place]]):
                raise NotReadable(f"node {node.name!r} is part of a circle")
        else:
            reads[place] = tuple([ref(text) for text in node.input if text[0] != "^"])
            missing = [giver for giver, _ in reads[place] if giver not in done]
            if missing:
                waiting.append(place)
                waiting += missing
                continue
        done.add(place)
        steps.append(Step(place, node, reads[place]))
    return Body(name, tuple(arguments), tuple(steps), tuple(results), first + len(nodes))


def _result_number(node: Any, result: str, number: int) -> int:
    """The number among all results of a node of the `number`th of those that its definition calls `result`."""
    begin = 0
    for name, count_of, types_of in _results_of(node.op):
        if name == result:
            return begin + number
        begin += node.attr[count_of].i if count_of else len(node.attr[types_of].list.type) if types_of else 1
    if not _results_of(node.op):  # a function that is called by its name: each result is one
        raise NotReadable(f"{node.op} {node.name!r} is not known to TensorFlow")
    raise NotReadable(f"{node.op} {node.name!r} has no result {result!r}")


@cache
def _results_of(operation: str) -> tuple[tuple[str, str, str], ...]:
    definition = operation_definition(operation)
    if definition is None:
        return ()
    return tuple((each.name, each.number_attr, each.type_list_attr) for each in definition.output_arg)


def passes_through(body: Body, number: int) -> bool:
    """Whether result `number` of a loop's body is its argument `number` as it was."""
    givers: Mapping[int, Step] = {step.place: step for step in body.steps}
    place, _ = body.results[number]
    while place in givers and givers[place].node.op in {"Identity", "StopGradient", "PreventGradient"}:
        place, _ = givers[place].reads[0]
    return place == body.arguments[number]
