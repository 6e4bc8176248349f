"""The order of a model's lanes where callers have fair shares: the caller first, then the lane.

The caller with the least virtual time (callers.py) is next, with its most urgent lane. A lane in which several callers
wait has a place in the order of each caller, by the caller's requests. A lane also sleeps for each caller apart: a new
request wakes the lane for its caller only, the lane's due time wakes it for all. No I/O, no clock.
"""

from __future__ import annotations

from app.batching.waiting.callers import Caller, FairHeap
from app.batching.waiting.lane_callers import CallerRequests
from app.batching.waiting.lane_order import Entry, LaneOrder


class _LanesOfCaller(LaneOrder[CallerRequests]):
    """The lanes of one caller. `fair_place`: the caller's entry in the heap of callers; None if no lane may be due."""

    __slots__ = ("caller", "fair_place")

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller
        self.fair_place: object = None


class CallerOrder(LaneOrder[CallerRequests]):
    """The lanes of one model by caller, in order. `lanes` counts a lane once for each caller that waits in it."""

    __slots__ = ("_callers", "_fair_heap")

    def __init__(self) -> None:
        super().__init__()
        self._callers: dict[Caller, _LanesOfCaller] = {}
        self._fair_heap = FairHeap[_LanesOfCaller]()  # of callers with a lane that may be due

    def place(self, item: CallerRequests) -> None:
        caller_lanes = self._callers.get(item.caller)
        if caller_lanes is None:
            caller_lanes = self._callers[item.caller] = _LanesOfCaller(item.caller)
        if item.place is None:
            self.lanes += 1
        caller_lanes.place(item)
        if caller_lanes.fair_place is None:
            self._fair_heap.push(caller_lanes)

    def remove(self, item: CallerRequests) -> None:
        super().remove(item)
        caller_lanes = self._callers[item.caller]
        caller_lanes.lanes -= 1
        if not caller_lanes.lanes:
            del self._callers[item.caller]
            self._fair_heap.discard(caller_lanes)

    def first_awake(self) -> Entry[CallerRequests] | None:
        while (caller_lanes := self._fair_heap.first()) is not None:
            if (entry := caller_lanes.first_awake()) is not None:
                return entry
            self._fair_heap.discard(caller_lanes)
        return None
