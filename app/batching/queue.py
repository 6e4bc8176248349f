"""The queue: waiting requests, in lanes of requests that may share a call. No I/O, no clock.

Invariants (test_queue.py)
- A lane exists only while a request waits in it.
- `rows` of the queue is the sum over its lanes, and of a lane the sum over its requests; a request without rows counts
  as one row, so that none waits for free.
- A request gives its room back when it leaves. A request that leaves in parts gives its rows back part by part, and its
  bytes with the last part: the parts share its memory.
- A request leaves exactly once: taken into a batch, or removed. A request larger than a batch leaves in parts; the rest
  of it waits behind the requests that came meanwhile. If a step stands for several requests, the first of them may
  leave alone, and the others keep its place.
- Adding, taking and removing a request takes O(log n) of n waiting requests and lanes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

from app.batching.function import BatchFunction
from app.batching.large_requests import cut
from app.batching.priority import BULK_S
from app.batching.request import LaneKey, PendingRequest
from app.batching.waiting.caller_order import CallerOrder
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.batching.waiting.lane_callers import LaneCallers
from app.batching.waiting.lane_order import LaneOrder
from app.batching.waiting.room import Room
from app.batching.waiting.work import WaitingWork
from app.core.inference import tensor_bytes

#: A padded lane by its size: the cells of a row, the number that no other lane has, and the lane.
_Sized = tuple[int, int, Lane]


def _sized(lane: Lane) -> _Sized:
    padding = lane.function.padding
    assert padding is not None  # noqa: S101 - the lane is padded
    return padding.cells(lane.key.shape), lane.serial, lane


def _largest(lane: Lane) -> int:
    return lane.max_rows


class RequestQueue:
    """The waiting requests: all lanes, and the room that they share.

    Args:
        max_rows, max_bytes: the most that may wait (room.py).
        callers: the callers, which have fair shares of devices and room; None if callers are not told apart.
        weights: by model, its share of the room that is kept for models (room.py).
        most_rows: the rows of a full batch of a lane.

    Attributes:
        callers: as given.
        rows, bytes: the rows and bytes that wait.
        work: the seconds of the waiting calls, except for those of the only lane.
        only_lane: the lane in which all requests wait, if it was the only one since it was opened, without fair
            callers: it needs no place in an order, and no other lane waits for its work.
    """

    def __init__(
        self,
        max_rows: int,
        most_rows: Callable[[Lane], int] = _largest,
        weights: Mapping[str, float] = MappingProxyType({}),
        *,
        callers: Callers | None = None,
        max_bytes: float = inf,
    ) -> None:
        self.callers = callers
        self.room = Room(max_rows, weights, max_bytes)
        self.rows = self.bytes = 0
        self._orders: dict[str, LaneOrder[Any]] = {}  # of lanes, or of the requests of each caller in them
        self.only_lane: Lane | None = None
        self.work = WaitingWork(most_rows)
        self._lanes: dict[LaneKey, Lane] = {}
        self._sized: dict[tuple[object, ...], list[_Sized]] = {}  # padded lanes that may be merged, by size

    @property
    def lanes(self) -> Collection[Lane]:
        return self._lanes.values()

    @property
    def orders(self) -> Mapping[str, LaneOrder[Any]]:
        """The lanes of each model for which a request waits, by urgency."""
        if self.only_lane is not None:
            self._place()
        return self._orders

    def waiting(self, now: float) -> Mapping[str, tuple[int, float]]:
        """The rows that wait, and the seconds that the oldest request has waited, by model with waiting requests."""
        found: dict[str, tuple[int, float]] = {}
        for lane in self._lanes.values():
            rows, oldest_s = found.get(lane.key.model, (0, 0.0))
            found[lane.key.model] = rows + lane.rows, max(oldest_s, now - lane.waiting_since_s)
        return found

    def lane(self, key: LaneKey) -> Lane:
        """The lane of requests with this key. Raises KeyError if none waits."""
        return self._lanes[key]

    def nearest(self, lane: Lane) -> Iterator[tuple[int, Lane]]:
        """The lanes that may be merged with a padded lane, each with the cells of its row, nearest in size first.

        The caller may take requests from a lane before it asks for the next one.
        """
        sized = self._sized.get(lane.key.call, [])
        below = above = lane_size = _sized(lane)
        while True:
            # Found anew each time, because lanes come and go meanwhile.
            last, first = bisect_left(sized, below) - 1, bisect_right(sized, above)
            smaller = sized[last] if last >= 0 else None
            larger = sized[first] if first < len(sized) else None
            if smaller is not None and (larger is None or lane_size[0] / smaller[0] <= larger[0] / lane_size[0]):
                below = nearest = smaller
            elif larger is not None:
                above = nearest = larger
            else:
                return
            yield nearest[0], nearest[2]

    def push(self, key: LaneKey, function: BatchFunction, request: PendingRequest, *, admitted: bool = False) -> None:
        """Puts a request into the lane of `key`. Raises Overloaded if there is no room, unless it is admitted."""
        rows, size = request.rows or 1, tensor_bytes(request.inputs)
        room = rows if size <= rows * self.room.row_bytes else self.room.needed(rows, size)
        caller = request.caller if self.callers is not None else None
        if not admitted:
            room = self.room.check(key.model, room, bulk=request.priority_offset_s <= -BULK_S, caller=caller)
        else:
            room = self.room.share(key.model, room, caller)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._open(key, function)
        urgent = lane.add(request)
        if lane is not self.only_lane:
            if urgent or lane.asleep:
                self._orders[key.model].place(lane)
            self.work.changed(lane)
        lane.function.requests_under_way += 1  # of the lane: it may have been made for an earlier one of the same key
        lane.rows += rows
        self.rows += rows
        self.bytes += size
        request.room, request.tensor_bytes = room, size
        self.room.add(key.model, room, caller)
        if rows > lane.max_rows:
            lane.deferred_rows += lane.deferred(rows)
        if rows > 1:
            lane.unfilled_rows += lane.unfilled(rows)

    def check_room(self, request: PendingRequest, models: Sequence[str]) -> None:
        """Raises Overloaded if one of the models has no room for a request of as many rows."""
        caller, bulk = request.caller if self.callers is not None else None, request.priority_offset_s <= -BULK_S
        for model in models:
            self.room.check(model, request.counted_rows, bulk=bulk, caller=caller)

    def take_room(self, model: str, requests: Sequence[PendingRequest]) -> None:
        """Takes room for requests that have left their lane and wait elsewhere, until `give_back`."""
        for request in requests:
            request.room = self.room.needed(request.counted_rows, tensor_bytes(request.inputs))
            self.room.add(model, request.room, request.caller if self.callers is not None else None)

    def give_back(self, model: str, requests: Sequence[PendingRequest]) -> None:
        for request in requests:
            self.room.add(model, -request.room, request.caller if self.callers is not None else None)

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

        A request of more than `most_rows` rows is cut: the part that fits is taken, the rest stays in the lane. If a
        step stands for several requests, those that fit are taken, and the others keep its place. Other coalesced
        requests are no larger than a call and are never cut: each of them is to be answered as a whole. The function
        counts taken requests as under way until BatchInFlight.leave. A request that was answered meanwhile (cancelled,
        and not removed by its caller yet) is dropped, so the list may be empty.
        """
        # 1. The requests at the front that fit; the first one that does not may give a part.
        gone: list[PendingRequest] = []
        taken: list[PendingRequest] = []
        large, fitting, room = None, 0, rows
        for request in lane:
            if request.reply.done():
                gone.append(request)
                continue
            request_rows = request.rows or 1
            if request_rows > room:
                fitting = request.fitting(room) if request.coalesced_s else room if request_rows > most_rows else 0
                if fitting > 0:
                    large = request
                    break
                if taken:
                    break
            room -= request_rows
            taken.append(request)
        self._detach(lane, gone + taken)

        # 2. The rest of a large request is its last part.
        if lane.has_parts:
            ragged, ragged_outputs = lane.function.ragged, lane.function.ragged_outputs
            taken = [
                cut(request, request.rows, ragged, ragged_outputs) if request.parts is not None else request
                for request in taken
            ]

        # 3. A request that does not fit as a whole gives a part. Answered requests are dropped.
        if large is not None:
            part = self._take_part(lane, large, fitting, now)
            (gone if part.reply.done() else taken).append(part)
        for request in gone:
            request.release()
            lane.function.leave()
        return taken

    def _take_part(self, lane: Lane, request: PendingRequest, rows: int, now: float) -> PendingRequest:
        """A part of `rows` rows. The rest waits behind the requests that came meanwhile; of several, in its place."""
        left = request.rows - rows
        lane.deferred_rows += lane.deferred(left) - lane.deferred(request.rows)
        lane.unfilled_rows += lane.unfilled(left) - lane.unfilled(request.rows)
        lane.function.requests_under_way += 1
        lane.rows -= rows
        self.rows -= rows
        room, request.room = request.room, min(request.room, self.room.needed(left, request.tensor_bytes))
        self.room.add(lane.key.model, request.room - room, request.caller if self.callers is not None else None)
        if request.coalesced_s:
            part = request.divide(rows)
            lane.shrink(request, rows)
        else:
            part = cut(request, rows, lane.function.ragged, lane.function.ragged_outputs)
            lane.requeue(request, rows, now)
        if lane is not self.only_lane:
            self.work.changed(lane)
        return part

    def _detach(self, lane: Lane, requests: Sequence[PendingRequest]) -> None:
        lane.remove(requests)
        rows = room = size = 0
        for request in requests:
            rows += request.rows or 1
            room += request.room
            size += request.tensor_bytes
            if self.callers is not None:
                self.room.add(lane.key.model, -request.room, request.caller)
        if self.callers is None:
            self.room.add(lane.key.model, -room)
        lane.rows -= rows
        self.rows -= rows
        self.bytes -= size
        if lane.deferred_rows:
            lane.deferred_rows -= sum([lane.deferred(request.rows) for request in requests])
        if lane.unfilled_rows:
            lane.unfilled_rows -= sum([lane.unfilled(request.counted_rows) for request in requests])
        if not lane.rows:
            self._close(lane)
        elif lane is not self.only_lane:
            self.work.changed(lane)

    def _open(self, key: LaneKey, function: BatchFunction) -> Lane:
        lane = Lane(key, function)
        if self.callers is not None:
            lane.callers = LaneCallers(lane, self.callers, self._order(key.model))
        elif not self._lanes:
            self.only_lane = lane
        else:
            self._place()
            self._order(key.model)
        self._lanes[key] = lane
        if key.padded:
            insort(self._sized.setdefault(key.call, []), _sized(lane))
        return lane

    def _place(self) -> None:
        """Puts the only lane in the order of its model, and counts its work, as a further lane is about to come."""
        lane, self.only_lane = self.only_lane, None
        if lane is not None:
            self._order(lane.key.model).place(lane)
            self.work.changed(lane)

    def _order(self, model: str) -> LaneOrder[Any]:
        order = self._orders.get(model)
        if order is None:
            order = self._orders[model] = LaneOrder() if self.callers is None else CallerOrder()
        return order

    def _close(self, lane: Lane) -> None:
        key = lane.key
        del self._lanes[key]
        if lane is self.only_lane:
            self.only_lane = None
        else:
            self.work.gone(lane)
            if not self._lanes:
                self.work.clear()
            order = self._orders[key.model]
            if lane.callers is None:
                order.remove(lane)
            lane.callers = None  # the two refer to each other
            if not order.lanes:
                del self._orders[key.model]
        if key.padded:
            sized = self._sized[key.call]
            del sized[bisect_left(sized, _sized(lane))]
            if not sized:
                del self._sized[key.call]

    def replan(self) -> None:
        """Wakes all lanes: their policies have changed, so other lanes may be due."""
        for order in self._orders.values():
            order.wake(inf)

    def __repr__(self) -> str:
        lanes = ", ".join(f"{lane.key.model}/{lane.key.signature}: {lane.rows}" for lane in self.lanes)
        return f"<RequestQueue {self.rows}/{self.room.max_rows} rows, {self.bytes} bytes ({lanes})>"
