"""Sizes of axes as products: a number times symbols.

Rules
- A symbol above 0 is a number that is the same for all requests that share a call, such as the length of their rows.
- A symbol between _LAST_SPACE and 0 is a *space*: a number that adds up when requests share a call. ROWS is the number
  of rows; a new space is made where a row has any number of entries (after a mask). A lower symbol is the place of a
  row (THIS_ROW, NEXT_ROW) or varies with all rows of the call (`varying`).
- Two sizes with the same product are equal; two with different products may be equal, too.
- A symbol that is made in a loop may be another number in each iteration: it has the loop's level, and does not leave
  the loop.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeGuard

#: The number of rows; the place of the present row in a loop over rows, and the place behind it.
ROWS, THIS_ROW, NEXT_ROW = -1, -1_000_001, -1_000_002

#: From _LAST_SPACE down symbols are no spaces: the places of rows above; below _VARYING, numbers that depend on all
#: rows of a call and do not add up, such as the length of the longest row.
_LAST_SPACE, _VARYING = -1_000_000, -2_000_000


class Product(NamedTuple):
    """`factor` times the symbols, which are sorted. There is at least one symbol."""

    factor: int
    symbols: tuple[int, ...]


Dim = int | Product
Shape = tuple[Dim, ...]

#: The most symbols of a product; a longer one raises OverflowError, which ends the proof of that value. Chosen.
_MAX_SYMBOLS = 12


def symbol(number: int) -> Product:
    return Product(1, (number,))


def times(a: Dim, b: Dim) -> Dim:
    """Raises OverflowError for products that are too long to follow."""
    if type(a) is int:
        if type(b) is int:
            return a * b
        a, b = b, a
    assert isinstance(a, Product)
    if isinstance(b, int):
        return a if b == 1 else 0 if b == 0 else Product(a.factor * b, a.symbols)
    if len(a.symbols) + len(b.symbols) > _MAX_SYMBOLS:
        raise OverflowError("a size is the product of too many sizes")
    return Product(a.factor * b.factor, tuple(sorted(a.symbols + b.symbols)))


def product(dims: Shape) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = times(result, dim)
    return result


def divided(a: Dim, b: Dim) -> Dim | None:
    """a / b, if the factor of b divides that of a, and a has all symbols of b; else None. Equal sizes give 1."""
    if a == b:
        return 1
    factor, symbols = (a, ()) if isinstance(a, int) else a
    by_factor, by_symbols = (b, ()) if isinstance(b, int) else b
    if by_factor == 0 or factor % by_factor:
        return None
    left = list(symbols)
    for each in by_symbols:
        if each not in left:
            return None
        left.remove(each)
    return Product(factor // by_factor, tuple(left)) if left else factor // by_factor


def has_space(dim: Dim) -> TypeGuard[Product]:
    """Whether a size may depend on which requests share the call: one of its symbols is below 0."""
    return type(dim) is not int and dim[1][0] < 0  # type: ignore[index]  # a type guard for `int` is too slow here


def spaces(dim: Dim) -> list[int]:
    """The symbols below 0; those for which is_space holds are spaces."""
    return [] if isinstance(dim, int) else [each for each in dim.symbols if each < 0]


def is_space(number: int) -> bool:
    return _LAST_SPACE < number < 0


class Symbols:
    """The symbols that are made while one graph is walked (walk.py)."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}  # by operation and operands, or by a loop's key
        self._levels: list[int] = [0]  # of each symbol above 0; 0 is none
        self._space_levels: dict[int, int] = {ROWS: 0}
        self._numbers: set[int] = set()  # symbols that may be below 0
        self._full: set[int] = set()  # spaces with at least one entry in each row
        self._parts: dict[tuple[int, int], int] = {}  # by space and number of parts
        self._one_more: dict[Product, Product] = {}
        self._totals: dict[tuple[int, ...], Product] = {}  # by spaces
        self._varying = 0
        #: How many loops are around the present step.
        self.level = 0
        #: The number of symbols and spaces that were made without a key.
        self.unique = 0

    def derived(self, key: Hashable, *operands: Dim) -> Product:
        """The number that operation key makes of operands; equal keys and operands give the same symbol."""
        whole = (key, operands)
        if whole not in self._known:
            self._known[whole] = self._new(max(map(self.level_of, operands), default=0))
            if key == "-" or not all(map(self.is_size, operands)):
                self._numbers.add(self._known[whole])
        return symbol(self._known[whole])

    def fresh(self) -> Product:
        """An unknown size, in the present iteration of the innermost loop."""
        self.unique += 1
        return symbol(self._new(self.level))

    def any_number(self) -> Product:
        """An unknown number, which may be below 0."""
        found = self.fresh()
        self._numbers.add(found.symbols[0])
        return found

    def is_size(self, dim: Dim) -> bool:
        """Whether a number cannot be below 0."""
        if isinstance(dim, int):
            return dim >= 0
        return dim.factor >= 0 and self._numbers.isdisjoint(dim.symbols)

    def of_loop(self, key: Hashable) -> Product:
        """The size of one axis of a loop's variable, which may change in each iteration.

        Args:
            key: the run of the loop, the variable and the axis.
        """
        self.unique += 1
        whole = ("loop", self.level, key)
        if whole not in self._known:
            self._known[whole] = self._new(self.level)
        return symbol(self._known[whole])

    def new_space(self) -> int:
        self.unique += 1
        space = -1 - len(self._space_levels)
        self._space_levels[space] = self.level
        return space

    def varying(self) -> Product:
        """A number that depends on all rows in some way."""
        self.unique += 1
        self._varying += 1
        return symbol(_VARYING - self._varying)

    def parts(self, space: int, count: int) -> int:
        """The space of `count` parts of each row of a space; for one part the space itself."""
        if count == 1:
            return space
        if (space, count) not in self._parts:
            found = self._parts[space, count] = self.new_space()
            self._space_levels[found] = self._space_levels[space]
        return self._parts[space, count]

    def whole(self, space: int) -> tuple[int, int] | None:
        """The space and the count from which `parts` made a space; None for other spaces."""
        return next((made_of for made_of, found in self._parts.items() if found == space), None)

    def one_more(self, number: Product) -> Product:
        """A multiple of the number of a space, and 1: so many row splits do its entries have."""
        if number not in self._one_more:
            self._one_more[number] = self.varying()
        return self._one_more[number]

    def one_less(self, dim: Dim) -> Product | None:
        """The multiple of the number of a space, for that and 1; None for other numbers."""
        return next((number for number, more in self._one_more.items() if more == dim), None)

    def total(self, a: Dim, b: Dim) -> Product | None:
        """The sum of numbers of spaces, or of such sums; None for other numbers."""
        one, other = self.summed(a), self.summed(b)
        if not one or not other:
            return None
        whole = tuple(sorted(one + other))
        if whole not in self._totals:
            self._totals[whole] = self.varying()
        return self._totals[whole]

    def summed(self, dim: Dim) -> tuple[int, ...]:
        """The spaces, sorted, whose numbers add up to a number; empty for other numbers."""
        if isinstance(dim, int) or len(dim.symbols) != 1:
            return ()
        if is_space(dim.symbols[0]):
            return dim.symbols * dim.factor if 0 < dim.factor <= _MAX_SYMBOLS else ()
        return next((spaces for spaces, total in self._totals.items() if total == dim), ())

    def fill(self, space: int) -> None:
        """Notes that each row has at least one entry of a space."""
        self._full.add(space)

    def is_full(self, space: int) -> bool:
        return space in self._full or space == ROWS

    def level_of(self, dim: Dim) -> int:
        """The level of the innermost loop that a size belongs to; 0 outside of loops."""
        if isinstance(dim, int):
            return 0
        return max(
            [self._levels[each] if each > 0 else self._space_levels.get(each, self.level) for each in dim.symbols]
        )

    def _new(self, level: int) -> int:
        self._levels.append(level)
        return len(self._levels) - 1


def broadcast_dim(symbols: Symbols, a: Dim, b: Dim) -> Dim:
    """The size of a broadcast axis along which no rows lie."""
    if b in {a, 1}:
        return a
    if a == 1:
        return b
    # A number other than 1 is the result: the other size equals it, or is 1.
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else symbols.derived("broadcast", a, b)
