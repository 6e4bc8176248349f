"""Lists of nodes, of a graph or of a function, in an order in which a node comes after its operands.

Only nodes that a result needs by its value are kept: control edges order writes, and change no value of a graph that
writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from app.runtimes.tensorflow.graph_nodes import data_inputs
from app.runtimes.tensorflow.operation_results import first_result
from app.runtimes.tensorflow.private_api import operation_definition
from app.runtimes.tensorflow.row_proof.control_frames import FrameLoop, Frames, has_frames

#: A result of a node: the place of the node in the body, and the number of the result.
Ref = tuple[int, int]


class Step(NamedTuple):
    """A node, the place of its results, and its operands. node: None for an argument of the body."""

    place: int
    node: Any
    reads: tuple[Ref, ...]


class Body(NamedTuple):
    """The steps of a graph or a function.

    arguments: the places of the arguments in the list of results. size: the length of that list.
    """

    name: str
    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[Ref, ...]
    size: int


class NotReadable(Exception):
    """The nodes have a form that is not followed."""


def function_body(function: Any) -> Body:
    """The body of a FunctionDef; its arguments and results in the order of its signature."""
    signature = function.signature
    arguments = [argument.name for argument in signature.input_arg]
    results = [function.ret[result.name] for result in signature.output_arg]
    return _Reader(signature.name, function.node_def, arguments).body(results)


def graph_body(nodes: Sequence[Any], arguments: Iterable[str], results: Iterable[str]) -> Body:
    """The body of a graph from the tensors `arguments` to the tensors `results`, such as 'x:0'."""
    return _Reader("", nodes, list(arguments)).body(list(results))


class _Reader:
    """The maker of bodies of a list of nodes.

    Places: first the arguments, then the nodes, then the loops of control_frames.py.
    """

    def __init__(self, name: str, nodes: Sequence[Any], arguments: Sequence[str]) -> None:
        self._name = name
        self._nodes = nodes
        self._arguments = len(arguments)
        bare = [text.removesuffix(":0") for text in arguments]
        self._given = {text: place for place, each in enumerate(bare) for text in (each, f"{each}:0")}
        self._place_of = {node.name: self._arguments + place for place, node in enumerate(nodes)}
        try:
            self._frames = Frames(nodes) if has_frames(nodes) else None
        except (KeyError, ValueError) as error:
            raise NotReadable(f"its loops are not those of while_loop: {error}") from error
        self._loops = list(dict.fromkeys(self._frames.loops.values())) if self._frames else []

    def _ref(self, text: str) -> Ref:
        """The place of a tensor: an argument, 'node' or 'node:1' of a graph, 'node:result:1' of a function."""
        place = self._given.get(text)
        if place is not None:
            return place, 0
        name, _, rest = text.partition(":")
        result, _, number = rest.partition(":")
        place = self._place_of[name]
        if not result or result.isdecimal():
            return place, int(result or 0)
        return place, _result_number(self._nodes[place - self._arguments], result, int(number or 0))

    def body(self, results: Sequence[str]) -> Body:
        return self._ordered(results, range(self._arguments), {})

    def _ordered(self, results: Sequence[str], arguments: range, instead: Mapping[int, int]) -> Body:
        """The steps to the results. `instead`: places of arguments that replace places of nodes."""
        read = self._ref if self._frames is None else lambda text: self._through(text, instead)
        found = [read(text) for text in results]
        steps: list[Step] = []
        reads: dict[int, tuple[Ref, ...]] = {}
        done = set(arguments)
        waiting = [place for place, _ in reversed(found)]
        while waiting:
            place = waiting.pop()
            if place in done:
                continue
            node = self._node(place)
            if place in reads:  # for the second time: its operands are done, or wait for it in a circle
                if any(giver not in done for giver, _ in reads[place]):
                    raise NotReadable(f"node {node.name!r} is part of a circle")
            else:
                reads[place] = tuple([read(text) for text in self._inputs(node)])
                missing = [giver for giver, _ in reads[place] if giver not in done]
                if missing:
                    waiting.append(place)
                    waiting += missing
                    continue
            done.add(place)
            steps.append(Step(place, node, reads[place]))
        size = max(arguments.stop, self._arguments + len(self._nodes) + len(self._loops))
        return Body(self._name, tuple(arguments), tuple(steps), tuple(found), size)

    def _node(self, place: int) -> Any:
        number = place - self._arguments
        if not 0 <= number < len(self._nodes) + len(self._loops):
            raise NotReadable("a loop reads what lies outside of it")
        return self._nodes[number] if number < len(self._nodes) else self._made(self._loops[number - len(self._nodes)])

    def _inputs(self, node: Any) -> Iterable[str]:
        if isinstance(node, FrameLoop):
            return node.reads
        if self._frames is None or node.op != "Merge":
            return data_inputs(node)
        try:
            return [*data_inputs(node), *self._frames.conditions_of(node)]
        except ValueError as error:
            raise NotReadable(f"Merge {node.name!r}: {error}") from error

    # --- loops of frames ---

    def _through(self, text: str, instead: Mapping[int, int]) -> Ref:
        """The reference of `_ref`, with loops as steps and the values at the begin of an iteration as arguments."""
        place, number = self._ref(text)
        if place in instead:
            return instead[place], 0
        if place < self._arguments or self._frames is None:
            return place, number
        node = self._nodes[place - self._arguments]
        inner = self._frames.loop_switch_input(node)
        if inner is not None:
            return self._through(inner, instead)
        loop = self._frames.loops.get(node.name)
        if loop is not None:
            return self._arguments + len(self._nodes) + self._loops.index(loop), loop.exits[node.name]
        return place, number

    def _made(self, loop: FrameLoop) -> FrameLoop:
        """The loop with its condition and body."""
        if loop.body is None:
            begin = self._arguments + len(self._nodes) + len(self._loops)
            heads = [self._place_of[node.name] for node in (*loop.merges, *loop.constants)]
            arguments = range(begin, begin + len(heads))
            instead = dict(zip(heads, arguments, strict=True))
            loop.condition = self._ordered([loop.condition_reads], arguments, instead)
            body = self._ordered(loop.next_reads, arguments, instead)
            kept = tuple([(place, 0) for place in arguments[len(loop.merges) :]])
            loop.body = body._replace(results=body.results + kept)
        return loop


def _result_number(node: Any, result: str, number: int) -> int:
    """The number among all results of a node of the `number`th one with the name `result` in its definition."""
    begin = first_result(node, result)
    if begin is not None:
        return begin + number
    if operation_definition(node.op) is None:
        raise NotReadable(f"{node.op} {node.name!r} is not known to TensorFlow")
    raise NotReadable(f"{node.op} {node.name!r} has no result {result!r}")


def by_place(body: Body) -> Mapping[int, Step]:
    """The steps of a body by the place of their results."""
    return {step.place: step for step in body.steps}


def passes_through(body: Body, number: int) -> bool:
    """Whether result `number` of a loop's body is its argument `number`, unchanged."""
    givers = by_place(body)
    place, _ = body.results[number]
    while place in givers and givers[place].node.op in {"Identity", "StopGradient", "PreventGradient"}:
        place, _ = givers[place].reads[0]
    return place == body.arguments[number]
