"""A lane: requests that wait and may share a call. No I/O, no clock.

Costs: adding, removing and finding the first and the most urgent request take O(log n) of n waiting requests. Requests
of one priority stand in a line of their own, in order of arrival, which is the order of their order keys; the first of
the lane is the first of one of its lines. There are few lines: one for each level of priority.py (at most 11).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import count

from app.batching.cost_model import CallSeconds
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, PendingRequest

#: A heap of fewer entries is not searched for entries that are out of date. Chosen.
SMALL = 64

_serial = count()


class _Line(OrderedDict[PendingRequest, None]):
    """The requests of one priority, in order of arrival.

    Those whose deadline is before that of an earlier request are in the heap `hasty` as well. Of the others none is
    more urgent than the first of the line, so the most urgent request is the first of the line or of the heap.
    """

    __slots__ = ("hasty", "latest_deadline_s")

    def __init__(self) -> None:
        super().__init__()
        self.hasty: list[tuple[float, int, PendingRequest]] = []
        self.latest_deadline_s = 0.0

    def note_deadline(self, request: PendingRequest) -> bool:
        """To be called for the last request; True if its deadline is before that of an earlier one."""
        if request.deadline_s >= self.latest_deadline_s:
            self.latest_deadline_s = request.deadline_s
            return False
        if len(self.hasty) > 2 * len(self) + SMALL:
            self.hasty = [entry for entry in self.hasty if _is_valid(entry)]
            heapify(self.hasty)
        heappush(self.hasty, (request.scheduling_key_s, next(_serial), request))
        return True

    @property
    def first(self) -> PendingRequest:
        return next(iter(self))

    @property
    def scheduling_key_s(self) -> float:
        key_s, hasty = self.first.scheduling_key_s, self.hasty
        while hasty and not _is_valid(hasty[0]):
            heappop(hasty)
        return min(key_s, hasty[0][0]) if hasty else key_s


def _is_valid(entry: tuple[float, int, PendingRequest]) -> bool:
    """Whether the request of a heap's entry waits, and still has this key."""
    key_s, _, request = entry
    return request.lane is not None and request.scheduling_key_s == key_s


class Lane:
    """Requests that may share a call: first come, first served, except for priorities.

    Attributes:
        has_parts: a request in it is computed in parts.
        max_rows: the most rows of a call, as when the lane was made: requests that came to be batched are not cut if
            batching has stopped since.
        deferred_rows: rows of large requests that will wait again, as they do not fit into the next call.
        unfilled_rows: the sum of `unfilled` over its requests.
        place: its entry in the order of lanes (lane_order.py); None if it has none. asleep: it is known not to be due.
        serial: of lanes that are equal otherwise, the one with the lowest number is first.
        counted: what it counts for in the work that waits (work.py), and in which band; None if it is not counted.
    """

    __slots__ = (
        "_lines", "_requests", "asleep", "costs", "counted", "deferred_rows", "function", "has_parts", "key",
        "max_rows", "place", "rows", "serial", "unfilled_rows",
    )  # fmt: skip

    def __init__(self, key: LaneKey, function: BatchFunction) -> None:
        self.key = key
        self.function = function
        self.costs = function.costs(key.shape)
        self.max_rows = function.max_rows
        self.rows = 0
        self.deferred_rows = 0
        self.unfilled_rows = 0
        self.has_parts = False
        self.place: object = None
        self.asleep = False
        self.serial = next(_serial)
        self.counted: tuple[int, CallSeconds] | None = None
        self._lines: dict[float, _Line] = {}
        self._requests = 0

    # --- what waits in it ---

    def add(self, request: PendingRequest) -> bool:
        """Puts the request behind all whose order key is not greater; True if the lane may be more urgent by it."""
        request.lane = self.key
        self._requests += 1
        line = self._lines.get(request.priority_offset_s)
        if line is None:
            line = self._lines[request.priority_offset_s] = _Line()
            line[request] = None
            line.latest_deadline_s = request.deadline_s
            return True
        line[request] = None
        return line.note_deadline(request)

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        lines = self._lines
        for request in requests:
            line = lines[request.priority_offset_s]
            del line[request]
            if not line:
                del lines[request.priority_offset_s]
            request.lane = None
        self._requests -= len(requests)

    def requeue(self, request: PendingRequest, now: float) -> None:
        """Puts the rest of a request behind those that wait: a part of it was taken."""
        request.entered_s = now
        self.has_parts = True
        line = self._lines[request.priority_offset_s]
        line.move_to_end(request)
        line.note_deadline(request)

    def __len__(self) -> int:
        return self._requests

    def __iter__(self) -> Iterator[PendingRequest]:
        """Its requests, first to last."""
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
        """The order keys of its first and of its last request."""
        lines = self._lines.values()
        return min(line.first.order_key_s for line in lines), max(next(reversed(line)).order_key_s for line in lines)

    # --- its rows ---

    def deferred(self, rows: int) -> int:
        """The rows of a request of `rows` rows that do not fit into its first part."""
        return max(0, rows - self.max_rows)

    def unfilled(self, rows: int) -> int:
        """A request's share of the rows that a call lacks if it is filled with requests of its size.

        Example: in calls of 64 rows a request of 33 leaves 31 unfilled. Smaller requests may fill these: it is an upper
        bound.
        """
        return 0 if rows == 1 or rows > self.max_rows else -(-self.max_rows // (self.max_rows // rows)) - rows

    @property
    def call_rows(self) -> int:
        """The rows of the calls that will be made for what waits, without the rest of large requests."""
        return self.rows - self.deferred_rows + self.unfilled_rows

    # --- its times ---

    @property
    def waiting_since_s(self) -> float:
        """When the request that has waited longest entered the lane; monotonic seconds."""
        return min([line.first.entered_s for line in self._lines.values()])

    @property
    def scheduling_key_s(self) -> float:
        """The scheduling key of its most urgent request."""
        return min([line.scheduling_key_s for line in self._lines.values()])

    @property
    def timeout_s(self) -> float:
        """Seconds that its first request has from arrival to answer."""
        first = self.first
        return first.deadline_s - first.arrival_s

    def __repr__(self) -> str:
        return f"<Lane {self.key}: {self.rows} rows of {len(self)} requests>"


def _order(request: PendingRequest) -> tuple[float, float]:
    """Of equal order keys the one that entered first."""
    return request.order_key_s, request.entered_s
