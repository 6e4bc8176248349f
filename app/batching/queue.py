"""Requests that may share a call, in order of arrival and priority. Pure.

Requests that wait, in lanes, and the room that they share. Pure: no clock, no asyncio.

Invariants
- A lane exists only while something waits in it.
- `rows` of the queue is the sum over its lanes, and of a lane the sum over its requests;
  a request without rows counts as one, so that nothing waits for free.
- Work in bulk never fills the queue: beyond half of its room there is none for it, unless nothing waits.
- A request leaves exactly once: taken into a batch or removed. One that is larger than a batch leaves in parts, the
  last of which is its end; what is left of it waits behind those that came meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import islice, takewhile

from app.batching.cost_model import CostCurve
from app.batching.function import BatchFunction
from app.batching.large_requests import cut
from app.batching.priority import BULK_S
from app.batching.request import LaneKey, PendingRequest
from app.core.errors import Overloaded


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
        request.lane = self.key
        if request.deadline_s < self._latest_deadline_s:
            self.unsorted = True
            if self._most_urgent is not None and request.scheduling_key_s < self._most_urgent.scheduling_key_s:
                self._most_urgent = request
        else:
            self._latest_deadline_s = request.deadline_s
        if request.priority_offset_s:
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
        overtaken = list(takewhile(lambda other: other.order_key_s > request.order_key_s, others))
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
    def scheduling_key_s(self) -> float:
        """That of its most urgent request. Searched for when that one has left, so once a batch at the most."""
        if not (self.mixed or self.unsorted):
            return self.head.scheduling_key_s
        if self._most_urgent is None or self._most_urgent not in self.waiting:
            self._most_urgent = min(self.waiting, key=_urgency_s)
        return self._most_urgent.scheduling_key_s

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
    def explores(self) -> bool:
        """See Costs."""
        return self.costs.explores

    @property
    def max_rows(self) -> int:
        """Also if it was found since that outputs do not follow rows: what came for a batch must not be cut smaller."""
        return self.largest


def _urgency_s(request: PendingRequest) -> float:
    return request.scheduling_key_s


class RequestQueue:
    """All lanes, and the room that they share."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = 0
        self._bulk_rows = max_rows // 2
        self._lanes: dict[LaneKey, Lane] = {}

    @property
    def lanes(self) -> Collection[Lane]:
        return self._lanes.values()

    def lane(self, key: LaneKey) -> Lane:
        """The lane of requests with this key, of which at least one waits. Raises KeyError where none does."""
        return self._lanes[key]

    def push(self, key: LaneKey, function: BatchFunction, request: PendingRequest) -> None:
        """Lines it up in the lane of `key`. Raises Overloaded where there is no room."""
        weight = request.rows or 1
        if self.rows + weight > self._bulk_rows:
            self._check_room(weight, bulk=request.priority_offset_s <= -BULK_S)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, function)
        lane.add(request)
        function.enter(request.rows)
        lane.rows += weight
        self.rows += weight
        if weight > lane.largest:
            lane.later_rows += lane.later(weight)
        lane.unfilled_rows += lane.unfilled(weight)

    def _check_room(self, rows: int, *, bulk: bool) -> None:
        """Raises Overloaded where `rows` more would not fit."""
        room = self._bulk_rows if bulk and self.rows else self.max_rows
        if self.rows + rows > room:
            raise Overloaded(f"The queue is full: {self.rows} of {room} rows wait, {rows} more do not fit")

    def remove(self, request: PendingRequest) -> bool:
        """Takes a waiting request out; False where it does not wait (any more)."""
        if request.lane is None:
            return False
        lane = self._lanes[request.lane]
        self._left(lane, (request,))
        lane.function.leave(1, request.rows)
        return True

    def take(self, lane: Lane, rows: int, most_rows: int, now: float) -> list[PendingRequest]:
        """Takes requests off the front while they fit into `rows`, at least the first.

        One of more than `most_rows` is cut: the part that fits is taken, the rest enters the lane again. What is
        taken stays under way; who took it tells its function when it is answered. What was answered meanwhile
        (cancelled, and not yet removed by its caller) is dropped on the way, so the list may be empty.
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
        self._left(lane, gone + taken)
        if lane.cut:
            ragged, ragged_outputs = lane.function.ragged, lane.function.ragged_outputs
            taken = [
                cut(request, request.rows, ragged, ragged_outputs) if request.parts is not None else request
                for request in taken
            ]
        if large is not None:
            taken.append(self._take_part(lane, large, room, now))
        for request in gone:
            request.forget()
            lane.function.leave(1, request.rows)
        return taken

    def _take_part(self, lane: Lane, request: PendingRequest, rows: int, now: float) -> PendingRequest:
        """The rest waits behind those that came meanwhile."""
        left = request.rows - rows
        lane.later_rows += lane.later(left) - lane.later(request.rows)
        lane.unfilled_rows += lane.unfilled(left) - lane.unfilled(request.rows)
        part = cut(request, rows, lane.function.ragged, lane.function.ragged_outputs)
        lane.function.requests_under_way += 1
        lane.rows -= rows
        self.rows -= rows
        lane.enter_again(request, now)
        return part

    def _left(self, lane: Lane, requests: Sequence[PendingRequest]) -> None:
        waiting, weight = lane.waiting, 0
        if lane.later_rows:
            lane.later_rows -= sum([lane.later(request.rows) for request in requests])
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
