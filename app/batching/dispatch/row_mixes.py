"""Row mixes: rows of several requests in one call, compared with their earlier answers. Runs on a device thread.

1. The rows are joined, padded and split as those of a batch (`run_together`).
2. A row whose answer differs is computed alone, twice: equal calls that differ prove nothing. A difference that moved
   inputs explain is rounding, and says nothing. A lone row that alone gets the mix's answer was answered by a variant:
   shadow checks find that.
3. Rows that still differ are tried once more, in the reverse order. If they differ there, too, they see each other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from app.batching.batch import RowCountMismatch, run_together
from app.batching.dispatch.shadow_check import is_rounding
from app.batching.function import BatchFunction, PlainWay, Run
from app.batching.proof.kept_rows import KeptRow
from app.batching.proof.traffic_trial import (
    AGREES,
    DOUBTFUL,
    MIXES,
    RANDOM,
    REFUSED,
    ROUNDED,
    VARIANT,
    Mix,
    MixResult,
)  # fmt: skip
from app.batching.request import PendingRequest
from app.core.agreement import agree
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.reply import ANSWERED, Outputs
from app.core.values.rounding import Rounding

logger = logging.getLogger(__name__)

#: Rows of a mix that differ and are computed alone. Chosen.
_MOST_SUSPECTS = 4


def compute_mix(function: BatchFunction, plain: PlainWay, mix: Mix) -> MixResult:
    """Whether each row of the mix gets the answer that it got before. Blocking; never raises."""
    try:
        computation = _Computation(function, plain, mix)
        return MixResult(computation.verdict(), rounded=computation.rounded)
    except RowCountMismatch as mismatch:
        return MixResult(
            MIXES, f"a trial with rows of requests found that the outputs do not follow the rows: {mismatch}"
        )
    except ServingError as error:
        return MixResult(REFUSED, str(error))
    except Exception:
        logger.exception("A trial with rows of requests failed")
        return MixResult(REFUSED, "a trial with rows of requests failed")


class _Computation:
    def __init__(self, function: BatchFunction, plain: PlainWay, mix: Mix) -> None:
        self._function = function
        self._plain = plain
        self._mix = mix
        self._rounding = Rounding(plain.run, plain.tolerances)
        self.rounded: list[KeptRow] = []

    def verdict(self) -> str:
        rows = self._mix.rows
        got = self._together(rows, self._plain.run if self._mix.plain else self._function.run)
        if not self._differing(rows, got):
            return AGREES

        # 1. Does the way of requests differ from the plain model, for equal inputs?
        if not self._mix.plain:
            expected = self._together(rows, self._plain.run)
            if not all(self._agree(one, other) for one, other in zip(expected, got, strict=True)):
                return VARIANT
        if (found := self._judge(rows, got)) != MIXES:
            return found

        # 2. Once more, in the reverse order.
        reverse = rows[::-1]
        again = self._judge(reverse, self._together(reverse, self._plain.run))
        return again if again in {MIXES, RANDOM} else DOUBTFUL

    def _together(self, rows: Sequence[KeptRow], run: Run) -> Sequence[Outputs]:
        """The answers of the rows in one call of the mix's size."""
        function = BatchFunction(
            run,
            BatchSizes((self._mix.size,)),
            ragged=self._function.ragged,
            ragged_outputs=self._function.ragged_outputs,
        )
        return run_together(function, [PendingRequest(row.inputs, 1, ANSWERED, 0.0) for row in rows], run)

    def _judge(self, rows: Sequence[KeptRow], got: Sequence[Outputs]) -> str:
        """The verdict on the answers of a mix: AGREES, ROUNDED, RANDOM or MIXES."""
        for place in self._differing(rows, got)[:_MOST_SUSPECTS]:
            row = rows[place]
            alone, again = self._plain.run(row.inputs), self._plain.run(row.inputs)
            if not self._agree(alone, again):
                return RANDOM
            # A row that had other rows in its request may have seen them.
            unlike = [
                each for each in (got[place], *(() if row.lone else (row.answer,))) if not self._agree(alone, each)
            ]
            if not all(is_rounding(self._rounding, row.inputs, alone, each) for each in unlike):
                return MIXES
            if unlike:
                self.rounded.append(row)
        return ROUNDED if self.rounded else AGREES

    def _differing(self, rows: Sequence[KeptRow], got: Sequence[Outputs]) -> list[int]:
        return [
            place
            for place, (row, answer) in enumerate(zip(rows, got, strict=True))
            if not self._agree(row.answer, answer)
        ]

    def _agree(self, one: Outputs, other: Outputs) -> bool:
        return agree(one, other, self._plain.tolerances)
