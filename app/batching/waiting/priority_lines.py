"""The lines of waiting requests: in order of arrival, except for priorities. No I/O, no clock.

Requests of one priority stand in one line, in order of arrival, which is the order of their order keys; so the first
request of all is the first of a line. The lines are few: one for each level of priority.py (at most 11), and two more
for each level for later steps of larger requests. Such steps keep the arrival of the whole, but come in the order in
which the steps before them ended; a step that left and came again has the place that it had. Adding, removing and
finding the first and the most urgent request take O(log n) of n requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import count

from app.batching.request import PendingRequest

#: A heap of fewer entries is not searched for entries that are out of date. Chosen.
SMALL = 64

_serial = count()


class _Line(OrderedDict[PendingRequest, None]):
    """The requests of one priority, in order of arrival.

    A request whose deadline is before that of an earlier one (of later steps: whose scheduling key is) is in the heap
    `urgent` as well. No other request is more urgent than the first of the line, so the most urgent request is the
    first of the line or of the heap.
    """

    __slots__ = ("latest_s", "urgent")

    def __init__(self, first: PendingRequest) -> None:
        super().__init__()
        self[first] = None
        self.urgent: list[tuple[float, int, PendingRequest]] = []
        self.latest_s = _due_s(first)

    def note_deadline(self, request: PendingRequest) -> bool:
        """Notes the deadline of the request that came last. True if it is before that of an earlier one."""
        due_s = _due_s(request)
        if due_s >= self.latest_s:
            self.latest_s = due_s
            return False
        if len(self.urgent) > 2 * len(self) + SMALL:
            self.urgent = [entry for entry in self.urgent if _is_valid(entry)]
            heapify(self.urgent)
        heappush(self.urgent, (request.scheduling_key_s, next(_serial), request))
        return True

    @property
    def first(self) -> PendingRequest:
        return next(iter(self))

    @property
    def scheduling_key_s(self) -> float:
        key_s, urgent = self.first.scheduling_key_s, self.urgent
        while urgent and not _is_valid(urgent[0]):
            heappop(urgent)
        return min(key_s, urgent[0][0]) if urgent else key_s


def _due_s(request: PendingRequest) -> float:
    """The number by which requests of a line compare: a lower one than an earlier request's may be more urgent."""
    return request.scheduling_key_s if request.later_step else request.deadline_s


def _is_valid(entry: tuple[float, int, PendingRequest]) -> bool:
    """Whether the request of a heap's entry waits, and still has this key."""
    key_s, _, request = entry
    return request.lane is not None and request.scheduling_key_s == key_s


class PriorityLines:
    """The waiting requests, first come, first served, except for priorities."""

    __slots__ = ("_lines", "_requests")

    def __init__(self) -> None:
        self._lines: dict[object, _Line] = {}
        self._requests = 0

    def add(self, request: PendingRequest) -> bool:
        """Puts the request behind all whose order key is not greater; True if the lines may be more urgent by it."""
        self._requests += 1
        key = _key(request)
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = _Line(request)
            return True
        line[request] = None
        return line.note_deadline(request)

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        lines = self._lines
        for request in requests:
            key = _key(request)
            line = lines[key]
            del line[request]
            if not line:
                del lines[key]
        self._requests -= len(requests)

    def requeue(self, request: PendingRequest) -> None:
        """Puts a request that entered again behind the waiting ones."""
        line = self._lines[_key(request)]
        line.move_to_end(request)
        line.note_deadline(request)

    def __len__(self) -> int:
        return self._requests

    def __iter__(self) -> Iterator[PendingRequest]:
        """The requests, first to last."""
        lines = self._lines.values()
        if len(lines) == 1:
            (line,) = lines
            return iter(line)
        return merge(*lines, key=_order)

    @property
    def first(self) -> PendingRequest:
        return next(iter(self))

    @property
    def reordered(self) -> bool:
        """Whether a later request may be ahead of an earlier one."""
        return len(self._lines) > 1

    @property
    def order_keys_s(self) -> tuple[float, float]:
        """The order keys of the first and of the last request."""
        lines = self._lines.values()
        return min(line.first.order_key_s for line in lines), max(next(reversed(line)).order_key_s for line in lines)

    @property
    def waiting_since_s(self) -> float:
        """When the request that has waited longest entered; monotonic seconds."""
        if len(self._lines) == 1:
            return self.first.entered_s
        return min([line.first.entered_s for line in self._lines.values()])

    @property
    def scheduling_key_s(self) -> float:
        """The scheduling key of the most urgent request."""
        return min([line.scheduling_key_s for line in self._lines.values()])


def _key(request: PendingRequest) -> object:
    """The key of the line in which the request stands."""
    if not request.later_step:
        return request.priority_offset_s
    return ("came again" if request.again else "later step"), request.priority_offset_s


def _order(request: PendingRequest) -> tuple[float, float, float]:
    """The sort key of a merge: the order key, then the time of entry, then the arrival."""
    return request.order_key_s, request.entered_s, request.arrival_s
