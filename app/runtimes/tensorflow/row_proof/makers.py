"""The operations that make the results of a graph. Reasons name them: why an output has no row for each input row.

Operations that only pass a value on, and calls of functions, are looked through.
"""

from __future__ import annotations

from collections.abc import Callable

from app.runtimes.tensorflow.graph_nodes import CALLS, names
from app.runtimes.tensorflow.row_proof.bodies import Body, Step, by_place
from app.runtimes.tensorflow.row_proof.call import describe

#: Operations whose result n is operand n.
_PASSING = names("EnsureShape Identity IdentityN PreventGradient StopGradient")


def maker_of(body: Body, number: int, function: Callable[[str], Body], readable: Callable[[str], str]) -> str:
    """'Shape 'size' in 'call'': the maker of result `number` of a body; empty if that is an argument.

    Args:
        function: the body of a function by its name.
        readable: the name of a body in texts.
    """
    ref, steps, called = body.results[number], by_place(body), list[tuple[Body, Step]]()
    while True:
        place, result = ref
        step = steps.get(place)
        if step is None:
            if not called:
                return ""
            # An argument of a function is an operand of its call.
            argument = body.arguments.index(place)
            body, call = called.pop()
            ref, steps = call.reads[argument], by_place(body)
        elif step.node.op in _PASSING:
            ref = step.reads[result]
        elif step.node.op in CALLS:
            called.append((body, step))
            body = function(step.node.attr["f"].func.name)
            ref, steps = body.results[result], by_place(body)
        else:
            return describe(step.node, readable(body.name))
