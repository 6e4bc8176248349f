"""Facts of the values of an input, or of a part of one, from the nodes that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

#: A comparison of a value and a constant.
Comparison = Literal["<", "<=", ">", ">=", "==", "!=", "matches"]

_NEGATED: Mapping[Comparison, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}

#: The distance from a bound that is excluded, as a share of it; see `Facts.range`.
_NEXT = 1e-3


class Part(NamedTuple):
    """A part of an encoded value: a feature of an example, a column of a line.

    kind: 'dense' has `shape` values, 'sparse' and 'ragged' any number.
    required: an example without it is rejected.
    steps: it is a list over steps of a sequence.
    """

    key: bytes
    facts: Facts
    kind: Literal["dense", "sparse", "ragged"] = "dense"
    shape: tuple[int, ...] = ()
    required: bool = True
    steps: bool = False


class Decoder(NamedTuple):
    """A node that decodes strings.

    kind: the type of its operation.
    options: the attributes that matter.
    """

    kind: str
    parts: Sequence[Part]
    options: Mapping[str, Any] = {}


@dataclass(eq=False)
class Facts:
    """The facts of values that come from one place.

    bounds, equal, unequal, patterns: the demands of assertions.
    index_below: the sizes of the axes that they are indices of.
    keys: the keys of tables in which they are looked up.
    looked_up: the facts of the values that tables give for them.
    decoders: the nodes that decode them.
    shapes: the shapes that they are reshaped to, -1 for an open size.
    sizes: by axis, the size that an operation demands.
    """

    dtype: np.dtype[Any]
    bounds: list[tuple[Comparison, float]] = field(default_factory=list)
    equal: list[Any] = field(default_factory=list)
    unequal: list[Any] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    index_below: list[float] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    looked_up: list[Facts] = field(default_factory=list)
    decoders: list[Decoder] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def compare(self, comparison: Comparison, value: Any) -> None:
        """Notes a comparison that an assertion demands of all values."""
        if comparison == "matches":
            self.patterns.append(value)
        elif comparison in {"==", "!="}:
            (self.equal if comparison == "==" else self.unequal).append(value)
        else:
            self.bounds.append((comparison, float(value)))

    def range(self) -> tuple[float, float] | None:
        """The least and the greatest number; None without any bound. A missing bound is chosen near the other."""
        low, high, whole = -np.inf, np.inf, not np.issubdtype(self.dtype, np.inexact)
        for comparison, bound in self.bounds:
            more = 0.0 if "=" in comparison else 1.0 if whole else _NEXT * max(1.0, abs(bound))
            if comparison.startswith("<"):
                high = min(high, bound - more)
            else:
                low = max(low, bound + more)
        if self.index_below:
            low, high = max(low, 0.0), min(high, min(self.index_below) - 1)
        if not np.isfinite(low) and not np.isfinite(high):
            return None
        span = 9.0 if whole else 1.0
        low, high = low if np.isfinite(low) else high - span, high if np.isfinite(high) else low + span
        if whole:
            low, high = float(np.ceil(low)), float(np.floor(high))
        return (low, high) if low <= high else None

    @property
    def are_picked(self) -> bool:
        """Whether some values are rejected for the value that a table gives for them, as far as is known."""
        return any(each.equal or each.range() is not None for each in self.looked_up)


class Values(NamedTuple):
    """A tensor that holds `scale` times values, plus `offset`.

    same_shape: its axes are those of the values.
    """

    facts: Facts
    scale: float = 1.0
    offset: float = 0.0
    same_shape: bool = True

    def times(self, factor: float) -> Values:
        return self._replace(scale=self.scale * factor, offset=self.offset * factor)

    def plus(self, more: float) -> Values:
        return self._replace(offset=self.offset + more)

    def undone(self, value: Any) -> Any:
        """The value for which the tensor holds this number."""
        return value if isinstance(value, bytes | str) else (value - self.offset) / self.scale

    def note(self, comparison: Comparison, value: Any) -> None:
        self.facts.compare(turned(comparison) if self.scale < 0 else comparison, self.undone(value))


class Dimensions(NamedTuple):
    """A tensor that holds the shape of values, or one size of it."""

    facts: Facts
    axis: int | None = None

    def note(self, comparison: Comparison, value: Any) -> None:
        if comparison == "==" and self.axis:
            self.facts.sizes.setdefault(self.axis, int(value))


class Condition(NamedTuple):
    """A tensor of booleans that compare values with constants.

    any_of: it is true if one of them is.
    """

    notes: tuple[tuple[Callable[[Comparison, Any], None], Comparison, Any], ...]
    any_of: bool = False

    def negated(self) -> Condition | None:
        """The condition that is true where this one is false; None if it demands nothing of all values."""
        if (len(self.notes) > 1 and not self.any_of) or any(each[1] not in _NEGATED for each in self.notes):
            return None
        return Condition(tuple((note, _NEGATED[comparison], value) for note, comparison, value in self.notes))

    def demand(self) -> None:
        """Notes that the condition must be true."""
        alternatives = all(comparison == "==" for _, comparison, _ in self.notes)
        if not self.any_of or alternatives or len(self.notes) == 1:
            for note, comparison, value in self.notes:
                note(comparison, value)


Track = Values | Dimensions | Condition


def turned(comparison: Comparison) -> Comparison:
    """The comparison with its sides exchanged."""
    exchanged: Mapping[Comparison, Comparison] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    return exchanged.get(comparison, comparison)
