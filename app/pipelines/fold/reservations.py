"""Reservations: the room of requests' trees in the arena and the agenda, after a check of the trees.

fold.c does it in one pass over all requests. Where it declines, each request is reserved alone: by fold.c, or, where
that was not compiled or declines again, by numpy, which names the fault of a rejected request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.errors import Overloaded, ServingError
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.forest import ForestRules
from app.pipelines.fold.forests import ForestInputs, Reserved, compile_alone, has_form, joined


class Reservations:
    """The reservations of one fold.

    Args:
        rules: of its trees.
        slots: by operation, the most children of its nodes.
    """

    def __init__(self, rules: ForestRules, slots: Sequence[int], agenda: Agenda, arena: Arena) -> None:
        self._rules = rules
        self._slots = slots
        self._slots_array = np.array(slots)
        self._agenda = agenda
        self._arena = arena

    def reserve(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved | ServingError]:
        """The reservation of each request, or the error that rejects it.

        InvalidRequest or RequestTooLarge: the trees are wrong. Overloaded: nodes of other requests leave no room.
        """
        if (entered := self._entered(asked)) is not None:
            return entered
        if len(asked) > 1:
            return [found for each in asked for found in self.reserve([each])]
        try:
            return [self._entered_by_numpy(asked[0])]
        except ServingError as error:
            return [error.with_traceback(None)]  # which holds the arrays of the request

    def _entered(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved] | None:
        """The reservations by fold.c; None, and nothing is reserved, if it was not compiled or declines."""
        if not all(has_form(self._rules, each) for each in asked):
            return None
        sizes = [(starts, inner) for starts, inner, *_ in asked]
        try:
            rows = self._arena.allocate(sum([starts + inner for starts, inner in sizes]))
        except ServingError:
            return None
        entered = None
        try:
            # The joined arrays are copies: they are made once there is room for the nodes.
            entered = self._agenda.enter(sizes, *joined(asked), self._slots_array, rows)
        except Overloaded:
            return None
        finally:
            if entered is None:
                self._arena.free(rows)
        return entered

    def _entered_by_numpy(self, asked: ForestInputs) -> Reserved:
        """The reservation of a request by numpy. Raises as `reserve` says."""
        forest = compile_alone(self._rules, self._slots, asked)
        rows = self._arena.allocate(forest.nodes)
        try:
            number = self._agenda.add(forest, rows) if forest.inner else None
        except ServingError:
            self._arena.free(rows)
            raise
        return Reserved(forest.starts, int(forest.depth.max(initial=-1)) + 1, rows, rows[forest.roots], number)
