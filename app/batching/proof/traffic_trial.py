"""The trial of one signature whose rows are not proven: what is kept of its requests, and which mix is computed next.

Rules (test_traffic_trial.py)
1. What is kept is bounded: `MOST_ROWS` rows and `MOST_BYTES`, of one dtype and inner shape. `end` lets all of it go.
2. A row is kept once. Rows that hold NaN or infinity, or have such an answer, are not kept: they agree with too much.
3. Nothing is computed before there are enough rows, of enough requests, and nothing is proven before each input and
   each output differs among them by more than rounding: what is equal for all rows hides that they see each other.
4. Sizes grow. A size is proven when the mixes of `_MIXES` agreed with the answers that were given before; the first
   proof waits until each kept row was part of a mix.
5. One mix that differs in both of its tries settles the signature for ever. So do two that differ in one try each. A
   row whose difference rounding explains proves nothing: its mix does not count, and the row is kept no longer.
6. The proof is one of equal inner shapes: requests of other shapes share calls by the proof of their padding only.

It lives on the event loop. When mixes are computed is said in traffic_proof.py, how in row_mixes.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import NamedTuple

import numpy as np

from app.batching.shapes.ragged import RaggedRows
from app.core.agreement import TOLERANCES, agree
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, dtype_name
from app.core.reply import Outputs

#: Rows that are kept of a signature, and their bytes, answers included. Chosen: 16 images of 512 x 512 x 3 floats fit.
MOST_ROWS, MOST_BYTES = 64, 48 << 20

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

#: So many requests of other shapes in turn, and what is kept begins anew with theirs. Chosen.
_OTHER_SHAPES = 256

#: The mixes of a size: whether it is filled with padding, and whether the plain model computes it. Chosen: three of
#: different rows in each way.
_MIXES = ((False, True), (False, False), (True, True), (True, False), (False, True), (False, False))

#: The first proof is told at this size, or at the largest one if that is smaller. Chosen: versions are ready with that.
_FIRST_ROWS = 8

#: Seconds that a mix may be expected to take. Chosen: requests that arrive meanwhile wait for it.
LONGEST_S = 1.5

#: Times that the model may refuse or fail at a size before it is left out. Chosen.
_REFUSALS = 2

#: Mixes of which rounding explained a difference, before the trial ends: so many, and one more for each so many that
#: agreed. Chosen: what is left without such rows is chosen by their agreement, so they must be few.
_MOST_ROUNDED, _AGREED_FOR_ONE_MORE = 2, 16

AGREES, MIXES, DOUBTFUL, ROUNDED = "agrees", "mixes", "doubtful", "rounded"
RANDOM, VARIANT, REFUSED = "random", "variant", "refused"

MIXES_ROWS = "a trial with rows of requests found that a row's answer depends on the other rows"
IS_RANDOM = "equal calls of the model give different answers"


class TrafficFound(NamedTuple):
    """What requests proved of a signature.

    rows: the most of a call that may be shared; 1 if each request runs alone.
    reason: why not more; empty if that is the largest size, or if larger ones are still to be tried.
    disproved: its rows see each other, or its answers are random: what was proven of it before does not hold.
    """

    rows: int
    reason: str = ""
    disproved: bool = False


@dataclass(slots=True, eq=False)
class KeptRow:
    """A row that was answered, in copies.

    lone: whether it was the only row of its call.
    mixes: how many mixes it was part of that agreed.
    """

    inputs: Mapping[str, Array]
    answer: Outputs
    caller: str
    request: int
    lone: bool
    mark: bytes
    size: int
    mixes: int = 0


class Mix(NamedTuple):
    """Rows to compute together in a call of `size` rows; by the plain model, or in the way of requests."""

    rows: Sequence[KeptRow]
    size: int
    plain: bool


class MixResult(NamedTuple):
    """What became of a mix.

    verdict: AGREES, MIXES, DOUBTFUL (it differed in one of two tries), ROUNDED (rounding explains what differs),
    RANDOM, VARIANT (the way of requests answers otherwise than the plain model) or REFUSED.
    reason: what the model said.
    rounded: the rows whose differences rounding explains.
    """

    verdict: str
    reason: str = ""
    rounded: Sequence[KeptRow] = ()


class TrafficTrial:
    """What was kept and found of one signature.

    Args:
        sizes: the row counts that calls may have.
        found: called when something is proven or disproved.
        proven: the rows of calls that were proven before.

    Attributes:
        ended: true once it is settled or given up; nothing is kept from then on.
        tried_rows: those of the largest size that is proven.
    """

    def __init__(
        self,
        sizes: BatchSizes,
        found: Callable[[TrafficFound], None],
        *,
        tolerances: Mapping[str, float] = TOLERANCES,
        ragged: RaggedRows | None = None,
        ragged_outputs: RaggedRows | None = None,
        proven: int = 1,
    ) -> None:
        # --- what it is about ---
        self._found = found
        self._tolerances = tolerances
        self._ragged = ragged
        self._ragged_outputs = ragged_outputs

        # --- what is kept ---
        self._rows: dict[bytes, KeptRow] = {}
        self._form: tuple[object, ...] = ()
        self._bytes = 0
        self._row_bytes = 0  # of the largest row
        self._varied = dict[str, bytes]()  # by input and output, a row that differs from the oldest one
        self._requests = self._repeats = self._others = 0
        self._callers = set[str]()

        # --- what was found ---
        self._random = np.random.default_rng(sizes.largest)
        self._rungs = tuple(rungs(sizes))
        self._told = proven > 1
        self._settled = False
        self._doubts = self._rounded = self._agreed_in_all = 0
        self._begin_sizes(proven)
        self.ended = not self._sizes

    def _begin_sizes(self, proven: int) -> None:
        self.tried_rows = proven
        self._sizes = [rows for rows in self._rungs if rows > proven]
        self._agreed = self._refusals = 0
        self._best_s = inf  # of a mix of the size that is tried

    # --- what is kept ---

    @property
    def bytes(self) -> int:
        """Those that are kept."""
        return self._bytes

    def offer(self, inputs: Mapping[str, Array], answer: Outputs, caller: str = "", room: float = inf) -> None:
        """A request was answered: rows of it are kept if they show something new.

        Args:
            room: bytes that may be kept in addition.
        """
        if self.ended or not (rows := self._count(inputs, answer)):
            return
        self._requests += 1
        if len(self._callers) < 2:  # whether there are several
            self._callers.add(caller)
        full = len(self._rows) >= MOST_ROWS or self._bytes + self._row_bytes > MOST_BYTES
        if full and not self.missing and self._requests % _ONE_IN:
            return
        if not self._is_form(inputs, answer):
            return
        step = max(1, rows // _ROWS_OF_A_REQUEST)
        new = [self._keep(inputs, answer, caller, place, rows, room) for place in range(0, rows, step)]
        self._repeats = 0 if any(new) else self._repeats + 1

    def _count(self, inputs: Mapping[str, Array], answer: Outputs) -> int:
        """The rows of a request; 0 if inputs and outputs do not have equally many."""
        rows = row_count(inputs, self._ragged)
        return rows if rows > 0 and row_count(answer, self._ragged_outputs) == rows else 0

    def _is_form(self, inputs: Mapping[str, Array], answer: Outputs) -> bool:
        """Whether dtypes and inner shapes are those of what is kept. Begins anew if these do not come any more."""
        form = tuple([(name, array.dtype, array.shape[1:]) for name, array in inputs.items()])
        if not self._rows or form == self._form:
            self._form, self._others = form, 0
            return True
        self._others += 1
        if self._others < _OTHER_SHAPES or not self.missing:
            return False
        self._let_go()
        return self._is_form(inputs, answer)

    def _keep(  # noqa: PLR0917 - one call, above
        self, inputs: Mapping[str, Array], answer: Outputs, caller: str, place: int, rows: int, room: float
    ) -> bool:
        own = _row(inputs, place, self._ragged)
        mark = _mark(own)
        if mark in self._rows:
            return False
        answered = _row(answer, place, self._ragged_outputs)
        size = sum([_size(array) for array in (*own.values(), *answered.values())])
        if not (_is_finite(own) and _is_finite(answered)):
            return False
        self._row_bytes = max(self._row_bytes, size)
        if not self._make_room(size, room):
            return False
        row = KeptRow(_copied(own), _copied(answered), caller, self._requests, rows == 1, mark, size)
        self._rows[mark] = row
        self._bytes += size
        self._note_varied(row)
        return True

    def _make_room(self, size: int, room: float) -> bool:
        """Drops a row, if there is no room: of the caller of most rows, the one of most mixes.

        While nothing can be computed that may be any row but those by which others are known to differ.
        """
        if len(self._rows) < MOST_ROWS and self._bytes + size <= MOST_BYTES and size <= room:
            return True
        callers = Counter([row.caller for row in self._rows.values()])
        needed, missing = {next(iter(self._rows), b""), *self._varied.values()}, bool(self.missing)
        spare = [row for mark, row in self._rows.items() if mark not in needed and (row.mixes or missing)]
        if not spare:
            return False
        dropped = max(spare, key=lambda row: (callers[row.caller], row.mixes))
        del self._rows[dropped.mark]
        self._bytes -= dropped.size
        return self._bytes + size <= MOST_BYTES and size <= room + dropped.size

    def _note_varied(self, row: KeptRow) -> None:
        """Which inputs and outputs differ from those of the oldest row, by more than rounding."""
        first = next(iter(self._rows.values()))
        for kind, one, other in (("input", first.inputs, row.inputs), ("output", first.answer, row.answer)):
            for name in one:
                known = f"{kind} {name!r}"
                if known not in self._varied and not agree({name: one[name]}, {name: other[name]}, self._tolerances):
                    self._varied[known] = row.mark
                    if not self._told and not self._same():  # what agreed before showed little
                        self._begin_sizes(1)

    @property
    def missing(self) -> str:
        """What has to come before something is proven; empty if there is enough."""
        return self._few() or self._same()

    def _few(self) -> str:
        """Which rows have to come before a mix is computed; empty if there are enough."""
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

    def _same(self) -> str:
        """What was the same in all rows."""
        first = next(iter(self._rows.values()))
        names = [*[f"input {name!r}" for name in first.inputs], *[f"output {name!r}" for name in first.answer]]
        return next((f"{name} was the same in all rows" for name in names if name not in self._varied), "")

    # --- mixes ---

    def next_mix(self, call_s: float) -> Mix | None:
        """What is to be computed next; None if nothing can be said yet, or it is settled.

        Args:
            call_s: seconds that a call of one request took.
        """
        if self.ended or self._few() or (self._agreed >= len(_MIXES) and self._same()):
            return None
        size = self._sizes[0]
        if self.tried_rows == 1 and self._best_s == inf and size * call_s > LONGEST_S:
            self._settle(
                TrafficFound(1, f"a call of {size} rows would take too long to try: about {size * call_s:.1f} s")
            )
            return None
        padded, plain = _MIXES[self._agreed % len(_MIXES)]
        return Mix(self._chosen(size // 2 + (size > 2) if padded else size), size, plain)

    def _chosen(self, count: int) -> list[KeptRow]:
        """So many rows in a new order, those first that were part of the fewest mixes, of two requests at least."""
        rows = list(self._rows.values())
        order = [rows[place] for place in self._random.permutation(len(rows))]
        order.sort(key=lambda row: row.mixes)
        chosen = [order[place % len(order)] for place in range(count)]
        strangers = [row for row in order if row.request != chosen[0].request]
        if strangers and all(row.request == chosen[0].request for row in chosen[1:]) and count > 1:
            chosen[-1] = strangers[0]
        return [chosen[place] for place in self._random.permutation(count)]

    def record(self, mix: Mix, result: MixResult, seconds: float) -> None:
        """A mix was computed, in so many seconds."""
        verdict, reason, rounded = result
        if verdict in {MIXES, RANDOM} and not self._settled:  # also if it ended meanwhile: what it found holds
            self._settle(TrafficFound(1, IS_RANDOM if verdict == RANDOM else reason or MIXES_ROWS, disproved=True))
        if self.ended:
            return
        self._best_s = min(self._best_s, seconds)
        if verdict == AGREES:
            self._record_agreement(mix)
        elif verdict == REFUSED:
            self._refusals += 1
            if self._refusals >= _REFUSALS:
                self._settle(TrafficFound(self.tried_rows, f"calls of {mix.size} rows: {reason}"))
        elif verdict == DOUBTFUL and not self._doubts:
            self._doubts += 1
        elif verdict == ROUNDED:
            self._record_rounding(rounded)
        elif verdict == DOUBTFUL:
            self._settle(TrafficFound(1, MIXES_ROWS, disproved=True))
        else:
            self._agreed = 0  # the way of requests is another one from now on

    def _record_agreement(self, mix: Mix) -> None:
        # 1. The rows that stood beside others.
        for row in mix.rows if len(mix.rows) > 1 else ():
            row.mixes += 1
        self._agreed += 1
        self._agreed_in_all += 1
        first_proof = not self._told and (mix.size >= _FIRST_ROWS or len(self._sizes) == 1)
        if self._agreed < len(_MIXES):
            return
        if first_proof and (self._same() or any(not row.mixes for row in self._rows.values())):
            return

        # 2. A size is proven; the next one may take as many times as long as it is larger.
        self.tried_rows = self._sizes.pop(0)
        next_s = self._best_s * self._sizes[0] / self.tried_rows if self._sizes else 0.0
        self._agreed = self._refusals = 0
        self._best_s = inf
        if not self._sizes:
            self._settle(TrafficFound(self.tried_rows))
        elif next_s > LONGEST_S:
            reason = f"a call of {self._sizes[0]} rows would take too long to try: about {next_s:.1f} s"
            self._settle(TrafficFound(self.tried_rows, reason))
        elif first_proof:
            self._told = True
            self._found(TrafficFound(self.tried_rows))

    def _record_rounding(self, rounded: Sequence[KeptRow]) -> None:
        self._rounded += 1
        if self._rounded > _MOST_ROUNDED + self._agreed_in_all // _AGREED_FOR_ONE_MORE:
            self.give_up("rounding alone changes its answers, so they do not show whether rows see each other")
        for row in rounded:
            self._drop(row)

    def _drop(self, row: KeptRow) -> None:
        if row.mark not in self._rows:
            return
        needed = row.mark in {next(iter(self._rows)), *self._varied.values()}
        del self._rows[row.mark]
        self._bytes -= row.size
        if needed:
            self._varied.clear()
            for each in list(self._rows.values()):
                self._note_varied(each)

    # --- the end ---

    def disprove(self, reason: str) -> None:
        """It was found out elsewhere that calls must not be shared."""
        if not self.ended:
            self._settle(TrafficFound(1, reason, disproved=True))

    def give_up(self, reason: str) -> None:
        """No more can be found; what is proven stays."""
        if not self.ended:
            self._settle(TrafficFound(self.tried_rows, reason))

    def end(self) -> None:
        """Nothing is kept or found any more."""
        self.ended = True
        self._let_go()

    def _settle(self, found: TrafficFound) -> None:
        self._settled = True
        self.end()
        self._found(found)

    def _let_go(self) -> None:
        self._rows.clear()
        self._varied.clear()
        self._callers.clear()
        self._bytes = self._row_bytes = self._repeats = self._others = 0

    def __repr__(self) -> str:
        state = "ended" if self.ended else self.missing or f"trying {self._sizes[0]}"
        return f"<TrafficTrial proven up to {self.tried_rows} rows, {len(self._rows)} kept, {state}>"


def rungs(sizes: BatchSizes) -> Iterator[int]:
    """The sizes of more than one row that are tried: each at least twice the one before, and the largest."""
    last = 1
    for rows in sizes.allowed:
        if rows >= 2 * last or (rows == sizes.largest and rows > 1):
            last = rows
            yield rows


def row_count(arrays: Mapping[str, Array], ragged: RaggedRows | None) -> int:
    """The rows of a request or of its answer; -1 if its arrays have not equally many."""
    if not arrays or any(not array.ndim for array in arrays.values()):
        return -1
    if ragged is not None:
        splits = next(iter(ragged.splits.values()))[0]
        rows = len(arrays[splits]) - 1 if splits in arrays else -1
        return -1 if rows < 0 or ragged.misfit(arrays, rows) else rows
    counts = {len(array) for array in arrays.values()}
    return counts.pop() if len(counts) == 1 else -1


def _row(arrays: Mapping[str, Array], place: int, ragged: RaggedRows | None) -> dict[str, Array]:
    if ragged is not None:
        return ragged.part(arrays, place, place + 1)
    return {name: array[place : place + 1] for name, array in arrays.items()}


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


def _mark(row: Mapping[str, Array]) -> bytes:
    """Equal for equal rows of a form."""
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
    return array.nbytes + (sum([len(text) for text in array.flat]) if array.dtype.hasobject else 0)


def _is_finite(arrays: Mapping[str, Array]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays.values() if dtype_name(array.dtype) in TOLERANCES)
