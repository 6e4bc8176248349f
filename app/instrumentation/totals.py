"""Totals: counts of one thing as attributes, which are added and subtracted attribute by attribute.

Rules (test_totals.py)
- The attributes are numbers, Counters, Histograms or Totals' own kinds of these: they have + and -, and begin at zero.
- A difference to an earlier copy has the counts since then; one to fresh totals is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, sub
from typing import Any, Self


class Totals:
    """The base of counts; a class says in its `__init__`, without arguments, what is counted."""

    def __add__(self, other: Self) -> Self:
        return self._combined(add, other)

    def __sub__(self, before: Self) -> Self:
        return self._combined(sub, before)

    def _combined(self, combine: Callable[[Any, Any], Any], other: Self) -> Self:
        combined = type(self)()
        for name, value in vars(self).items():
            setattr(combined, name, combine(value, getattr(other, name)))
        return combined
