"""The order of a model's lanes: the most urgent one that may be due, and those that are known not to be due yet.

Both orders are heaps. Entries are corrected only when they come up: a lane's valid entry is `lane.place`, its other
entries are out of date. A lane becomes more urgent only by a new request, which makes a new entry. It becomes less
urgent when requests leave; then its entry stands too early, never too late. So each request and each batch costs O(log
n) of n lanes, and a lane that is not due is planned again only when its time has come or a request was added. No I/O,
no clock.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, Protocol, TypeVar

from app.batching.waiting.lane import Lane
from app.batching.waiting.priority_lines import SMALL


class Placed(Protocol):
    """An item of an order: a lane, or the requests of one caller in it.

    `start` is the virtual time of its caller; 0 if callers are not told apart.
    """

    place: object
    asleep: bool
    less_urgent: bool

    @property
    def start(self) -> float: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def serial(self) -> int: ...
    @property
    def scheduling_key_s(self) -> float: ...
    @property
    def waiting_since_s(self) -> float: ...


T = TypeVar("T", bound=Placed)

#: An entry: the scheduling key, or the time when the lane is due; the time since when the lane waits; the lane's
#: number; the entry's number; and the lane.
Entry = tuple[float, float, int, int, T]

_serial = count()


class LaneOrder(Generic[T]):
    """The lanes of one model."""

    __slots__ = ("_asleep", "_awake", "lanes")

    def __init__(self) -> None:
        self.lanes = 0
        self._awake: list[Entry[T]] = []  # by urgency
        self._asleep: list[Entry[T]] = []  # by the time at which they are due

    def place(self, lane: T) -> None:
        """Puts a lane that is new, or has a new request, among those that are awake, by its urgency now."""
        if lane.place is None:
            self.lanes += 1
        self._push(self._awake, lane, lane.scheduling_key_s)

    def remove(self, lane: T) -> None:
        """Takes out a lane in which no request waits any more."""
        lane.place = None
        self.lanes -= 1

    def sleep(self, lane: T, due_s: float) -> None:
        """The lane is not due before then, unless requests are added."""
        self._push(self._asleep, lane, due_s)

    def wake(self, now: float) -> None:
        """Looks again at the lanes that are due by now; with infinity at all, which may be planned otherwise now."""
        if not self._asleep:
            return
        while (entry := self.next_asleep()) is not None and entry[0] <= now:
            *_, lane = heappop(self._asleep)
            self.place(lane)

    def first_awake(self) -> Entry[T] | None:
        """The most urgent lane that may be due."""
        awake = self._awake
        while awake:
            entry = awake[0]
            *_, lane = entry
            if lane.place is not entry:
                heappop(awake)
                continue
            if not lane.less_urgent:
                return entry
            lane.less_urgent = False
            lane.place = (lane.scheduling_key_s, lane.waiting_since_s, lane.serial, next(_serial), lane)
            heapreplace(awake, lane.place)
        return None

    def next_asleep(self) -> Entry[T] | None:
        """The lane that is due next, of the lanes that are not due yet."""
        asleep = self._asleep
        while asleep and asleep[0][-1].place is not asleep[0]:
            heappop(asleep)
        return asleep[0] if asleep else None

    def _push(self, heap: list[Entry[T]], lane: T, at_s: float) -> None:
        if len(heap) > 2 * self.lanes + SMALL:
            heap[:] = [entry for entry in heap if entry[-1].place is entry]
            heapify(heap)
        entry = (at_s, lane.waiting_since_s, lane.serial, next(_serial), lane)
        lane.place, lane.asleep, lane.less_urgent = entry, heap is self._asleep, False
        heappush(heap, entry)
