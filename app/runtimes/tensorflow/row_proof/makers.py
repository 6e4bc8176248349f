"""The operations that make results of a graph, for the reasons why an output has no row for each row.

Operations that only pass a value on, and calls of functions, are looked through.
"""

from __future__ import annotations

from collections.abc import Callable

from app.runtimes.tensorflow.graph_nodes import CALLS, names
from app.runtimes.tensorflow.row_proof.bodies import Body, Step
from app.runtimes.tensorflow.row_proof.call import describe

#: Operations whose result n is operand n.
_PASSING = names("EnsureShape Identity IdentityN PreventGradient StopGradient")


def maker_of(body: Body, number: int, function: Callable[[str], Body], readable: Callable[[str], str]) -> str:
    """'Shape 'size' in 'call'': the maker of result `number` of a body; empty if that is an argument.

    Args:
        function: the body of a function by its name.
        readable: the name of a body in texts.
    """
    ref, inside, called = body.results[number], _Inside(body), list[tuple[_Inside, Step]]()
    while True:
        place, result = ref
        step = inside.steps.get(place)
        if step is None:
            if not called:
                return ""
            # An argument of a function is an operand of its call.
            argument = inside.body.arguments.index(place)
            inside, call = called.pop()
            ref = call.reads[argument]
        elif step.node.op in _PASSING:
            ref = step.reads[result]
        elif step.node.op in CALLS:
            called.append((inside, step))
            inside = _Inside(function(step.node.attr["f"].func.name))
            ref = inside.body.results[result]
        else:
            return describe(step.node, readable(inside.body.name))


class _Inside:
    """A body, and its steps by the place of their results."""

    __slots__ = ("body", "steps")

    def __init__(self, body: Body) -> None:
        self.body = body
        self.steps: dict[int, Step] = {step.place: step for step in body.steps}
