"""Requests that may share a call, in order of arrival and priority. Pure."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice, takewhile
from typing import NamedTuple

from app.batching.cost_curve import CostCurve
from app.batching.function import BatchFunction
from app.batching.pending import PendingRequest


class LaneKey(NamedTuple):
    """Requests with equal keys may share one call of a model.

    `shape` holds the inner shape (all dimensions but the first) of each input; of requests that are padded
    to share a call, the one that bounds their bucket.
    """

    model: str
    version: int
    signature: str
    outputs: tuple[str, ...] = ()
    shape: tuple[tuple[int, ...], ...] = ()
    padded: bool = False


class Lane:
    """First come, first served; a head start moves a request forward past those that came within it.

    mixed: there was a head start, so the head need not be the oldest.
    unsorted: a deadline came that lies before an earlier one's, so the head need not be the most urgent.
    cut: something in it is computed in parts.
    later_rows: those of large requests that enter again before they are computed, as they exceed `largest`.
    unfilled_rows: those that calls are short of being full, as a request is not split to fill them; see `unfilled`.
    """

    __slots__ = (
        "_latest_deadline_s", "_most_urgent", "costs", "cut", "function", "key", "largest", "later_rows", "mixed",
        "rows", "unfilled_rows", "unsorted", "waiting",
    )  # fmt: skip

    def __init__(self, key: LaneKey, function: BatchFunction) -> None:
        self.key = key
        self.function = function
        self.costs = function.costs(key.shape)
        self.waiting: OrderedDict[PendingRequest, None] = OrderedDict()
        self.largest = function.max_rows
        self.rows = 0
        self.later_rows = 0
        self.unfilled_rows = 0
        self.mixed = self.unsorted = self.cut = False
        self._latest_deadline_s = 0.0
        self._most_urgent: PendingRequest | None = None

    def add(self, request: PendingRequest) -> None:
        """Puts the request behind everyone of its rank and before."""
        self.waiting[request] = None
        request.lane = self
        if request.deadline_s < self._latest_deadline_s:
            self.unsorted = True
            if self._most_urgent is not None and request.urgency_s < self._most_urgent.urgency_s:
                self._most_urgent = request
        else:
            self._latest_deadline_s = request.deadline_s
        if request.head_start_s:
            self.mixed = True
        if self.mixed:
            self._overtake(request)

    def enter_again(self, request: PendingRequest, now: float) -> None:
        """Puts what is left of a request behind those that wait: it had its turn."""
        request.entered_s = now
        self.cut = True
        self.waiting.move_to_end(request)
        self._most_urgent = None
        self.unsorted |= request.deadline_s < self._latest_deadline_s
        self._latest_deadline_s = max(self._latest_deadline_s, request.deadline_s)
        if self.mixed:
            self._overtake(request)

    def _overtake(self, request: PendingRequest) -> None:
        self._most_urgent = None
        others = islice(reversed(self.waiting), 1, None)
        overtaken = list(takewhile(lambda other: other.rank_s > request.rank_s, others))
        for other in reversed(overtaken):
            self.waiting.move_to_end(other)

    @property
    def head(self) -> PendingRequest:
        return next(iter(self.waiting))

    @property
    def tail(self) -> PendingRequest:
        return next(reversed(self.waiting))

    def later(self, rows: int) -> int:
        """Of a request with so many rows those beyond its first part."""
        return max(0, rows - self.largest)

    def unfilled(self, rows: int) -> int:
        """A request's share of the rows that a call lacks in which as many as fit are of its size.

        Of 33 rows each one fits into 64, so it is 31; smaller ones may fill these, so it is an upper bound.
        """
        return 0 if rows == 1 or rows > self.largest else -(-self.largest // (self.largest // rows)) - rows

    @property
    def call_rows(self) -> int:
        """Those of all calls that will be made for what waits, before what is cut enters again."""
        return self.rows - self.later_rows + self.unfilled_rows

    @property
    def oldest_arrival_s(self) -> float:
        """Since when the one that stands here for longest does so."""
        if self.mixed:
            return min(request.entered_s for request in self.waiting)
        return self.head.entered_s

    @property
    def urgency_s(self) -> float:
        """That of its most urgent request. Searched for when that one has left, so once a batch at the most."""
        if not (self.mixed or self.unsorted):
            return self.head.urgency_s
        if self._most_urgent is None or self._most_urgent.lane is not self:
            self._most_urgent = min(self.waiting, key=_urgency_s)
        return self._most_urgent.urgency_s

    @property
    def timeout_s(self) -> float:
        """The time that its head has from arrival to answer."""
        head = self.head
        return head.deadline_s - head.arrival_s

    @property
    def curve(self) -> CostCurve | None:
        return self.costs.curve

    @property
    def margin(self) -> float:
        """See Costs."""
        return self.costs.margin

    @property
    def max_rows(self) -> int:
        """Also if it was found since that outputs do not follow rows: what came for a batch must not be cut smaller."""
        return self.largest

    @property
    def call_s(self) -> float:
        return self.function.call_s

    @property
    def peak_rows(self) -> float:
        return self.function.peak_rows


def _urgency_s(request: PendingRequest) -> float:
    return request.urgency_s
