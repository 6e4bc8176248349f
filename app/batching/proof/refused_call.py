"""Refused calls: whether the values of a call that the model rejected are to blame, its padding, or its rows' number.

A model may take fewer rows in a call than its batches have: an assertion says so, or an inner buffer is fixed.

Rules (test_refused_call.py)
1. A request alone is not judged by its padding: it is computed again without, which takes one call.
2. Whether the number of rows is to blame is searched for with repetitions of one row. When, says row_limit.py.
3. Each call that is made here is counted and told (CallRepeated). Its time is part of that of the batch.

It runs where the batch is executed, and changes nothing: its findings are recorded on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from app.batching.large_requests import join, part_of
from app.batching.proof.row_limit import RowLimit
from app.batching.request import PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes, most_accepted
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import NO_TIME, Array
from app.core.reply import Answer, Outcome, Outputs

logger = logging.getLogger(__name__)

#: The reasons for making a call again.
WITHOUT_PADDING, IN_PARTS, SEARCH = "without_padding", "in_parts", "search"


#: A call of a model: from inputs to outputs, by name.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class CalledFunction(Protocol):
    """BatchFunction (function.py), as it is used here: that file imports this folder."""

    sizes: BatchSizes
    ragged: RaggedRows | None
    ragged_outputs: RaggedRows | None
    row_limit: RowLimit


class RepeatedCall(NamedTuple):
    """A call that was made because another one was rejected. accepted: whether it succeeded."""

    why: str
    accepted: bool


class Refusal(NamedTuple):
    """The findings about a call that was rejected.

    Attributes:
        rows: the rows of the call, padding included.
        outcome: the outcome of its only request, if it was computed in other calls; None if the rejection stands.
        found: the number of equal rows that the model takes, at most `rows`, 0 for none; None if none was searched for.
        calls: the calls that were made for that.
    """

    rows: int
    outcome: Outcome | None
    found: int | None
    calls: Sequence[RepeatedCall]


def look_into(function: CalledFunction, requests: Sequence[PendingRequest], run: Run) -> Refusal:
    """Finds why the model rejected a call of these requests. Never raises."""
    refused = _RefusedCall(function, requests, run)
    outcome: Outcome | None = None
    try:
        outcome = refused.outcome()
    except Exception as raised:  # of a call that finds out why: it is no request's
        logger.debug("Why a model rejects a call could not be found: %s", raised)
    return Refusal(refused.rows, outcome, refused.found, refused.calls)


class _RefusedCall:
    def __init__(self, function: CalledFunction, requests: Sequence[PendingRequest], run: Run) -> None:
        self.function = function
        self.requests = requests
        self.own_rows = sum([request.rows for request in requests])
        self.rows = function.sizes.padded(self.own_rows)
        self.found: int | None = None
        self.calls: list[RepeatedCall] = []
        self._run = run

    def outcome(self) -> Outcome | None:
        """The outcome of the only request, if it was answered, or failed, in other calls than the rejected one."""
        first, limit = self.requests[0], self.function.row_limit

        # 1. Several requests are run again in smaller groups. If the end of others has shown that their number may be
        #    to blame, it is tried how many rows the model takes.
        if len(self.requests) > 1 or first.coalesced_s:
            if self.rows >= limit.suspected_rows > limit.accepted_rows and limit.is_sought(self.rows):
                self._search(next(request for request in self.requests if request.rows))
            return None
        if first.feeds or first.supplied or not self.own_rows:
            return None

        # 2. Without its padding. Whether that or the number of rows is refused, is found once for each size.
        if self.own_rows < self.rows and (answer := self._without_padding(first)) is not None:
            if limit.is_sought(self.rows):
                self._search(first)
            return answer

        # 3. It may have more rows than the model takes.
        most_rows = limit.most_rows
        if not most_rows and limit.is_sought(self.rows):
            most_rows = self._search(first)
        return self._in_parts(first, most_rows) if 1 < most_rows < self.own_rows else None

    def _without_padding(self, request: PendingRequest) -> Outcome | None:
        try:
            return self._compute(request, self.own_rows, WITHOUT_PADDING)
        except InvalidRequest:
            return None

    def _in_parts(self, request: PendingRequest, most_rows: int) -> Outcome:
        try:
            return self._compute(request, most_rows, IN_PARTS)
        except ServingError as raised:
            raised.__cause__ = raised.__context__ = None  # their frames hold the tensors of the request
            return raised.with_traceback(None)

    def _compute(self, request: PendingRequest, most_rows: int, why: str) -> Outputs:
        """The outputs of the request, in calls of its own rows alone, at most `most_rows` in each."""
        ragged = self.function.ragged
        starts = range(0, request.rows, most_rows)
        rows = [min(most_rows, request.rows - start) for start in starts]
        answers = [
            Answer(self._call(part_of(request.inputs, start, start + count, ragged), why), NO_TIME)
            for start, count in zip(starts, rows, strict=True)
        ]
        return join(answers, rows, self.function.ragged_outputs).outputs

    def _search(self, request: PendingRequest) -> int:
        """The number of repetitions of the request's first row that the model takes; 0 for none.

        An assertion that no two rows are equal does not deceive this: it rejects two of them, too.
        """
        ragged = self.function.ragged
        row = part_of(request.inputs, 0, 1, ragged)

        def accepts(rows: int) -> bool:
            try:
                self._call(_repeated(row, rows, ragged), SEARCH)
            except InvalidRequest:
                return False
            return True

        # A row that is refused by itself says nothing: that is tried first, since it costs least.
        if not accepts(1):
            self.found = 0
        elif accepts(self.rows):
            self.found = self.rows
        else:
            self.found = most_accepted(accepts, 1, self.rows)
        return self.found

    def _call(self, inputs: Mapping[str, Array], why: str) -> dict[str, Array]:
        accepted = False
        try:
            outputs = self._run(inputs)
            accepted = True
            return outputs
        finally:
            self.calls.append(RepeatedCall(why, accepted))


def _repeated(row: Mapping[str, Array], rows: int, ragged: RaggedRows | None) -> dict[str, Array]:
    if ragged is not None:
        return ragged.join([row] * rows, rows, rows)
    return {name: np.repeat(array, rows, axis=0) for name, array in row.items()}
