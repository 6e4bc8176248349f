"""Waiting requests, in lanes of those that may share a call, and the room that all share. No I/O, no clock.

Invariants (test_queue.py)
- A lane exists only while a request waits in it.
- `rows` of the queue is the sum over its lanes, and of a lane the sum over its requests; a request without rows counts
  as one, so that none waits for free.
- While anything waits, bulk requests may use half of the queue; an empty queue takes one of any size.
- A request leaves exactly once: taken into a batch, or removed. A request larger than a batch leaves in parts; the rest
  of it waits behind the requests that came meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import islice, takewhile
from operator import attrgetter

from app.batching.function import BatchFunction
from app.batching.large_requests import cut
from app.batching.priority import BULK_S
from app.batching.request import LaneKey, PendingRequest
from app.core.errors import Overloaded


class Lane:
    """Requests that may share a call: first come, first served, except for priorities.

    Attributes:
        reordered: a request had a priority offset, so the first need not be the oldest.
        deadlines_unsorted: a deadline lies before that of an earlier request, so the first need not be the most urgent.
        has_parts: a request in it is computed in parts.
        max_rows: the most rows of a call, as when the lane was made: requests that came to be batched are not cut if
            batching has stopped since.
        deferred_rows: rows of large requests that will wait again, as they do not fit into the next call.
        unfilled_rows: the sum of `unfilled` over its requests.
    """

    __slots__ = (
        "_latest_deadline_s", "_most_urgent", "costs", "deadlines_unsorted", "deferred_rows", "function", "has_parts",
        "key", "max_rows", "reordered", "rows", "unfilled_rows", "waiting",
    )  # fmt: skip

    def __init__(self, key: LaneKey, function: BatchFunction) -> None:
        self.key = key
        self.function = function
        self.costs = function.costs(key.shape)
        self.waiting: OrderedDict[PendingRequest, None] = OrderedDict()
        self.max_rows = function.max_rows
        self.rows = 0
        self.deferred_rows = 0
        self.unfilled_rows = 0
        self.reordered = self.deadlines_unsorted = self.has_parts = False
        self._latest_deadline_s = 0.0
        self._most_urgent: PendingRequest | None = None

    def add(self, request: PendingRequest) -> None:
        """Puts the request behind all whose order key is not greater."""
        self.waiting[request] = None
        request.lane = self.key
        if request.deadline_s < self._latest_deadline_s:
            self.deadlines_unsorted = True
            if self._most_urgent is not None and request.scheduling_key_s < self._most_urgent.scheduling_key_s:
                self._most_urgent = request
        else:
            self._latest_deadline_s = request.deadline_s
        if request.priority_offset_s:
            self.reordered = True
        if self.reordered:
            self._overtake(request)

    def requeue(self, request: PendingRequest, now: float) -> None:
        """Puts the rest of a request behind those that wait: a part of it was taken."""
        request.entered_s = now
        self.has_parts = True
        self.waiting.move_to_end(request)
        self._most_urgent = None
        self.deadlines_unsorted |= request.deadline_s < self._latest_deadline_s
        self._latest_deadline_s = max(self._latest_deadline_s, request.deadline_s)
        if self.reordered:
            self._overtake(request)

    def _overtake(self, request: PendingRequest) -> None:
        self._most_urgent = None
        others = islice(reversed(self.waiting), 1, None)
        overtaken = list(takewhile(lambda other: other.order_key_s > request.order_key_s, others))
        for other in reversed(overtaken):
            self.waiting.move_to_end(other)

    @property
    def first(self) -> PendingRequest:
        return next(iter(self.waiting))

    @property
    def last(self) -> PendingRequest:
        return next(reversed(self.waiting))

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

    @property
    def waiting_since_s(self) -> float:
        """When the request that has waited longest entered the lane; monotonic seconds."""
        if self.reordered:
            return min(request.entered_s for request in self.waiting)
        return self.first.entered_s

    @property
    def scheduling_key_s(self) -> float:
        """The scheduling key of its most urgent request, which is searched for at most once a batch."""
        if not (self.reordered or self.deadlines_unsorted):
            return self.first.scheduling_key_s
        if self._most_urgent is None or self._most_urgent not in self.waiting:
            self._most_urgent = min(self.waiting, key=attrgetter("scheduling_key_s"))
        return self._most_urgent.scheduling_key_s

    @property
    def timeout_s(self) -> float:
        """Seconds that its first request has from arrival to answer."""
        first = self.first
        return first.deadline_s - first.arrival_s

    def __repr__(self) -> str:
        return f"<Lane {self.key}: {self.rows} rows of {len(self.waiting)} requests>"


class RequestQueue:
    """All lanes, and the room that they share: `max_rows` rows."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = 0
        self._bulk_rows = max_rows // 2
        self._lanes: dict[LaneKey, Lane] = {}

    @property
    def lanes(self) -> Collection[Lane]:
        return self._lanes.values()

    def lane(self, key: LaneKey) -> Lane:
        """The lane of requests with this key. Raises KeyError if none waits."""
        return self._lanes[key]

    def push(self, key: LaneKey, function: BatchFunction, request: PendingRequest) -> None:
        """Puts a request into the lane of `key`. Raises Overloaded if there is no room."""
        weight = request.weight
        if self.rows + weight > self._bulk_rows:
            bulk = request.priority_offset_s <= -BULK_S
            room = self._bulk_rows if bulk and self.rows else self.max_rows
            if self.rows + weight > room:
                raise Overloaded(f"The queue is full: {self.rows} of {room} rows wait, {weight} more do not fit")
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, function)
        lane.add(request)
        function.requests_under_way += 1
        lane.rows += weight
        self.rows += weight
        if weight > lane.max_rows:
            lane.deferred_rows += lane.deferred(weight)
        lane.unfilled_rows += lane.unfilled(weight)

    def remove(self, request: PendingRequest) -> bool:
        """Removes a waiting request; returns False if it does not wait, or no more."""
        if request.lane is None:
            return False
        lane = self._lanes[request.lane]
        self._detach(lane, (request,))
        lane.function.leave()
        return True

    def take(self, lane: Lane, rows: int, most_rows: int, now: float) -> list[PendingRequest]:
        """Takes requests off the front while they fit into `rows`, at least the first.

        A request of more than `most_rows` rows is cut: the part that fits is taken, the rest stays in the lane. The
        function counts taken requests as under way until BatchInFlight.leave. A request that was answered meanwhile
        (cancelled, and not removed by its caller yet) is dropped, so the list may be empty.
        """
        gone: list[PendingRequest] = []
        taken: list[PendingRequest] = []
        large = None
        room = rows
        for request in lane.waiting:
            if request.reply.done():
                gone.append(request)
                continue
            weight = request.rows or 1
            if weight > room:
                if weight > most_rows and room > 0:
                    large = request
                    break
                if taken:
                    break
            room -= weight
            taken.append(request)
        self._detach(lane, gone + taken)
        if lane.has_parts:
            ragged, ragged_outputs = lane.function.ragged, lane.function.ragged_outputs
            taken = [
                cut(request, request.rows, ragged, ragged_outputs) if request.parts is not None else request
                for request in taken
            ]
        if large is not None:
            taken.append(self._take_part(lane, large, room, now))
        for request in gone:
            request.release()
            lane.function.leave()
        return taken

    def _take_part(self, lane: Lane, request: PendingRequest, rows: int, now: float) -> PendingRequest:
        """A part of `rows` rows; the rest waits behind the requests that came meanwhile."""
        left = request.rows - rows
        lane.deferred_rows += lane.deferred(left) - lane.deferred(request.rows)
        lane.unfilled_rows += lane.unfilled(left) - lane.unfilled(request.rows)
        part = cut(request, rows, lane.function.ragged, lane.function.ragged_outputs)
        lane.function.requests_under_way += 1
        lane.rows -= rows
        self.rows -= rows
        lane.requeue(request, now)
        return part

    def _detach(self, lane: Lane, requests: Sequence[PendingRequest]) -> None:
        waiting, weight = lane.waiting, 0
        if lane.deferred_rows:
            lane.deferred_rows -= sum([lane.deferred(request.rows) for request in requests])
        if lane.unfilled_rows:
            lane.unfilled_rows -= sum([lane.unfilled(request.weight) for request in requests])
        for request in requests:
            del waiting[request]
            request.lane = None
            weight += request.rows or 1
        lane.rows -= weight
        self.rows -= weight
        if not waiting:
            del self._lanes[lane.key]

    def __repr__(self) -> str:
        lanes = ", ".join(f"{lane.key.model}/{lane.key.signature}: {lane.rows}" for lane in self.lanes)
        return f"<RequestQueue {self.rows}/{self.max_rows} rows ({lanes})>"
