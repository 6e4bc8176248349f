"""Kept rows: copies of rows that were answered, of which a proof of a signature's rows is made.

Rules (test_kept_rows.py)
1. They are bounded: `MOST_ROWS` rows and `MOST_BYTES`, of one dtype and inner shape. `let_go` keeps nothing. Python's
   memory for a row, its arrays and its texts is counted, too: small rows take little else.
2. A row is kept once. Rows that hold NaN or infinity, or have such an answer, are not kept: they agree with too much.
3. There are enough if there are many, of many requests. They show something if each input and each output differs among
   them by more than rounding: a value that is equal for all rows hides that they see each other.
4. When all places are taken, a new row replaces a row that was part of a mix, first of the caller with most rows. While
   the rows show nothing yet, it replaces any row but those that show a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf

import numpy as np

from app.batching.large_requests import part_of
from app.batching.shapes.ragged import RaggedRows
from app.core.agreement import TOLERANCES, agree
from app.core.inference import Array, dtype_name
from app.core.reply import Outputs

#: Rows that are kept of a signature, and their bytes, answers included. Chosen: 16 images of 512 x 512 x 3 floats fit.
MOST_ROWS, MOST_BYTES = 64, 48 << 20

#: The memory of a row beside its values, of an array and of a text. Measured with tracemalloc: 400, 230 and 40.
ROW_BYTES, ARRAY_BYTES, TEXT_BYTES = 448, 256, 48

#: Rows that are taken of one request. Chosen: a few requests of many rows must not fill all places.
_ROWS_OF_A_REQUEST = 4

#: Different rows, and requests that they came from, before the first mix. Chosen: of rows that see a value which one
#: row in four has, 16 rows would prove 1 % to be independent, 32 rows 0.01 %.
LEAST_ROWS, LEAST_REQUESTS = 32, 16

#: The same where callers send no others: the last `_REPEATS` requests brought no new row. Chosen.
_FEWER_ROWS, _FEWER_REQUESTS, _REPEATS = 8, 4, 64

#: Rows that are enough if no more of their size fit into `MOST_BYTES`. Chosen: large rows have many values each.
_FEWEST_ROWS = 4

#: When all places are taken, one request in so many takes the place of another. Chosen.
_ONE_IN = 16

#: After so many consecutive requests of other shapes the kept rows begin anew with theirs. Chosen.
_OTHER_SHAPES = 256


@dataclass(slots=True, eq=False)
class KeptRow:
    """A row that was answered, in copies.

    lone: whether it was the only row of its call.
    mixes: the number of mixes that agreed and that it was part of.
    """

    inputs: Mapping[str, Array]
    answer: Outputs
    caller: str
    request: int
    lone: bool
    mark: bytes
    size: int
    mixes: int = 0


class KeptRows:
    """The kept rows of one signature.

    Attributes:
        bytes: the memory that the rows take.
    """

    def __init__(
        self,
        tolerances: Mapping[str, float] = TOLERANCES,
        ragged: RaggedRows | None = None,
        ragged_outputs: RaggedRows | None = None,
    ) -> None:
        self._tolerances = tolerances
        self._ragged = ragged
        self._ragged_outputs = ragged_outputs

        self.bytes = 0
        self._rows: dict[bytes, KeptRow] = {}
        self._form: tuple[object, ...] = ()
        self._row_bytes = 0  # of the largest row
        self._varied = dict[str, bytes]()  # by input and output, a row that differs from the oldest one
        self._requests = self._repeats = self._others = 0
        self._callers = set[str]()

    @property
    def rows(self) -> Sequence[KeptRow]:
        """The rows, the oldest first."""
        return list(self._rows.values())

    def offer(self, inputs: Mapping[str, Array], answer: Outputs, caller: str = "", room: float = inf) -> None:
        """Keeps rows of a request that was answered, if they show something new.

        Args:
            room: bytes that may be kept in addition.
        """
        if not (rows := self._count(inputs, answer)):
            return
        self._requests += 1
        if len(self._callers) < 2:  # whether there are several
            self._callers.add(caller)
        full = len(self._rows) >= MOST_ROWS or self.bytes + self._row_bytes > MOST_BYTES
        if full and not self.missing and self._requests % _ONE_IN:
            return
        if not self._is_form(inputs, answer):
            return
        step = -(-rows // _ROWS_OF_A_REQUEST)
        new = [self._keep(inputs, answer, caller, place, rows, room) for place in range(0, rows, step)]
        self._repeats = 0 if any(new) else self._repeats + 1

    def _count(self, inputs: Mapping[str, Array], answer: Outputs) -> int:
        """The rows of a request; 0 if inputs and outputs do not have equally many."""
        rows = row_count(inputs, self._ragged)
        return rows if rows > 0 and row_count(answer, self._ragged_outputs) == rows else 0

    def _is_form(self, inputs: Mapping[str, Array], answer: Outputs) -> bool:
        """Whether dtypes and inner shapes are those of the kept rows. Begins anew if these do not come any more."""
        sizes = () if self._ragged is None else self._ragged.sizes(inputs)
        form = *[(name, array.dtype, array.shape[1:]) for name, array in inputs.items()], sizes
        if not self._rows or form == self._form:
            self._form, self._others = form, 0
            return True
        self._others += 1
        if self._others < _OTHER_SHAPES or not self.missing:
            return False
        self.let_go()
        return self._is_form(inputs, answer)

    def _keep(  # noqa: PLR0917 - one call, above
        self, inputs: Mapping[str, Array], answer: Outputs, caller: str, place: int, rows: int, room: float
    ) -> bool:
        """Keeps a row of a request, if there is room. Returns whether it differs from all kept rows."""
        row_inputs = part_of(inputs, place, place + 1, self._ragged)
        mark = _mark(row_inputs)
        if mark in self._rows:
            return False
        answered = part_of(answer, place, place + 1, self._ragged_outputs)
        size = ROW_BYTES + sum([_size(array) for array in (*row_inputs.values(), *answered.values())])
        if not (_is_finite(row_inputs) and _is_finite(answered)):
            return True
        self._row_bytes = max(self._row_bytes, size)
        if not self._make_room(size, room):
            return True
        row = KeptRow(_copied(row_inputs), _copied(answered), caller, self._requests, rows == 1, mark, size)
        self._rows[mark] = row
        self.bytes += size
        self._note_varied(row)
        return True

    def _make_room(self, size: int, room: float) -> bool:
        """Whether there is room; else drops a row for it: of the caller with most rows, the one of most mixes.

        While the rows show nothing yet, any row may be dropped but those that show a difference.
        """
        if len(self._rows) < MOST_ROWS and self.bytes + size <= MOST_BYTES and size <= room:
            return True
        callers = Counter([row.caller for row in self._rows.values()])
        needed, missing = {next(iter(self._rows), b""), *self._varied.values()}, bool(self.missing)
        spare = [row for mark, row in self._rows.items() if mark not in needed and (row.mixes or missing)]
        if not spare:
            return False
        dropped = max(spare, key=lambda row: (callers[row.caller], row.mixes))
        del self._rows[dropped.mark]
        self.bytes -= dropped.size
        return self.bytes + size <= MOST_BYTES and size <= room + dropped.size

    def _note_varied(self, row: KeptRow) -> None:
        """Notes the inputs and outputs that differ from those of the oldest row by more than rounding."""
        first = next(iter(self._rows.values()))
        inputs = self._varying(first)
        for kind, names, one, other in (
            ("input", inputs, first.inputs, row.inputs),
            ("output", first.answer, first.answer, row.answer),
        ):
            for name in names:
                known = f"{kind} {name!r}"
                if known not in self._varied and not agree({name: one[name]}, {name: other[name]}, self._tolerances):
                    self._varied[known] = row.mark

    def _varying(self, row: KeptRow) -> list[str]:
        """The inputs that must differ among rows: all but the shapes of SparseTensors, which are equal in each row."""
        equal = frozenset[str]() if self._ragged is None else self._ragged.equal_names
        return [name for name in row.inputs if name not in equal]

    @property
    def missing(self) -> str:
        """The rows that have to come before something is proven, as a sentence; empty if there are enough."""
        return self.few() or self.same()

    def few(self) -> str:
        """The rows that have to come before a mix is computed, as a sentence; empty if there are enough."""
        rows = self._rows.values()
        fewer = self._repeats >= _REPEATS
        least = _FEWER_ROWS if fewer else LEAST_ROWS
        fitting = max(_FEWEST_ROWS, MOST_BYTES // max(self._row_bytes, 1))
        if len(rows) < min(least, fitting):
            return f"{len(rows)} of {min(least, fitting)} different rows have come"
        requests = len({row.request for row in rows})
        least_requests = min(_FEWER_REQUESTS if fewer else LEAST_REQUESTS, fitting)
        if requests < least_requests:
            return f"different rows of {requests} of {least_requests} requests have come"
        if len(self._callers) > 1 and len({row.caller for row in rows}) == 1:
            return "all rows came from one caller"
        return ""

    def same(self) -> str:
        """The input or output that was the same in all rows, so that they show little; empty if none was."""
        if not self._rows:
            return "no rows have come"
        first = next(iter(self._rows.values()))
        names = [*[f"input {name!r}" for name in self._varying(first)], *[f"output {name!r}" for name in first.answer]]
        return next((f"{name} was the same in all rows" for name in names if name not in self._varied), "")

    def drop(self, row: KeptRow) -> None:
        """Drops a row."""
        if row.mark not in self._rows:
            return
        needed = row.mark in {next(iter(self._rows)), *self._varied.values()}
        del self._rows[row.mark]
        self.bytes -= row.size
        if needed:
            self._varied.clear()
            for each in list(self._rows.values()):
                self._note_varied(each)

    def let_go(self) -> None:
        """Drops all rows."""
        self._rows.clear()
        self._varied.clear()
        self._callers.clear()
        self.bytes = self._row_bytes = self._repeats = self._others = 0


def row_count(arrays: Mapping[str, Array], ragged: RaggedRows | None) -> int:
    """The rows of a request or of its answer; -1 if its arrays have not equally many."""
    if not arrays or any(not array.ndim for array in arrays.values()):
        return -1
    if ragged is not None:
        rows = ragged.count(arrays)
        return -1 if rows < 0 or ragged.misfit(arrays, rows) else rows
    counts = {len(array) for array in arrays.values()}
    return counts.pop() if len(counts) == 1 else -1


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


def _mark(row: Mapping[str, Array]) -> bytes:
    """The digest of a row; equal for equal rows of a form."""
    digest = blake2b(digest_size=16)
    for array in row.values():
        if array.dtype.hasobject:
            for text in array.flat:
                digest.update(b"%d:" % len(text))
                digest.update(text if isinstance(text, bytes) else str(text).encode())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _size(array: Array) -> int:
    texts = sum([TEXT_BYTES + len(text) for text in array.flat]) if array.dtype.hasobject else 0
    return ARRAY_BYTES + array.nbytes + texts


def _is_finite(arrays: Mapping[str, Array]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays.values() if dtype_name(array.dtype) in TOLERANCES)
