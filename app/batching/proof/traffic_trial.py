"""The trial of one signature whose rows are not proven: it chooses the next mix of kept rows, and concludes.

Rules (test_traffic_trial.py)
1. Nothing is computed before there are enough rows (kept_rows.py), and nothing is proven before they show enough.
2. Sizes grow. A size is proven when the mixes of `_MIXES` agreed with the answers that were given before; the first
   proof waits until each kept row was part of a mix.
3. One mix that differs in both of its tries settles the signature for ever. So do two that differ in one try each. A
   row whose difference rounding explains proves nothing: its mix does not count, and the row is kept no longer.
4. The proof is one of equal inner shapes: requests of other shapes share calls by the proof of their padding only.
5. Once it is settled, or `end` is called, no rows are kept.

It lives on the event loop. traffic_proof.py decides when mixes are computed, row_mixes.py computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from app.batching.proof.kept_rows import KeptRow, KeptRows
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array
from app.core.reply import Outputs

#: The mixes of a size: whether it is filled with padding, and whether the plain model computes it. Chosen: three of
#: different rows in each way.
_MIXES = ((False, True), (False, False), (True, True), (True, False), (False, True), (False, False))

#: The first proof is told at this size, or at the largest one if that is smaller. Chosen: versions are ready with that.
_FIRST_ROWS = 8

#: Seconds that a mix may be expected to take. Chosen: requests that arrive meanwhile wait for it.
LONGEST_S = 1.5

#: Times that the model may refuse or fail at a size before it is left out. Chosen.
_REFUSALS = 2

#: Mixes with a difference that rounding explained, before the trial ends: so many, and one more for each so many that
#: agreed. Chosen: the rows that stay without them were chosen by their agreement, so such mixes must be few.
_MOST_ROUNDED, _AGREED_FOR_ONE_MORE = 2, 16

AGREES, MIXES, DOUBTFUL, ROUNDED = "agrees", "mixes", "doubtful", "rounded"
RANDOM, VARIANT, REFUSED = "random", "variant", "refused"

MIXES_ROWS = "a trial with rows of requests found that a row's answer depends on the other rows"
IS_RANDOM = "equal calls of the model give different answers"


class TrafficFound(NamedTuple):
    """The result of a trial.

    rows: the most rows of a shared call; 1 if each request runs alone.
    reason: why there are no more; empty if that is the largest size, or if larger ones are still to be tried.
    disproved: its rows see each other, or its answers are random: earlier proofs of it do not hold.
    """

    rows: int
    reason: str = ""
    disproved: bool = False


class Mix(NamedTuple):
    """A mix: rows to compute together in a call of `size` rows; by the plain model, or in the way of requests."""

    rows: Sequence[KeptRow]
    size: int
    plain: bool


class MixResult(NamedTuple):
    """The result of a mix.

    verdict: AGREES, MIXES, DOUBTFUL (it differed in one of two tries), ROUNDED (rounding explains the difference),
    RANDOM, VARIANT (the way of requests answers otherwise than the plain model) or REFUSED.
    reason: the words of the model.
    rounded: the rows whose differences rounding explains.
    """

    verdict: str
    reason: str = ""
    rounded: Sequence[KeptRow] = ()


class TrafficTrial:
    """The trial of one signature.

    Args:
        sizes: the row counts that calls may have.
        found: called when rows are proven or disproved.
        kept: keeps the rows; by default of a signature without ragged rows.
        proven: the rows of calls that were proven before.

    Attributes:
        ended: true once it is settled or given up; no rows are kept from then on.
        tried_rows: the rows of the largest size that is proven.
    """

    def __init__(
        self,
        sizes: BatchSizes,
        found: Callable[[TrafficFound], None],
        kept: KeptRows | None = None,
        proven: int = 1,
    ) -> None:
        # --- the rows ---
        self._found = found
        self._kept = kept or KeptRows()

        # --- the findings ---
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

    # --- kept rows ---

    @property
    def bytes(self) -> int:
        """The memory of the kept rows."""
        return self._kept.bytes

    @property
    def missing(self) -> str:
        """The rows that have to come before something is proven, as a sentence; empty if there are enough."""
        return self._kept.missing

    def offer(self, inputs: Mapping[str, Array], answer: Outputs, caller: str = "", room: float = inf) -> None:
        """Keeps rows of a request that was answered, if they show something new.

        Args:
            room: bytes that may be kept in addition.
        """
        if self.ended:
            return
        same = self._kept.same()
        self._kept.offer(inputs, answer, caller, room)
        self._begin_anew(same)

    def _begin_anew(self, same: str) -> None:
        """Begins anew if `same`, an input or output, was the same in all rows: agreement showed little so far."""
        if same and not self._told and not self._kept.same():
            self._begin_sizes(1)

    # --- mixes ---

    def next_mix(self, call_s: float) -> Mix | None:
        """The next mix to compute; None if there are too few rows, or the trial is settled.

        Args:
            call_s: the seconds of a call of one request.
        """
        if self.ended or self._kept.few() or (self._agreed >= len(_MIXES) and self._kept.same()):
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
        """`count` rows in random order, of two requests at least; rows of few mixes are preferred."""
        rows = self._kept.rows
        order = [rows[place] for place in self._random.permutation(len(rows))]
        order.sort(key=lambda row: row.mixes)
        chosen = [order[place % len(order)] for place in range(count)]
        strangers = [row for row in order if row.request != chosen[0].request]
        if strangers and all(row.request == chosen[0].request for row in chosen[1:]) and count > 1:
            chosen[-1] = strangers[0]
        return [chosen[place] for place in self._random.permutation(count)]

    def record(self, mix: Mix, result: MixResult, seconds: float) -> None:
        """Concludes from a mix that was computed."""
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
        # 1. Count the rows that stood beside others.
        for row in mix.rows if len(mix.rows) > 1 else ():
            row.mixes += 1
        self._agreed += 1
        self._agreed_in_all += 1
        first_proof = not self._told and (mix.size >= _FIRST_ROWS or len(self._sizes) == 1)
        if self._agreed < len(_MIXES):
            return
        if first_proof and (self._kept.same() or any(not row.mixes for row in self._kept.rows)):
            return

        # 2. The size is proven. The next one is expected to take longer in proportion to its rows.
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
        same = self._kept.same()
        for row in rounded:
            self._kept.drop(row)
        self._begin_anew(same)

    # --- the end ---

    def disprove(self, reason: str) -> None:
        """Ends the trial: another check found that calls must not be shared."""
        if not self.ended:
            self._settle(TrafficFound(1, reason, disproved=True))

    def give_up(self, reason: str) -> None:
        """Ends the trial: no more can be proven; proven sizes stay."""
        if not self.ended:
            self._settle(TrafficFound(self.tried_rows, reason))

    def end(self) -> None:
        """Ends the trial without a result."""
        self.ended = True
        self._kept.let_go()

    def _settle(self, found: TrafficFound) -> None:
        self._settled = True
        self.end()
        self._found(found)

    def __repr__(self) -> str:
        state = "ended" if self.ended else self.missing or f"trying {self._sizes[0]}"
        return f"<TrafficTrial proven up to {self.tried_rows} rows, {len(self._kept.rows)} kept, {state}>"


def rungs(sizes: BatchSizes) -> Iterator[int]:
    """The sizes of more than one row that are tried: each at least twice the one before, and the largest."""
    last = 1
    for rows in sizes.allowed:
        if rows >= 2 * last or (rows == sizes.largest and rows > 1):
            last = rows
            yield rows
