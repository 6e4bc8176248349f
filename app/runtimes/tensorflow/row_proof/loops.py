"""Loops, from their values at the begin to their values at the end.

Rules
1. *In step*: if the condition is uniform, requests that share a call run the same iterations. Then a relation that an
   iteration keeps holds at the end: values are joined from iteration to iteration until nothing changes.
2. *Over rows*: if the loop runs once for each row (a counter from 0 by 1, below the number of rows), an iteration may
   read the element of its row, and set this element of lists. Any other value that changes is carried from row to row,
   and mixes them.
3. Others, such as loops that run until all rows are done, are unknown.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from operator import or_

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    ListOf,
    MoreRows,
    Sink,
    Size,
    Taint,
    Uniform,
    Value,
    constant,
)
from app.runtimes.tensorflow.row_proof.bodies import Body, passes_through
from app.runtimes.tensorflow.row_proof.call import Call
from app.runtimes.tensorflow.row_proof.dimensions import NEXT_ROW, ROWS, THIS_ROW, Dim, symbol
from app.runtimes.tensorflow.row_proof.joins import join, outside
from app.runtimes.tensorflow.row_proof.walk import Values, Walk

#: The most rounds until a loop in step must have settled. Chosen.
_MAX_ROUNDS = 12

_THIS = Size((), (symbol(THIS_ROW),))
_NEXT = Size((), (symbol(NEXT_ROW),))
_ALL = Size((), (symbol(ROWS),))


def walk_loop(walk: Walk, call: Call, condition: Body, body: Body, state: Values) -> Values:
    """The state at the end of the loop for the state at its begin."""
    fixed = [passes_through(body, number) for number in range(len(state))]
    condition_value = walk.run(
        condition, tuple([each if same else _any_number(each) for each, same in zip(state, fixed, strict=True)])
    )[0]
    if isinstance(condition_value, Count | Size | MoreRows):
        return _over_rows(walk, call, condition, body, state, fixed)
    return _in_step(walk, call, condition, body, state, fixed)


def _any_number(value: Value) -> Value:
    return Uniform(value.shape, None, value.of_row) if isinstance(value, Uniform) else value


# --- loops that all requests run in step ---


def _in_step(walk: Walk, call: Call, condition: Body, body: Body, state: Values, fixed: list[bool]) -> Values:
    symbols, level = walk.symbols, walk.symbols.level + 1
    run = object()
    symbols.level = level

    def new_dim(variable: int, axis: int) -> Dim:
        return symbols.of_loop((run, variable, axis))

    def carried(variable: int, before: Value, after: Value) -> Value:
        if fixed[variable] or before == after:
            return before
        joined = join(before, after, lambda axis: new_dim(variable, axis))
        return outside(joined, symbols, level, lambda axis: new_dim(variable, axis))

    try:
        # 1. Join the state from iteration to iteration until it is a fixed point.
        for _ in range(_MAX_ROUNDS):
            found = walk.run(condition, state)[0]
            if not isinstance(found, Uniform):
                return _out_of_step(call, found, state, walk.run(body, state), fixed)
            after = walk.run(body, state)
            joined = tuple([carried(number, *pair) for number, pair in enumerate(zip(state, after, strict=True))])
            if found.of_row:
                joined = tuple([_mark(value, same) for value, same in zip(joined, fixed, strict=True)])
            if joined == state:
                break
            state = joined
        else:
            raise call.unknown("what its turns change does not settle")
    finally:
        symbols.level = level - 1

    # 2. Sizes of the loop are new sizes outside of it.
    outer: dict[tuple[int, int], Dim] = {}

    def outer_dim(variable: int, axis: int) -> Dim:
        return outer.setdefault((variable, axis), symbols.fresh())

    return tuple([outside(value, symbols, level, partial(outer_dim, number)) for number, value in enumerate(state)])


def _mark(value: Value, same: bool) -> Value:
    """The value after a loop whose number of iterations depends on the row."""
    if same or isinstance(value, Taint | Sink):
        return value
    if isinstance(value, Uniform):
        return replace(value, of_row=True, ints=None)
    if isinstance(value, ListOf) and isinstance(value.element, Uniform | None):
        return value if value.element is None else replace(value, element=replace(value.element, of_row=True))
    return Taint("mixes", "a loop that runs as often as one row says changes what belongs to all rows", value.origins)


def _out_of_step(call: Call, condition: Value, state: Values, after: Values, fixed: list[bool]) -> Values:
    if isinstance(condition, Taint):
        why = f"its turns depend on all rows: {condition.reason}"
    else:
        why = "how many turns it runs depends on rows"
    origins = reduce(or_, [each.origins for each in (condition, *state, *after)])
    taint = Taint("unknown", f"{call.name}: {why}", origins)
    return tuple([value if same else taint for value, same in zip(state, fixed, strict=True)])


# --- loops over rows ---


def _over_rows(walk: Walk, call: Call, condition: Body, body: Body, state: Values, fixed: list[bool]) -> Values:
    # 1. Variables may be fixed, counters from 0, or lists to be filled.
    if walk.row_loop:
        raise call.unknown("a loop over rows in a loop over rows")
    counters = {
        n
        for n, value in enumerate(state)
        if not fixed[n] and constant(value) == [0] and isinstance(value, Uniform) and value.shape == ()
    }
    sinks = {n for n, value in enumerate(state) if not fixed[n] and _may_be_filled(value)}
    for number, value in enumerate(state):
        if not fixed[number] and number not in counters | sinks:
            raise (
                call.unknown(value.reason)
                if isinstance(value, Taint)
                else call.mixes("carries a value from row to row")
            )

    # 2. One iteration, for the row of its number.
    inside = tuple([_THIS if n in counters else Sink(n) if n in sinks else value for n, value in enumerate(state)])
    walk.row_loop = True
    walk.symbols.level += 1
    level = walk.symbols.level
    try:
        more = walk.run(condition, inside)[0]
        if not isinstance(more, MoreRows):
            raise call.unknown("it does not run once for each row")
        after = walk.run(body, inside)
    finally:
        walk.row_loop = False
        walk.symbols.level -= 1

    # 3. After the last one a counter is the number of rows, and a list has an element for each row.
    results: list[Value] = []
    for number, (before, value) in enumerate(zip(state, after, strict=True)):
        origins = value.origins
        if fixed[number]:
            results.append(before)
        elif number in counters:
            if not isinstance(value, Size) or value.ints != _NEXT.ints:
                raise call.mixes("carries a value from row to row")
            results.append(replace(_ALL, origins=origins))
        elif isinstance(value, Taint):
            results.append(value)
        elif isinstance(value, Sink) and value.token == number and isinstance(value.item, Uniform):
            item = outside(value.item, walk.symbols, level, lambda axis: walk.symbols.fresh())
            assert isinstance(item, Uniform)
            results.append(ListOf(item, symbol(ROWS), by_rows=True, origins=origins))
        elif isinstance(value, Sink) and value.token == number and value.item is None:
            results.append(before)
        else:
            results.append(Taint("unknown", f"{call.name}: what it gives is not one element for each row", origins))
    return tuple(results)


def _may_be_filled(value: Value) -> bool:
    """Whether it is a list with a place for each row, all of which the loop fills."""
    return isinstance(value, ListOf) and value.length == symbol(ROWS) and (value.element is None or value.by_rows)


def is_this_row(value: Value) -> bool:
    return isinstance(value, Size) and value.ints == _THIS.ints and value.shape in ((), (1,))


def next_row(a: Value, b: Value) -> Value | None:
    """The counter of a loop over rows, one further."""
    for number, step in ((a, b), (b, a)):
        if isinstance(number, Size) and number.ints == _THIS.ints and constant(step) == [1]:
            return replace(_NEXT, shape=number.shape, origins=number.origins)
    return None


def more_rows(a: Value, b: Value) -> Value | None:
    """a < b, if that means that a loop over rows has not ended."""
    if is_this_row(a) and isinstance(b, Size) and b.ints == _ALL.ints:
        assert isinstance(a, Size)
        return MoreRows(a.origins | b.origins)
    return None
