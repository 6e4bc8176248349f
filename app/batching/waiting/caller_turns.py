"""Whose turn it is of the callers whose requests wait in a lane. No I/O, no clock.

The caller with the least virtual time (callers.py) is next; within a call each of its requests moves that forward by
what its rows are expected to take. The requests of one caller stay in order. A priority orders the requests of one
caller, not callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from app.batching.request import PendingRequest
from app.batching.waiting.callers import Caller, Callers, Turns
from app.batching.waiting.lane import Lane
from app.batching.waiting.lane_order import LaneOrder
from app.batching.waiting.priority_lines import PriorityLines

_serial = count()


class OwnRequests(PriorityLines):
    """The requests of one caller in one lane. They have a place among its lanes (caller_order.py), as a lane has."""

    __slots__ = ("asleep", "caller", "lane", "less_urgent", "place", "rows", "serial", "turn", "work_s")

    def __init__(self, caller: Caller, lane: Lane) -> None:
        super().__init__()
        self.caller = caller
        self.lane = lane
        self.rows = 0
        self.work_s = 0.0
        self.turn: object = None
        self.place: object = None
        self.asleep = self.less_urgent = False
        self.serial = lane.serial

    @property
    def start(self) -> float:
        return self.caller.start

    def count(self, rows: int) -> None:
        """This many more rows wait; or fewer, if `rows` is below 0."""
        self.rows += rows
        work_s = self.lane.seconds(self.rows)
        self.caller.work_s += work_s - self.work_s
        self.work_s = work_s


class CallerTurns:
    """The callers of one lane. Adding, taking and removing a request takes O(log n) of n callers and requests."""

    __slots__ = ("_callers", "_lane", "_order", "_own", "_turns")

    def __init__(self, lane: Lane, callers: Callers, order: LaneOrder[OwnRequests]) -> None:
        self._lane = lane
        self._callers = callers
        self._order = order
        self._own: dict[str, OwnRequests] = {}
        self._turns = Turns[OwnRequests]()

    def add(self, request: PendingRequest) -> None:
        own = self._own.get(request.caller)
        if own is None:
            own = self._own[request.caller] = OwnRequests(self._callers.enter(request.caller), self._lane)
            self._turns.push(own)
        own.count(request.counted_rows)
        if own.add(request) or own.asleep:
            self._order.place(own)

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        """These leave, taken or not."""
        for request in requests:
            own = self._own[request.caller]
            own.remove([request])
            own.count(-request.counted_rows)
            own.less_urgent = True
            if not len(own):
                del self._own[request.caller]
                self._turns.discard(own)
                self._order.remove(own)
                self._callers.leave(own.caller)

    def requeue(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request enters again: this many rows of it were taken."""
        self._own[request.caller].requeue(request)
        self.shrink(request, taken)
        self._own[request.caller].less_urgent = True

    def shrink(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request keeps its place: this many rows of it were taken."""
        self._own[request.caller].count(-taken)

    def __iter__(self) -> Iterator[PendingRequest]:
        """The requests in the order of turns."""
        if len(self._own) == 1:
            (own,) = self._own.values()
            return iter(own)
        return self._in_turns()

    def _in_turns(self) -> Iterator[PendingRequest]:
        row_s, turns = self._lane.row_s, iter(self._turns)
        begun: list[tuple[float, int, Iterator[PendingRequest]]] = []
        following = next(turns, None)
        while following or begun:
            if following and (not begun or following[0] <= begun[0][0]):
                start, requests = following[0], iter(following[1])
                following = next(turns, None)
            else:
                start, _, requests = heappop(begun)
            if (request := next(requests, None)) is not None:
                yield request
                heappush(begun, (start + request.counted_rows * row_s, next(_serial), requests))

    def weight(self, caller: str) -> float:
        """Of a caller that waits here. Raises KeyError if nothing of it does."""
        return self._own[caller].caller.weight

    def work_s(self, caller: str) -> tuple[float, float]:
        """The seconds of what waits of a caller: in this lane, and in others. Raises KeyError if nothing waits here."""
        own = self._own[caller]
        return own.work_s, own.caller.work_s - own.work_s

    def rows_before(self, request: PendingRequest, rows: int) -> int:
        """Of this many other rows those that are taken before the last request of a caller."""
        all_own = self._own[request.caller].rows
        own = all_own - request.counted_rows
        return own + min(rows - own, (len(self._own) - 1) * all_own)
