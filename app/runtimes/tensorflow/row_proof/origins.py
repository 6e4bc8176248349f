"""Which inputs must have equally many rows, and which need not: inputs are bits, numbered as `GraphRows.row_inputs`.

Inputs whose rows are laid side by side (added, joined along another axis) must have equally many. Inputs that meet
where rows mix (nodes that are gathered by edges) need not, unless they are laid side by side elsewhere; nor need inputs
that never meet (two towers in one signature). Where inputs meet in an operation that no rule knows, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from app.runtimes.tensorflow.row_proof.values import Rows, Taint, Uniform, Value, with_origins


class Origins:
    """Notes what meets. `count`: the number of inputs that have rows; below two there is nothing to note."""

    def __init__(self, count: int) -> None:
        self._few = count < 2
        self._group = list(range(count))
        self._met: set[int] = set()
        self._unclear: set[int] = set()

    def mark(self, operands: Sequence[Value], results: tuple[Value, ...]) -> tuple[Value, ...]:
        """The results with the origins of the operands."""
        if self._few:
            return results
        bits = 0
        for each in operands:
            if not isinstance(each, Uniform):
                bits |= each.origins
        if not bits:
            return results
        if any(isinstance(each, Taint) and each.verdict == "mixes" for each in results):
            self._met.add(bits)
        elif all(isinstance(each, Rows | Uniform) for each in results):
            self._join(_all_bits(operands))
        else:
            self._unclear.add(bits)
        return tuple([with_origins(each, bits) for each in results])

    def walked(self, operands: Sequence[Value], results: tuple[Value, ...]) -> tuple[Value, ...]:
        """The results of an operation whose functions were followed: each of their operations has marked its own."""
        if not self._few and any(isinstance(each, Taint) and each.verdict == "unknown" for each in results):
            self._unclear.add(reduce(or_, [each.origins for each in operands if not isinstance(each, Uniform)], 0))
        return results

    def unequal(self) -> bool:
        """Whether there are inputs that need not have equally many rows."""
        # 1. Inputs met where rows mix.
        if any(len({self._find(each) for each in _bits(met)}) > 1 for met in self._met):
            return True
        # 2. Inputs never met, in no operation: those that met in one that says nothing count as joined.
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


def _all_bits(operands: Sequence[Value]) -> list[int]:
    bits = 0
    for each in operands:
        if isinstance(each, Rows):
            bits |= each.origins
    return _bits(bits)


def _bits(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]
