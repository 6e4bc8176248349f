"""The check whether rounding explains a difference between two answers to the same rows.

Sums in another order differ in their last digits. Where large terms cancel, or the greatest of nearly equal numbers is
picked, the answer moves by more than that; then it also moves if the inputs move by their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from app.core.agreement import TOLERANCES, agree, moved_inputs
from app.core.inference import Array, Row
from app.core.reply import Outputs
from app.core.values.sample_inputs import SEED

#: Moves of the inputs, in this order, in units in the last place. Chosen: of nearly equal numbers, small moves may
#: leave the same one the greatest; the largest is a fiftieth of the allowed difference (TOLERANCES).
_MOVES = (1, 1, 2, 4, 8, 16, 16, 16)


class Rounding:
    """Answers to moved rows, computed when a difference asks for them, and kept.

    Args:
        answer: the answer to inputs alone; None if there is none.
        tolerances: by type, the difference that is allowed however little the inputs move.
    """

    def __init__(self, answer: Callable[[Row], Outputs | None], tolerances: Mapping[str, float] = TOLERANCES) -> None:
        self._answer = answer
        self._tolerances = tolerances
        self._random = np.random.default_rng(SEED)
        self._moves: dict[int, _Moves] = {}

    def unexplained(self, row: Row, alone: Outputs, answer: Outputs, differing: set[str]) -> set[str]:
        """The outputs among `differing` whose answer differs from the one alone by more than rounding explains."""
        if not differing:
            return differing
        moves = self._moves.setdefault(id(row), _Moves(row, alone))
        left = self._left(moves, answer, differing)
        while left and moves.drawn < len(_MOVES):
            self._move(moves)
            left = self._left(moves, answer, left)
        return left

    def _move(self, moves: _Moves) -> None:
        answer = self._answer(_moved(moves.row, _MOVES[moves.drawn], self._random))
        moves.drawn += 1
        if answer is not None and _same_form(moves.farthest, answer):
            want, far = moves.alone, moves.farthest
            moves.farthest = {name: _farther(want[name], far[name], answer[name]) for name in far}

    def _left(self, moves: _Moves, answer: Outputs, names: set[str]) -> set[str]:
        """The outputs among `names` that differ farther than the moved rows do."""
        return {name for name in names if name not in answer or not self._agree(name, moves, answer)}

    def _agree(self, name: str, moves: _Moves, answer: Outputs) -> bool:
        want, moved = {name: moves.alone[name]}, {name: moves.farthest[name]}
        return agree(want, {name: answer[name]}, self._tolerances, moved)


class _Moves:
    """The moves of one row so far; it holds the row, so that no other object gets its id.

    farthest: for each value of the answer, the moved value that differs most.
    """

    def __init__(self, row: Row, alone: Outputs) -> None:
        self.row = row
        self.alone = self.farthest = alone
        self.drawn = 0


def _moved(row: Row, units: int, random: np.random.Generator) -> dict[str, Array]:
    """The row with floating-point numbers moved by `units` units in the last place."""
    moved = moved_inputs(row, random)
    if units > 1:
        for name, array in row.items():
            if np.issubdtype(array.dtype, np.inexact):
                with np.errstate(all="ignore"):
                    moved[name] = np.asarray(array + (moved[name] - array) * units, array.dtype)
    return moved


def _same_form(one: Outputs, other: Outputs) -> bool:
    return one.keys() == other.keys() and all(each.shape == other[name].shape for name, each in one.items())


def _farther(want: Array, one: Array, other: Array) -> Array:
    """For each place, the value, of two, that differs more from the wanted value."""
    with np.errstate(all="ignore"):
        is_number = want.dtype.kind not in "Ob"
        farther = ~(np.abs(other - want) <= np.abs(one - want)) if is_number else other != want
    return np.asarray(np.where(farther, other, one))
