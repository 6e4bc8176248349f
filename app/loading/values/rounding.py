"""Whether a difference between two answers to a row is one that rounding explains.

Sums in another order differ in their last digits. Where large terms cancel, or the greatest of nearly equal numbers is
picked, the answer moves by more than that; then it also moves if the inputs move by their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from app.core.agreement import TOLERANCES, agree, moved_inputs
from app.core.inference import Array
from app.core.reply import Outputs
from app.core.sample_inputs import SEED

Row = Mapping[str, Array]

#: Draws of moved inputs. Chosen: of nearly equal numbers, one draw may leave the same one the greatest.
_DRAWS = 4


class Rounding:
    """Computes moved rows when a difference asks for it, and keeps what they answer.

    Args:
        answers: the answers of a row alone; None if there are none.
    """

    def __init__(self, answers: Callable[[Row], Sequence[Outputs] | None]) -> None:
        self._answers = answers
        self._random = np.random.default_rng(SEED)
        self._moved: dict[int, tuple[Row, Outputs | None]] = {}  # with the row, so that its id stays its own

    def unexplained(self, row: Row, alone: Outputs, answer: Outputs, differing: set[str]) -> set[str]:
        """Those of the outputs that differ between the answer and the one alone by more than rounding explains."""
        if not differing:
            return differing
        moved = self._moved_answer(row, alone)
        if moved is None:
            return differing
        return {name for name in differing if name not in answer or not _agree(name, alone, answer, moved)}

    def _moved_answer(self, row: Row, alone: Outputs) -> Outputs | None:
        """Of each value the one that moves farthest; None if nothing moves."""
        if id(row) not in self._moved:
            drawn = [self._answers(moved_inputs(row, self._random)) for _ in range(_DRAWS)]
            fitting = [answers[0] for answers in drawn if answers and _same_form(alone, answers[0])]
            farthest = {name: _farthest(want, [each[name] for each in fitting]) for name, want in alone.items()}
            self._moved[id(row)] = row, farthest if fitting else None
        return self._moved[id(row)][1]


def _agree(name: str, alone: Outputs, answer: Outputs, moved: Outputs) -> bool:
    return agree({name: alone[name]}, {name: answer[name]}, TOLERANCES, {name: moved[name]})


def _same_form(one: Outputs, other: Outputs) -> bool:
    return one.keys() == other.keys() and all(each.shape == other[name].shape for name, each in one.items())


def _farthest(want: Array, moved: Sequence[Array]) -> Array:
    """Of each place the value that differs most; of what is no number any that differs."""
    farthest = want
    for each in moved:
        with np.errstate(all="ignore"):
            is_number = want.dtype.kind not in "Ob"
            farther = ~(np.abs(each - want) <= np.abs(farthest - want)) if is_number else each != want
        farthest = np.where(farther, each, farthest)
    return farthest
