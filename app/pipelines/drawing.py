"""Drawings of a compiled pipeline for people: its graph as text, or in Graphviz's DOT. From a Plan to text alone.

The text runs from top to bottom. A node has a row; below it a lane leads down to its last reader. Here `big` reads x
and small, and y is big's where `big` was computed, else small's:

    ○       x
    ├▶●     small = small
    │ │       x ← x
    ●◀┤     big = big
    │ │       x ← x
    │ │       when small.score < 2
    ■◀┘     y ← big.y, else small.y
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from app.core.inference import DEFAULT_SIGNATURE, dtype_name, format_shape
from app.pipelines.plan import INPUT, FoldPlan, Gather, OperationPlan, Plan, StepPlan, Value
from app.pipelines.references import ModelReference, Reference

_INPUT, _STEP, _OUTPUT = "○", "●", "■"

#: The node of a column without a lane.
_FREE = -1

#: The meaning of the signs in a drawing.
LEGEND = f"{_INPUT} input   {_STEP} step = model   {_OUTPUT} output   ← is read from"

#: The sign of a lane that a row reads, by: the lane leads on down; the row's line goes on to the left; to the right.
_JOINTS: Mapping[tuple[bool, bool, bool], str] = {
    (True, False, True): "├",
    (True, True, False): "┤",
    (True, True, True): "┼",
    (False, False, True): "└",
    (False, True, False): "┘",
    (False, True, True): "┴",
}

#: For terminals that know only ASCII: `draw(plan).translate(ASCII)`.
ASCII = str.maketrans("○●■│─├┤┼└┘┴▶◀←", "o*#|-++++++><<") | {ord("←"): "<-", ord("→"): "->"}


class _Flow(NamedTuple):
    """A value that a node reads.

    source: the number of the node that has the value.
    condition: the value is no input, but decides which rows are computed.
    """

    source: int
    value: str
    into: str
    condition: bool = False


class _Node(NamedTuple):
    """A node of the drawing: an input of the pipeline, a step, or an output.

    inputs: lines with the sources of its inputs.
    facts: further lines.
    """

    symbol: str
    title: str
    inputs: Sequence[str] = ()
    facts: Sequence[str] = ()
    flows: Sequence[_Flow] = ()


def draw(plan: Plan) -> str:
    """The graph as lines of text."""
    nodes = _nodes(plan)
    last_reader = {flow.source: reader for reader, node in enumerate(nodes) for flow in node.flows}
    lanes: list[int] = []  # by column, the node whose lane it is
    rows: list[tuple[str, str]] = []
    for number, node in enumerate(nodes):
        # 1. The columns that it reads, and its own: that of a lane that ends here, or one that is free.
        sources = {flow.source for flow in node.flows}
        read = {column for column, source in enumerate(lanes) if source in sources}
        leads_on = {column for column in read if last_reader[lanes[column]] > number}
        own_column = min(read - leads_on, default=[*lanes, _FREE].index(_FREE))

        # 2. Its row.
        rows.append((_rail(lanes, own_column, read, leads_on, node.symbol), node.title))

        # 3. The lanes below it.
        lanes += [_FREE] * (own_column + 1 - len(lanes))
        for column in read - leads_on:
            lanes[column] = _FREE
        lanes[own_column] = number if number in last_reader else _FREE
        bars = "".join("  " if source == _FREE else "│ " for source in lanes)
        rows += [(bars, f"  {line}") for line in (*node.inputs, *node.facts)]
    width = 2 * len(lanes) + 2
    return "\n".join(printable(f"{rail.rstrip():<{width}}{text}") for rail, text in rows)


def _rail(lanes: Sequence[int], own_column: int, read: set[int], leads_on: set[int], symbol: str) -> str:
    """The row of a node: a line from the lanes that it reads to its own column. A column has two letters."""
    first, last = min(read | {own_column}), max(read | {own_column})
    letters = []
    for column in range(max(len(lanes), own_column + 1)):
        if column == own_column:
            letter = symbol
        elif column in read:
            letter = _JOINTS[column in leads_on, column > first, column < last]
        elif column < len(lanes) and lanes[column] != _FREE:
            letter = "│"
        else:
            letter = "─" if first < column < last else " "
        beside = "▶" if column + 1 == own_column else "◀" if column == own_column else "─"
        letters.append(letter + (beside if first <= column < last else " "))
    return "".join(letters)


def describe(plan: Plan) -> str:
    """The inputs and outputs of a pipeline, a line for each, with its type and shape."""
    signature = plan.signature
    width = max(map(len, (*signature.inputs, *signature.outputs)))
    lines = [
        f"{arrow} {spec.name:<{width}}  {dtype_name(spec.dtype)}{format_shape(spec.shape)}"
        for arrow, specs in (("in ", signature.inputs), ("out", signature.outputs))
        for spec in specs.values()
    ]
    kinds = range(plan.kinds if signature.mixed_rows else 0)
    alike = [[name for name, number in plan.kind_of.items() if number == kind] for kind in kinds]
    lines += [f"    {' and '.join(names)} have equally many rows" for names in alike if len(names) > 1]
    return "\n".join(map(printable, lines))


# --- DOT ---


def dot(plans: Mapping[str, Plan]) -> str:
    """All pipelines, by title, as one graph in Graphviz's DOT, a cluster for each."""
    lines = ["digraph pipelines {", "  node [shape=box];"]
    for cluster, (title, plan) in enumerate(plans.items()):
        lines += [f"  subgraph cluster_{cluster} {{", f"    label={_quoted([title])};"]
        lines += [f"    {line}" for line in _dot_lines(f"p{cluster}_", _nodes(plan))]
        lines.append("  }")
    return "\n".join([*lines, "}"])


def _dot_lines(prefix: str, nodes: Sequence[_Node]) -> Iterator[str]:
    for number, node in enumerate(nodes):
        shape = "" if node.symbol == _STEP else ", shape=ellipse"
        title = node.title.partition(" ← ")[0] if node.symbol == _OUTPUT else node.title
        yield f"{prefix}{number} [label={_quoted([title, *node.facts])}{shape}];"
    for number, node in enumerate(nodes):
        for flow in node.flows:
            label = f"when {flow.value}" if flow.condition else f"{flow.value} → {flow.into}"
            style = ", style=dashed" if flow.condition else ""
            yield f"{prefix}{flow.source} -> {prefix}{number} [label={_quoted([label])}{style}];"


def _quoted(lines: Sequence[str]) -> str:
    """A string of DOT; several lines are set flush left."""
    escaped = [printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(f"{line}\\l" for line in escaped) + '"'


# --- nodes ---


def _nodes(plan: Plan) -> list[_Node]:
    """Steps in their order, each input before the first step that reads it, and the outputs at last."""
    nodes: list[_Node] = []
    numbers: dict[Reference, int] = {}  # of nodes, by step, or by input

    def flow(value: Value, into: str, condition: bool = False) -> _Flow:
        place = _place(plan, value)
        if place not in numbers:  # an input that nothing read before
            numbers[place] = len(nodes)
            nodes.append(_Node(_INPUT, value.name))
        return _Flow(numbers[place], value.name, into, condition)

    for step in plan.steps:
        flows = [flow(value, into) for into, value in _values_read(step)]
        flows += [flow(value, "", condition=True) for value in step.conditional.values()]
        numbers[Reference(step.name, "")] = len(nodes)
        nodes.append(_step_node(plan, step, flows))
    for name, gather in plan.outputs.items():
        flows = [flow(value, name) for value in gather.values]
        nodes.append(_Node(_OUTPUT, f"{name} ← {_sources_text(plan, gather)}", flows=flows))
    return nodes


def _place(plan: Plan, value: Value) -> Reference:
    return Reference("", value.name) if value.step == INPUT else Reference(plan.steps[value.step].name, "")


def _values_read(step: StepPlan) -> Iterator[tuple[str, Value]]:
    """The values that a step reads, except for its condition's, with the names of their inputs."""
    gathers = [*step.inputs.items()]
    if (fold := step.fold) is not None:
        yield from [(name, value) for name, value in (("children", fold.children), ("types", fold.types)) if value]
        gathers = [(_name_of(key), gather) for key, gather in (fold.start | fold.nodes).items()]
    yield from [(name, value) for name, gather in gathers for value in gather.values]


def _step_node(plan: Plan, step: StepPlan, flows: Sequence[_Flow]) -> _Node:
    if (fold := step.fold) is not None:
        title = f"{step.name} = fold by {_listed(_model(each.model, each.signature) for each in fold.operations)}"
        return _Node(_STEP, title, list(_fold_inputs(plan, fold)), list(_fold_facts(fold)), flows)
    inputs = [
        f"{name} ← {'each of ' if gather.spread else ''}{_sources_text(plan, gather)}"
        for name, gather in step.inputs.items()
    ]
    return _Node(_STEP, f"{step.name} = {_model(step.models[0], step.signature)}", inputs, list(_facts(step)), flows)


def _facts(step: StepPlan) -> Iterator[str]:
    if step.condition is not None:
        yield f"when {' '.join(step.condition.text.split())}"
    if step.optional:
        yield "optional" + (f", waited for {1000 * step.timeout_s:g} ms at most" if isfinite(step.timeout_s) else "")


def _model(model: ModelReference, signature: str) -> str:
    return str(model) if signature == DEFAULT_SIGNATURE else f"{model} ({signature})"


def _sources_text(plan: Plan, gather: Gather) -> str:
    """The sources of rows as text: `big.y, else small.y, else 0`."""
    names = [str(Reference(_place(plan, value).step, value.name)) for value in gather.values]
    return ", else ".join([*names, *([] if gather.rest is None else [repr(gather.rest)])])


# --- folds ---


def _fold_facts(fold: FoldPlan) -> Iterator[str]:
    for key, (shape, dtype) in fold.arrays.items():
        if key.startswith("state "):
            yield f"{_state(key)}: {dtype_name(dtype)}{format_shape(shape)}"
    for number, operation in enumerate(fold.operations):
        if len(fold.operations) > 1:
            yield f"type {number}: {_model(operation.model, operation.signature)}"
        indent = "  " if len(fold.operations) > 1 else ""
        yield from (f"{indent}{line}" for line in _operation_lines(operation))
    if fold.outputs:
        given = [f"{name} of each {'root' if of_roots else 'node'}" for name, (_, of_roots) in fold.outputs.items()]
        yield f"gives {_listed(given)}"


def _operation_lines(operation: OperationPlan) -> Iterator[str]:
    for name, (key, slot) in operation.children.items():
        yield f"{name} ← {_state(key)} of {f'all {operation.slots} slots' if slot is None else f'slot {slot}'}"
    for name, key in operation.nodes.items():
        yield f"{name} ← {_name_of(key)} of the node"
    for key, output in operation.results.items():
        if key.startswith("state "):
            yield f"{output} → {_state(key)}"


def _fold_inputs(plan: Plan, fold: FoldPlan) -> Iterator[str]:
    if fold.children is None:
        yield "a chain: the child of each node is the one before it"
    else:
        shared = ", which nodes may share" if fold.rules.shared else ""
        yield f"children ← {fold.children.name}: {fold.rules.slots} slots for each node{shared}"
    if fold.types is not None:
        yield f"types ← {fold.types.name}: {len(fold.operations)} types of nodes"
    for key, gather in fold.start.items():
        yield f"{_state(key)} of start nodes ← {_sources_text(plan, gather)}"
    for key, gather in fold.nodes.items():
        yield f"{_name_of(key)} of each node ← {_sources_text(plan, gather)}"


def _name_of(key: str) -> str:
    """The name in a key of an arena: 'state h', 'input word'."""
    return key.partition(" ")[2]


def _state(key: str) -> str:
    return f"state {name}" if (name := _name_of(key)) != "state" else name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def printable(text: str) -> str:
    """The text, with codes in place of control characters of terminals."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])
