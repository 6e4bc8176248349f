"""The trees of requests that arrive together are checked, and get room in the arena and the agenda.

By fold.c in one pass over all of them, or, where that was not compiled or declines, by numpy: then each request gets
its own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.errors import ServingError
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.charges import Charges
from app.pipelines.fold.forest import Forest, ForestRules, Numbers
from app.pipelines.fold.forests import AskedForest, compile_forests, groups, joined


class Reserved(NamedTuple):
    """What the trees of one request have got.

    Attributes:
        starts, levels: the number of start nodes, and of the calls that it takes at least.
        rows: [nodes] of the arena.
        roots: the rows of nodes without a parent.
        number: its number in the agenda; None if no node is to be computed.
    """

    starts: int
    levels: int
    rows: Numbers
    roots: Numbers
    number: int | None


class Reservations:
    """Those of one fold.

    Args:
        rules: of its trees.
        slots: by operation, how many children its nodes may have.
        charges: gets room for the requests' numbers.
    """

    def __init__(
        self, rules: ForestRules, slots: Sequence[int], agenda: Agenda, arena: Arena, charges: Charges
    ) -> None:
        self._rules = rules
        self._slots = slots
        self._slots_array = np.array(slots)
        self._agenda = agenda
        self._arena = arena
        self._charges = charges

    def reserve(self, asked: Sequence[AskedForest]) -> Sequence[Reserved | ServingError]:
        """What each request gets, or why it is rejected.

        InvalidRequest or RequestTooLarge: its trees are wrong. Overloaded: others have so many nodes that there is no
        room.
        """
        found = list[Reserved | ServingError]()
        for group in groups(self._rules, asked):  # large ones alone: so the memory of their nodes is freed with them
            found += self._entered(group) or self._entered_by_numpy(group)
        return found

    def _entered(self, asked: Sequence[AskedForest]) -> Sequence[Reserved] | None:
        """All of them by fold.c; None, and nothing is done, if it is not there or declines."""
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
        self._charges.make_room(max([own.number for own in entered]))
        return [Reserved(own.starts, own.levels, own.rows, own.roots, own.number) for own in entered]

    def _entered_by_numpy(self, asked: Sequence[AskedForest]) -> Sequence[Reserved | ServingError]:
        """The same otherwise, or of each what is wrong with it."""
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
            self._charges.make_room(max(numbers))
        return found

    def _allocated(self, forest: Forest) -> Reserved | ServingError:
        depth = forest.depth
        levels = int(depth[depth.argmax()]) + 1 if len(depth) else 0
        try:
            rows = self._arena.allocate(forest.nodes)
        except ServingError as error:
            return error.with_traceback(None)
        return Reserved(forest.starts, levels, rows, rows[forest.roots], None)
