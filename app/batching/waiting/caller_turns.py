"""Whose turn it is of the callers whose requests wait in a lane: start-time fair queueing by rows. No I/O, no clock.

Each caller has a virtual time, which the rows of a request that is taken move forward; the caller with the least
virtual time is next. So callers that wait get equal numbers of rows, whoever sent more, up to one request of each. A
caller that has nothing waiting starts again at the virtual time of all: unused turns are not saved up. That time moves
on with what is taken, by an equal part for each caller that waits, so callers that are ever new overtake no one for
ever. The requests of one caller stay in order. A priority orders the requests of one caller, not callers.

P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from app.batching.request import PendingRequest
from app.batching.waiting.priority_lines import SMALL, PriorityLines

_serial = count()


class _Caller:
    """The requests of one caller that wait, and the virtual time at which the next of them starts.

    `entry` is its entry in the heap of turns; None while it has nothing waiting. Any other entry is out of date.
    """

    __slots__ = ("entry", "requests", "rows", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.rows = 0
        self.requests = PriorityLines()
        self.entry: _Turn | None = None


_Turn = tuple[float, int, _Caller]

#: A caller that comes next: at which virtual time, a number that no other has, its place in the heap (-1 for none), and
#: which of its requests come then.
_Next = tuple[float, int, int, _Caller, Iterator[PendingRequest] | None]


class CallerTurns:
    """The callers of one lane. Adding, taking and removing a request takes O(log n) of n callers and requests."""

    __slots__ = ("_callers", "_now", "_turns", "_waiting")

    def __init__(self) -> None:
        self._callers: dict[str, _Caller] = {}
        self._turns: list[_Turn] = []
        self._waiting = 0  # callers with requests
        self._now = 0.0

    def add(self, request: PendingRequest) -> None:
        caller = self._callers.get(request.caller)
        if caller is None:
            caller = self._callers[request.caller] = _Caller(self._now)
        caller.requests.add(request)
        caller.rows += request.weight
        if caller.entry is None:
            self._waiting += 1
            caller.start = max(caller.start, self._now)
            self._push(caller)

    def charge(self, request: PendingRequest, rows: int) -> None:
        """So many rows of a waiting request are taken."""
        caller = self._callers[request.caller]
        self._now = max(self._now, caller.start) + rows / self._waiting
        caller.start += rows

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        """These leave, taken or not."""
        left: dict[str, _Caller] = {}
        for request in requests:
            caller = left[request.caller] = self._callers[request.caller]
            caller.requests.remove([request])
            caller.rows -= request.weight
        for name, caller in left.items():
            self._place(name, caller)

    def requeue(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request enters again: so many rows of it were taken."""
        caller = self._callers[request.caller]
        caller.rows -= taken
        caller.requests.requeue(request)
        self._place(request.caller, caller)

    def __iter__(self) -> Iterator[PendingRequest]:
        """The requests in the order of turns. Walks the heap of turns without changing it, as far as it is asked."""
        turns = self._turns
        following: list[_Next] = [(*turns[0][:2], 0, turns[0][2], None)] if turns else []
        while following:
            start, _, place, caller, requests = heappop(following)
            for child in (2 * place + 1, 2 * place + 2) if place >= 0 else ():
                if child < len(turns):
                    heappush(following, (*turns[child][:2], child, turns[child][2], None))
            if requests is None:
                if caller.entry is not turns[place]:
                    continue
                requests = iter(caller.requests)
            if (request := next(requests, None)) is not None:
                yield request
                heappush(following, (start + request.weight, next(_serial), -1, caller, requests))

    def rows_before(self, request: PendingRequest, rows: int) -> int:
        """Of so many other rows those that are taken before the last request of a caller."""
        caller = self._callers[request.caller]
        own = caller.rows - request.weight
        return own + min(rows - own, (self._waiting - 1) * caller.rows)

    def _place(self, name: str, caller: _Caller) -> None:
        if len(caller.requests):
            if caller.entry is None or caller.entry[0] != caller.start:
                self._push(caller)
            return
        caller.entry = None
        self._waiting -= 1
        if caller.start <= self._now:
            del self._callers[name]
        elif len(self._callers) > 2 * self._waiting + SMALL:
            idle = [each for each, other in self._callers.items() if other.entry is None and other.start <= self._now]
            for each in idle:
                del self._callers[each]

    def _push(self, caller: _Caller) -> None:
        if len(self._turns) > 2 * self._waiting + SMALL:
            self._turns = [entry for entry in self._turns if entry[2].entry is entry]
            heapify(self._turns)
        caller.entry = (caller.start, next(_serial), caller)
        heappush(self._turns, caller.entry)
