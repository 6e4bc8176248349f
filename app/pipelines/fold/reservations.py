"""Reservations: the room of requests' trees in the arena and the agenda, after a check of the trees.

fold.c does it in one pass over all requests. Where that was not compiled or declines, numpy does it request by request:
so a rejected request gets its own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.errors import ServingError
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.fold_costs import FoldCosts
from app.pipelines.fold.forest import Forest, ForestRules, Numbers
from app.pipelines.fold.forests import ForestInputs, compile_forests, groups, joined


class Reserved(NamedTuple):
    """The reservation of one request.

    Attributes:
        starts: the number of start nodes.
        levels: the number of levels of the trees, which is the least number of calls.
        rows: [nodes] the rows in the arena.
        roots: the rows of nodes without a parent.
        number: the request's number in the agenda; None if no node is to be computed.
    """

    starts: int
    levels: int
    rows: Numbers
    roots: Numbers
    number: int | None


class Reservations:
    """The reservations of one fold.

    Args:
        rules: of its trees.
        slots: by operation, the most children of its nodes.
        costs: gets room for the requests' numbers.
    """

    def __init__(
        self, rules: ForestRules, slots: Sequence[int], agenda: Agenda, arena: Arena, costs: FoldCosts
    ) -> None:
        self._rules = rules
        self._slots = slots
        self._slots_array = np.array(slots)
        self._agenda = agenda
        self._arena = arena
        self._costs = costs

    def reserve(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved | ServingError]:
        """The reservation of each request, or the error that rejects it.

        InvalidRequest or RequestTooLarge: the trees are wrong. Overloaded: nodes of other requests leave no room.
        """
        found = list[Reserved | ServingError]()
        for group in groups(self._rules, asked):
            found += self._entered(group) or self._entered_by_numpy(group)
        return found

    def _entered(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved] | None:
        """The reservations by fold.c; None, and nothing is reserved, if it was not compiled or declines."""
        form = joined(self._rules, asked) if self._agenda.compiled else None
        if form is None:
            return None
        sizes = [(starts, inner) for starts, inner, *_ in asked]
        try:
            rows = self._arena.allocate(sum([starts + inner for starts, inner in sizes]))
        except ServingError:
            return None
        entered = None
        try:
            entered = self._agenda.enter(sizes, *form, self._slots_array, rows)
        finally:
            if entered is None:
                self._arena.free(rows)
        if entered is None:
            return None
        self._costs.make_room(max([own.number for own in entered]))
        return [Reserved(own.starts, own.levels, own.rows, own.roots, own.number) for own in entered]

    def _entered_by_numpy(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved | ServingError]:
        """The reservations by numpy, or the error of a request."""
        forests = compile_forests(self._rules, self._slots, asked)
        found = [self._allocated(each) if isinstance(each, Forest) else each for each in forests]
        adding = [
            (place, forest, reserved)
            for place, (forest, reserved) in enumerate(zip(forests, found, strict=True))
            if isinstance(forest, Forest) and isinstance(reserved, Reserved) and forest.inner
        ]
        if adding:
            numbers = self._agenda.add([forest for _, forest, _ in adding], [own.rows for *_, own in adding])
            for number, (place, _, reserved) in zip(numbers, adding, strict=True):
                found[place] = reserved._replace(number=number)
            self._costs.make_room(max(numbers))
        return found

    def _allocated(self, forest: Forest) -> Reserved | ServingError:
        depth = forest.depth
        levels = int(depth[depth.argmax()]) + 1 if len(depth) else 0
        try:
            rows = self._arena.allocate(forest.nodes)
        except ServingError as error:
            return error.with_traceback(None)
        return Reserved(forest.starts, levels, rows, rows[forest.roots], None)
