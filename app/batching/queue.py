"""Requests that wait, in lanes, and the room that they share. Pure: no clock, no asyncio.

Invariants
- A lane exists only while something waits in it.
- `rows` of the queue is the sum over its lanes, and of a lane the sum over its requests;
  a request without rows counts as one, so that nothing waits for free.
- Work in bulk never fills the queue: beyond half of its room there is none for it, unless nothing waits.
- A request leaves exactly once: taken into a batch or removed. One that is larger than a batch leaves in parts, the
  last of which is its end; what is left of it waits behind those that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.batching.function import BatchFunction
from app.batching.lane import Lane, LaneKey
from app.batching.large import cut
from app.batching.pending import PendingRequest
from app.batching.priority import BULK_S
from app.errors import Overloaded


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

    def push(self, key: LaneKey, function: BatchFunction, request: PendingRequest) -> None:
        """Lines it up in the lane of `key`. Raises Overloaded where there is no room."""
        weight = request.rows or 1
        if self.rows + weight > self._bulk_rows:
            self._check_room(weight, bulk=request.head_start_s <= -BULK_S)
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
        lane = request.lane
        if lane is None:
            return False
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
