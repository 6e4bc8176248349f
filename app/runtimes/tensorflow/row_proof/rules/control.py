"""Calls of functions, and branches."""

from __future__ import annotations

from dataclasses import replace

from app.runtimes.tensorflow.graph_nodes import branches
from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    ListOf,
    Rows,
    Sink,
    Size,
    Taint,
    Uniform,
    Value,
    constant,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.control_frames import FRAME_LOOP
from app.runtimes.tensorflow.row_proof.joins import join
from app.runtimes.tensorflow.row_proof.loops import walk_loop
from app.runtimes.tensorflow.row_proof.walk import Values, Walk


@rule("PartitionedCall StatefulPartitionedCall", walks=True)
def call_function(walk: Walk, call: Call, *operands: Value) -> Results:
    return walk.function(call.attributes["f"].func.name, operands)


@rule("BatchFunction", walks=True)
def batch_function(walk: Walk, call: Call, *operands: Value) -> Results:
    """The operation joins rows of several calls along axis 0, calls its function, and splits the results."""
    for operand in operands[: len(call.attributes["Tin"].list.type)]:
        if not isinstance(operand, Rows):
            raise call.unknown("it batches an operand without rows")
        if operand.axis or not operand.plain:
            raise call.unknown("it batches along axis 0, where its operands have no rows")
    results = walk.function(call.attributes["f"].func.name, operands)
    for result in results:
        if not isinstance(result, Taint) and (not isinstance(result, Rows) or result.axis or not result.plain):
            raise call.unknown("it takes a result apart along axis 0, where that has no rows")
    return results


@rule("If StatelessIf Case StatelessCase", walks=True)
def branch(walk: Walk, call: Call, condition: Value, *operands: Value) -> Results:
    names, known = branches(call.node), constant(condition)
    if isinstance(condition, Uniform) and condition.shape == () and known:
        number = known[0] if call.node.op.endswith("Case") else int(not known[0])
        return walk.function(names[number if 0 <= number < len(names) else -1], operands)
    return _chosen(walk, call, condition, [walk.function(name, operands) for name in names])


def _chosen(walk: Walk, call: Call, condition: Value, outcomes: list[Values]) -> Values:
    """The results of the branch that the condition chooses."""
    if isinstance(condition, Uniform):
        results = outcomes[0]
        for each in outcomes[1:]:
            results = tuple(
                [_joined(walk, call, *pair, of_row=condition.of_row) for pair in zip(results, each, strict=True)]
            )
        return results
    origins = condition.origins
    if isinstance(condition, Taint):
        text = f"{call.name} chooses a branch for all rows at once: {condition.reason}"
        return (Taint(condition.verdict, text, origins),)
    if isinstance(condition, Count | Size):
        raise call.mixes("chooses a branch by the number of rows")
    raise call.unknown("it chooses a branch by values of rows")


def _joined(walk: Walk, call: Call, a: Value, b: Value, *, of_row: bool) -> Value:
    joined = join(a, b, lambda axis: walk.symbols.fresh())
    if not of_row or isinstance(joined, Taint | Sink):
        return joined
    if isinstance(joined, Uniform):
        return Uniform(joined.shape, joined.ints if a == b else None, True)
    if isinstance(joined, ListOf) and not joined.by_rows and isinstance(joined.element, Uniform):
        return replace(joined, element=replace(joined.element, ints=None, of_row=True))
    return Taint("unknown", f"{call.name} gives what belongs to all rows by the value of one", joined.origins)


@rule("While StatelessWhile", walks=True)
def loop(walk: Walk, call: Call, *state: Value) -> Results:
    condition, body = (walk.body(call.attributes[name].func.name) for name in ("cond", "body"))
    return walk_loop(walk, call, condition, body, state)


@rule(FRAME_LOOP, walks=True)
def loop_of_frame(walk: Walk, call: Call, *state: Value) -> Results:
    return walk_loop(walk, call, call.node.condition, call.node.body, state)


@rule("Switch", takes_all=True)
def switch(call: Call, value: Value, condition: Value) -> Results:
    """Both results are the value; the Merge looks at the condition."""
    return [value, value]


@rule("Merge", walks=True)
def merge(walk: Walk, call: Call, *operands: Value) -> Results:
    """One of the first operands, the values; the conditions behind them choose it."""
    count = call.number("N")
    values, conditions = operands[:count], operands[count:]
    of_row = any(isinstance(each, Uniform) and each.of_row for each in conditions)
    for condition in conditions:
        if not isinstance(condition, Uniform):
            return _chosen(walk, call, condition, [])
    joined = values[0]
    for each in values[1:]:
        joined = _joined(walk, call, joined, each, of_row=of_row)
    return [joined, Uniform((), None, of_row)]


@rule(
    "Identity RefIdentity StopGradient PreventGradient Snapshot EnsureShape CheckNumerics CheckNumericsV2",
    takes_all=True,
)
def identity(call: Call, value: Value) -> Results:
    return value


@rule("IdentityN", takes_all=True)
def identities(call: Call, *values: Value) -> Results:
    return values


@rule("PlaceholderWithDefault", takes_all=True)
def default(call: Call, value: Value) -> Results:
    """The default value: a placeholder that is no input is never fed."""
    return value
