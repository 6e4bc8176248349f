"""The callers whose requests wait in a lane, in fair order. No I/O, no clock.

The caller with the least virtual time (callers.py) is next. Within a call each of its requests moves that time forward
by the seconds that its rows are expected to take. The requests of one caller stay in order; a priority orders the
requests of one caller, not the callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from app.batching.request import PendingRequest
from app.batching.waiting.callers import Caller, Callers, FairHeap
from app.batching.waiting.lane import Lane
from app.batching.waiting.lane_order import LaneOrder
from app.batching.waiting.priority_lines import PriorityLines

_serial = count()


class CallerRequests(PriorityLines):
    """The requests of one caller in one lane, with a place in the order of that caller's lanes (caller_order.py).

    Attributes:
        place, asleep, less_urgent, serial: as in a lane (lane.py).
        fair_place: its entry among the callers of the lane; None if it has none.
        work_s: the seconds of calls of these requests alone.
    """

    __slots__ = ("asleep", "caller", "fair_place", "lane", "less_urgent", "place", "rows", "serial", "work_s")

    def __init__(self, caller: Caller, lane: Lane) -> None:
        super().__init__()
        self.caller = caller
        self.lane = lane
        self.rows = 0
        self.work_s = 0.0
        self.fair_place: object = None
        self.place: object = None
        self.asleep = self.less_urgent = False
        self.serial = lane.serial

    @property
    def start(self) -> float:
        return self.caller.start

    def count(self, rows: int) -> None:
        """Counts `rows` rows that came, or that left if `rows` is below 0."""
        self.rows += rows
        work_s = self.lane.seconds(self.rows)
        self.caller.work_s += work_s - self.work_s
        self.work_s = work_s


class LaneCallers:
    """The requests of one lane by caller. Each change takes O(log n) of n callers and requests.

    Args:
        order: the order of the model's lanes, in which the requests of each caller have a place.
    """

    __slots__ = ("_by_caller", "_callers", "_fair_heap", "_lane", "_order")

    def __init__(self, lane: Lane, callers: Callers, order: LaneOrder[CallerRequests]) -> None:
        self._lane = lane
        self._callers = callers
        self._order = order
        self._by_caller: dict[str, CallerRequests] = {}
        self._fair_heap = FairHeap[CallerRequests]()

    def add(self, request: PendingRequest) -> None:
        lines = self._by_caller.get(request.caller)
        if lines is None:
            lines = self._by_caller[request.caller] = CallerRequests(self._callers.enter(request.caller), self._lane)
            self._fair_heap.push(lines)
        lines.count(request.counted_rows)
        if lines.add(request) or lines.asleep:
            self._order.place(lines)

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        """The requests leave the lane, taken or not."""
        for request in requests:
            lines = self._by_caller[request.caller]
            lines.remove([request])
            lines.count(-request.counted_rows)
            lines.less_urgent = True
            if not len(lines):
                del self._by_caller[request.caller]
                self._fair_heap.discard(lines)
                self._order.remove(lines)
                self._callers.leave(lines.caller)

    def requeue(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request enters the lane again: `taken` rows of it were taken."""
        self._by_caller[request.caller].requeue(request)
        self.shrink(request, taken)
        self._by_caller[request.caller].less_urgent = True

    def shrink(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request keeps its place: `taken` rows of it were taken."""
        self._by_caller[request.caller].count(-taken)

    def __iter__(self) -> Iterator[PendingRequest]:
        """The requests in fair order."""
        if len(self._by_caller) == 1:
            (lines,) = self._by_caller.values()
            return iter(lines)
        return self._in_fair_order()

    def _in_fair_order(self) -> Iterator[PendingRequest]:
        """A merge: the heap gives each caller's first request, `begun` its next one at the caller's later time."""
        row_s, callers = self._lane.row_s, iter(self._fair_heap)
        begun: list[tuple[float, int, Iterator[PendingRequest]]] = []
        following = next(callers, None)
        while following or begun:
            if following and (not begun or following[0] <= begun[0][0]):
                start, requests = following[0], iter(following[1])
                following = next(callers, None)
            else:
                start, _, requests = heappop(begun)
            if (request := next(requests, None)) is not None:
                yield request
                heappush(begun, (start + request.counted_rows * row_s, next(_serial), requests))

    def weight(self, caller: str) -> float:
        """The weight of a caller. Raises KeyError if none of its requests waits here."""
        return self._by_caller[caller].caller.weight

    def work_s(self, caller: str) -> tuple[float, float]:
        """The seconds of a caller's waiting requests: here, and in other lanes. Raises KeyError if none waits here."""
        lines = self._by_caller[caller]
        return lines.work_s, lines.caller.work_s - lines.work_s

    def rows_before(self, request: PendingRequest, rows: int) -> int:
        """How many of `rows` other rows are taken before the last request of its caller."""
        # Each other caller gets as many rows before the request's caller is served.
        caller_rows = self._by_caller[request.caller].rows
        rows_ahead = caller_rows - request.counted_rows
        return rows_ahead + min(rows - rows_ahead, (len(self._by_caller) - 1) * caller_rows)
