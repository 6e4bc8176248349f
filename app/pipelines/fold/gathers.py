"""The gathers of a fold: from an arena to the inputs of calls, and to the outputs of requests. No I/O, no clock.

The gathers are chosen once for a fold: a call costs one for each input that nodes have from their request, and one for
all children of a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from app.core.inference import Array
from app.pipelines.fold.agenda import TakenNodes
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.forest import Numbers


class Reads:
    """The inputs of an operation's calls.

    Args:
        nodes: by input, the name of the array that nodes have from their request.
        children: by input, the name of a state, and the slot of the child that has it; None: of all children, stacked.
        slots: the most children of a node.
    """

    __slots__ = ("_children", "_nodes", "_slots")

    def __init__(self, nodes: Mapping[str, str], children: Mapping[str, tuple[str, int | None]], slots: int) -> None:
        self._nodes = list(nodes.items())
        self._slots = slots
        states = dict.fromkeys(state for state, _ in children.values())
        self._children = [
            (state, [(name, slot) for name, (own, slot) in children.items() if own == state]) for state in states
        ]

    def inputs(self, arena: Arena, taken: TakenNodes) -> dict[str, Array]:
        inputs = {name: arena.gather(own, taken.rows) for name, own in self._nodes}
        children = taken.children[: self._slots]
        for state, names in self._children:
            if names[0][1] is None:
                inputs |= dict.fromkeys([name for name, _ in names], arena.gather(state, children.T))
            else:
                states = arena.gather(state, children)
                for name, slot in names:
                    inputs[name] = states[slot]
        return inputs


class Results:
    """The outputs of requests whose nodes are all computed.

    Args:
        outputs: by output, the name of a state, and whether roots have it or all inner nodes.
    """

    __slots__ = ("_of_nodes", "_of_roots")

    def __init__(self, outputs: Mapping[str, tuple[str, bool]]) -> None:
        self._of_roots = [(name, state) for name, (state, of_roots) in outputs.items() if of_roots]
        self._of_nodes = [(name, state) for name, (state, of_roots) in outputs.items() if not of_roots]

    def of(self, arena: Arena, requests: Sequence[tuple[Numbers, Numbers]]) -> Sequence[dict[str, Array]]:
        """The outputs of requests. `requests`: the rows of each one's roots and inner nodes."""
        answers: list[dict[str, Array]] = [{} for _ in requests]
        if self._of_roots:
            roots = [own for own, _ in requests]
            rows = roots[0] if len(roots) == 1 else np.concatenate(roots)
            for name, state in self._of_roots:
                states, end = arena.gather(state, rows), 0
                for answer, own in zip(answers, roots, strict=True):
                    answer[name] = states[end : end + len(own)]
                    end += len(own)
        for name, state in self._of_nodes:
            for answer, (_, inner) in zip(answers, requests, strict=True):
                answer[name] = arena.gather(state, inner)
        return answers
