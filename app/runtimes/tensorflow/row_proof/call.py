"""Operations of a graph as rules see them, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Count,
    Rows,
    Size,
    Taint,
    Uniform,
    Value,
    constant,
    ints_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape, Symbols

#: The result of a rule: the value of the one result of the operation, or the values of all.
Results = Value | Sequence[Value]


class Finding(Exception):
    """The end of a rule, with one value for all results."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Call:
    """A node and its function, as rules ask of them. Rules raise `Finding` by `mixes` and `unknown`.

    vector_keys: whether there may be tables whose keys are vectors.
    """

    __slots__ = ("attributes", "node", "symbols", "vector_keys", "where")

    def __init__(self, node: Any, where: str, symbols: Symbols, *, vector_keys: bool = True) -> None:
        self.node = node
        self.attributes = node.attr
        self.where = where
        self.symbols = symbols
        self.vector_keys = vector_keys

    # --- findings ---

    @property
    def name(self) -> str:
        return describe(self.node, self.where)

    def mixes(self, text: str) -> Finding:
        return Finding(Taint("mixes", f"{self.name} {text}"))

    def unknown(self, text: str) -> Finding:
        return Finding(Taint("unknown", f"{self.name}: {text}"))

    def depends(self, operand: Value, by_count: str, by_values: str) -> Finding:
        """The finding of an operand that is not uniform: by the number of rows it mixes, by values it is unknown."""
        return self.mixes(by_count) if isinstance(operand, Count | Size) else self.unknown(by_values)

    # --- attributes ---

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attributes[name].b) if name in self.attributes else default

    def number(self, name: str, default: int = 0) -> int:
        return int(self.attributes[name].i) if name in self.attributes else default

    def numbers(self, name: str) -> list[int]:
        return list(self.attributes[name].list.i) if name in self.attributes else []

    def text(self, name: str, default: str = "") -> str:
        return self.attributes[name].s.decode() if name in self.attributes else default

    # --- arguments ---

    def constant(self, value: Value, what: str) -> list[int]:
        """The elements of an argument that must be the same in all calls."""
        found = constant(value)
        if found is None:
            raise self.unknown(f"its {what} is computed")
        return found

    def shape(self, value: Value) -> Shape:
        """The shape of a Uniform or Rows."""
        if isinstance(value, Uniform | Rows) and value.shape is not None:
            return value.shape
        raise self.unknown("the number of dimensions of an operand is not known")

    def rows(self, value: Value) -> Rows:
        if isinstance(value, Rows):
            return value
        raise self.unknown("an operand has rows in a way that its rule does not know")

    def uniform(self, value: Value, what: str) -> Uniform:
        if isinstance(value, Uniform):
            return value
        raise self.unknown(f"its {what} depends on rows")

    def check_uniform(self, what: str, *values: Value) -> None:
        for value in values:
            self.uniform(value, what)

    # --- results ---

    def shaped(self, value: Value, shape: Shape, moved: Callable[[int], int] = int) -> Rows | Uniform:
        """A result of this shape: uniform as its operand, or with the operand's rows, whose axis is `moved`."""
        if isinstance(value, Uniform):
            return Uniform(shape)
        rows = self.rows(value)
        return rows_at(shape, moved(rows.axis), rows)

    def along(
        self,
        value: Value,
        axes: Iterable[int],
        *,
        mixes: str = "",
        unknown: str = "",
        removes: bool = False,
        shape: Shape | None = None,
    ) -> Rows | Uniform:
        """The result of an operation along these axes, if the rows do not lie along one of them.

        Args:
            mixes, unknown: the finding if they do; '{}' stands for their axis.
            removes: whether the result is without these axes.
            shape: of the result, if it is another one; the rows stay where they are.
        """
        whole = self.shape(value)
        places = {normal_axis(self, each, len(whole)) for each in axes}
        if isinstance(value, Rows) and value.axis in places:
            raise self.mixes(mixes.format(value.axis)) if mixes else self.unknown(unknown.format(value.axis))
        if removes:
            left = [axis for axis in range(len(whole)) if axis not in places]
            return self.shaped(value, tuple([whole[axis] for axis in left]), left.index)
        return self.shaped(value, whole if shape is None else shape)

    # --- sizes ---

    def size(self, key: Hashable, *operands: Dim) -> Dim:
        """A size that follows from operands."""
        return self.symbols.derived(key, *operands)

    def size_of(self, number: Value) -> Dim:
        """The size that an operand says; a fresh one if it is not known, or may be below 0."""
        known = ints_of(number)
        return known[0] if known and self.symbols.is_size(known[0]) else self.symbols.fresh()


def describe(node: Any, where: str) -> str:
    """'Softmax 'tower/Softmax'': the operation and its node, in texts."""
    return f"{node.op} {node.name!r}" + (f" in {where!r}" if where else "")


Rule = Callable[..., Results]

#: The rule of each operation, by its name. It is called with the Call and the operands.
RULES: dict[str, Rule] = {}

#: Operations whose rules take operands of every kind, also tainted ones.
TAKES_ALL: set[str] = set()

#: Operations that call functions: their rules get the Walk, too.
WALKING: set[str] = set()


def rule(operations: str, *, takes_all: bool = False, walks: bool = False) -> Callable[[Rule], Rule]:
    """Enters a rule for these operations.

    Without `takes_all` no operand is tainted. If all are Uniform, the rule finds the shape alone.
    """

    def enter(function: Rule) -> Rule:
        for operation in operations.split():
            RULES[operation] = function
            if takes_all or walks:
                TAKES_ALL.add(operation)
            if walks:
                WALKING.add(operation)
        return function

    return enter


def normal_axis(call: Call, axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise call.unknown(f"axis {axis} is outside of {rank} dimensions")
    return axis % rank
