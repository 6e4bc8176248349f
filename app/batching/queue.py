"""Requests that wait, in lanes, in order of arrival and priority. Pure: no clock, no asyncio.

Invariants
- A lane exists only while something waits in it.
- `rows` of the queue is the sum over its lanes, and of a lane the sum over its requests;
  a request without rows counts as one, so that nothing waits for free.
- A request leaves exactly once: taken into a batch or removed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import inf
from typing import Any, NamedTuple, Protocol

from app.batching.padding import BatchSizes
from app.batching.shape_padding import ShapePadding
from app.errors import Overloaded
from app.inference import Array


class LaneKey(NamedTuple):
    """Requests with equal keys may share one call of a model.

    `shape` holds the inner shape (all dimensions but the first) of each input; of requests that are padded
    to share a call, the one that bounds their bucket.
    """

    model: str
    version: int
    signature: str
    outputs: tuple[str, ...] = ()
    shape: tuple[tuple[int, ...], ...] = ()
    padded: bool = False


def _mix(average: float, value: float) -> float:
    return average + (value - average) / 16


@dataclass(slots=True, eq=False)
class BatchFunction:
    """What a lane's batches are run through.

    Where `batchable` is false a request runs alone, as it came, and counts as one row. With `padding` requests
    of different shapes share its calls.
    Measured: `call_s`, how long a call of late took, and `slowest_s`, how long the slowest of late did (seconds;
    infinity before the first); `peak_rows`, how many rows of late were under way at the most, waiting or executing.
    """

    run: Callable[[Mapping[str, Array]], dict[str, Array]]
    sizes: BatchSizes
    batchable: bool = True
    padding: ShapePadding | None = None
    call_s: float = 0.0
    slowest_s: float = inf
    requests_under_way: int = 0
    rows_under_way: int = 0
    peak_rows: float = 0.0
    on_idle: Callable[[], None] | None = None

    @property
    def max_rows(self) -> int:
        return self.sizes.largest if self.batchable else 1

    def enter(self, rows: int) -> None:
        """A request waits from now on."""
        self.requests_under_way += 1
        self.rows_under_way += rows
        self.peak_rows = max(self.peak_rows, self.rows_under_way)

    def leave(self, requests: int, rows: int) -> None:
        """So many requests were answered, or are no longer waited for; after the last one `on_idle` is told."""
        self.requests_under_way -= requests
        self.rows_under_way -= rows
        if not self.requests_under_way and self.on_idle is not None:
            self.on_idle()

    def took(self, seconds: float) -> None:
        """A call ended."""
        self.call_s = _mix(self.call_s, seconds) if self.call_s else seconds
        self.slowest_s = seconds if self.slowest_s == inf else max(_mix(self.slowest_s, self.call_s), seconds)
        self.peak_rows = max(_mix(self.peak_rows, 0.0), self.rows_under_way)


class Reply(Protocol):
    """Where the answer goes: an asyncio.Future, or a fake of one."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class _Answered:
    """Stands for a reply that was given, and keeps nothing of it."""

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return None

    def set_result(self, _result: Any, /) -> None:
        raise AssertionError("answered twice")

    set_exception = set_result


_ANSWERED = _Answered()
_NOTHING: Mapping[str, Array] = {}


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request on its way through the batcher. Times are monotonic seconds; `head_start_s` see priority.py."""

    inputs: Mapping[str, Array]
    rows: int
    reply: Reply
    arrival_s: float
    deadline_s: float = inf
    head_start_s: float = 0.0
    lane: Lane | None = None

    @property
    def weight(self) -> int:
        return self.rows or 1

    @property
    def rank_s(self) -> float:
        """Its place in a lane: the earlier, the nearer to the front."""
        return self.arrival_s - self.head_start_s

    def forget(self) -> None:
        """Lets go of tensors and reply: whoever still lists the request must not keep their memory."""
        self.inputs = _NOTHING
        self.reply = _ANSWERED


@dataclass(slots=True, eq=False)
class Lane:
    """First come, first served; a head start moves a request forward past those that came within it."""

    key: LaneKey
    function: BatchFunction
    waiting: OrderedDict[PendingRequest, None] = field(default_factory=OrderedDict)
    rows: int = 0
    mixed: bool = False

    def add(self, request: PendingRequest) -> None:
        """Puts the request behind everyone of its rank and before."""
        self.waiting[request] = None
        if request.head_start_s:
            self.mixed = True
        if self.mixed:
            others = islice(reversed(self.waiting), 1, None)
            overtaken = list(takewhile(lambda other: other.rank_s > request.rank_s, others))
            for other in reversed(overtaken):
                self.waiting.move_to_end(other)

    @property
    def head(self) -> PendingRequest:
        return next(iter(self.waiting))

    @property
    def oldest_arrival_s(self) -> float:
        if self.mixed:
            return min(request.arrival_s for request in self.waiting)
        return self.head.arrival_s

    @property
    def max_rows(self) -> int:
        return self.function.max_rows

    @property
    def call_s(self) -> float:
        return self.function.call_s

    @property
    def peak_rows(self) -> float:
        return self.function.peak_rows


class RequestQueue:
    """All lanes, and the room that they share."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = 0
        self._lanes: dict[LaneKey, Lane] = {}

    @property
    def lanes(self) -> Collection[Lane]:
        return self._lanes.values()

    def check_room(self, rows: int) -> None:
        """Raises Overloaded where `rows` more would not fit."""
        if self.rows + rows > self.max_rows:
            raise Overloaded(f"The queue is full: {self.rows} of {self.max_rows} rows wait, {rows} more do not fit")

    def push(self, key: LaneKey, function: BatchFunction, request: PendingRequest) -> None:
        """Lines it up in the lane of `key`. Raises Overloaded where there is no room."""
        weight = request.rows or 1
        if self.rows + weight > self.max_rows:
            self.check_room(weight)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, function)
        lane.add(request)
        request.lane = lane
        function.enter(request.rows)
        lane.rows += weight
        self.rows += weight

    def remove(self, request: PendingRequest) -> bool:
        """Takes a waiting request out; False where it does not wait (any more)."""
        lane = request.lane
        if lane is None:
            return False
        self._left(lane, (request,))
        lane.function.leave(1, request.rows)
        return True

    def take(self, lane: Lane, max_rows: int) -> list[PendingRequest]:
        """Takes requests off the front while they fit into `max_rows`, at least the first.

        They stay under way; who took them tells their function when they are answered.
        What was answered meanwhile (cancelled, and not yet removed by its caller) is dropped on the way,
        so the list may be empty.
        """
        gone: list[PendingRequest] = []
        taken: list[PendingRequest] = []
        room = max_rows
        for request in lane.waiting:
            if request.reply.done():
                gone.append(request)
                continue
            room -= request.weight
            if room < 0 and taken:
                break
            taken.append(request)
        self._left(lane, gone + taken)
        for request in gone:
            request.forget()
            lane.function.leave(1, request.rows)
        return taken

    def _left(self, lane: Lane, requests: Sequence[PendingRequest]) -> None:
        waiting, weight = lane.waiting, 0
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
