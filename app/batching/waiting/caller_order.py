"""The order of a model's lanes where callers have fair shares: the caller first, then the lane.

The caller with the least virtual time (callers.py) is next, with its most urgent lane. A lane in which several callers
wait stands in the order of each of them, by the requests of that caller. A lane also sleeps for each caller: a new
request wakes it for the request's caller, its due time for all. No I/O, no clock.
"""

from __future__ import annotations

from app.batching.waiting.callers import Caller, FairHeap
from app.batching.waiting.lane_callers import CallerRequests
from app.batching.waiting.lane_order import Entry, LaneOrder


class _CallersLanes(LaneOrder[CallerRequests]):
    """The lanes of one caller that may be due. `fair_place` is its entry among the callers; None if it has none."""

    __slots__ = ("caller", "fair_place")

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller
        self.fair_place: object = None


class CallerOrder(LaneOrder[CallerRequests]):
    """The lanes of one model, by caller; `lanes` counts a lane once for each caller that waits in it."""

    __slots__ = ("_callers", "_fair_heap")

    def __init__(self) -> None:
        super().__init__()
        self._callers: dict[Caller, _CallersLanes] = {}
        self._fair_heap = FairHeap[_CallersLanes]()  # of callers with a lane that may be due

    def place(self, item: CallerRequests) -> None:
        own = self._callers.get(item.caller)
        if own is None:
            own = self._callers[item.caller] = _CallersLanes(item.caller)
        if item.place is None:
            self.lanes += 1
        own.place(item)
        if own.fair_place is None:
            self._fair_heap.push(own)

    def remove(self, item: CallerRequests) -> None:
        super().remove(item)
        own = self._callers[item.caller]
        own.lanes -= 1
        if not own.lanes:
            del self._callers[item.caller]
            self._fair_heap.discard(own)

    def first_awake(self) -> Entry[CallerRequests] | None:
        while (own := self._fair_heap.first()) is not None:
            if (entry := own.first_awake()) is not None:
                return entry
            self._fair_heap.discard(own)
        return None
