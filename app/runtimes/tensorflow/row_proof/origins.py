"""Origins of values: the inputs that they depend on. They show which inputs must have equally many rows.

Inputs are bits, numbered as `GraphRows.row_inputs`. Inputs whose rows are laid side by side (added, joined along
another axis) must have equally many rows. Inputs that meet where rows mix (nodes that are gathered by edges) need not,
unless they are laid side by side elsewhere; nor need inputs that never meet (two towers in one signature). A meeting in
an operation that no rule knows decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Taint, Uniform, Value, with_origins


class Origins:
    """The meetings of inputs. `count`: the number of inputs that have rows; below two there is nothing to note."""

    def __init__(self, count: int) -> None:
        self._few = count < 2
        self._group = list(range(count))
        self._met: set[int] = set()
        self._unclear: set[int] = set()

    def mark(self, operands: Sequence[Value], results: tuple[Value, ...]) -> tuple[Value, ...]:
        """The results with the origins of the operands."""
        if self._few:
            return results
        bits = _origins_of(operands)
        if not bits:
            return results
        if any(isinstance(each, Taint) and each.verdict == "mixes" for each in results):
            self._met.add(bits)
        elif all(isinstance(each, Rows | Uniform) for each in results):
            self._join(_bits(_origins_of([each for each in operands if isinstance(each, Rows)])))
        else:
            self._unclear.add(bits)
        return tuple([with_origins(each, bits) for each in results])

    def walked(self, operands: Sequence[Value], results: tuple[Value, ...]) -> tuple[Value, ...]:
        """The results of an operation whose functions were followed: their operations have marked them."""
        if not self._few and any(isinstance(each, Taint) and each.verdict == "unknown" for each in results):
            self._unclear.add(_origins_of(operands))
        return results

    def unequal(self) -> bool:
        """Whether there are inputs that need not have equally many rows."""
        # 1. Inputs met where rows mix.
        if any(len({self._find(each) for each in _bits(met)}) > 1 for met in self._met):
            return True
        # 2. Inputs never met: a meeting in an operation without a rule counts as one.
        for met in self._unclear:
            self._join(_bits(met))
        return len({self._find(each) for each in range(len(self._group))}) > 1

    def _join(self, members: list[int]) -> None:
        for each in members[1:]:
            self._group[self._find(each)] = self._find(members[0])

    def _find(self, member: int) -> int:
        while self._group[member] != member:
            member = self._group[member]
        return member


def _origins_of(operands: Sequence[Value]) -> int:
    return reduce(or_, [each.origins for each in operands], 0)


def _bits(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]
