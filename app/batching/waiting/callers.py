"""The callers whose requests wait, and the device time that each has had: start-time fair queueing. No I/O, no clock.

Rules (test_callers.py, tests/laws/test_callers.py)
- A caller has one virtual time, whatever lanes and models its requests wait in. A call moves it forward by the caller's
  part of the call's seconds, by rows. Most of that is charged at the end of the call, a little at its start, so that
  the next device serves another caller.
- The caller with the least virtual time is served next. So waiting callers get equal seconds of the devices, however
  much each sent, up to a call of each and device. A caller is also charged for requests that fill the rest of another
  caller's call.
- A caller's part is divided by the caller's weight, so waiting callers get seconds in proportion to their weights.
- A caller without waiting requests starts again at the common virtual time: an unused share is not saved up. The common
  time moves on with each call, so a stream of new callers never overtakes another caller for ever. It stops at the time
  of the caller that was served, so a new caller waits for one call of each other caller at most.
- Virtual times never go back. So an outdated entry of a heap stands too early, never too late. It is corrected when it
  comes up: at most once for each time that its caller was charged.

P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from operator import attrgetter
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from app.batching.waiting.priority_lines import SMALL

#: How much of the longest call is remembered at the next one: half of it after 69 calls. Chosen.
_FADE = 0.99

#: The part of a call's expected seconds that is charged at its start. Chosen, small: the call may take much less than
#: expected, and a charge is not given back.
_IN_ADVANCE = 0.01

_serial = count()


class Caller:
    """The record of one caller, as long as it is remembered.

    Attributes:
        start: the virtual time at which its next call starts, seconds.
        weight: its share, relative to other callers'; 1 is usual.
        lanes: the number of lanes in which its requests wait.
        work_s: the seconds of calls that hold only its waiting requests.
    """

    __slots__ = ("lanes", "start", "weight", "work_s")

    def __init__(self, start: float, weight: float = 1.0) -> None:
        self.start = start
        self.weight = weight
        self.lanes = 0
        self.work_s = 0.0

    def __repr__(self) -> str:
        return f"<Caller at {self.start:g} s, waits in {self.lanes} lanes>"


class Charge:
    """The charge of one call in flight to its callers.

    Attributes:
        first: the caller with the least virtual time, which the call serves.
        parts: the callers, each with its part of the rows; the parts add up to 1.
        due_part: the sum of the parts of callers that are not ahead of the common time.
        paid_s: the seconds that the callers were charged already.
    """

    __slots__ = ("due_part", "first", "paid_s", "parts")

    def __init__(self, parts: Sequence[tuple[Caller, float]]) -> None:
        self.parts = parts
        self.first = min([caller for caller, _ in parts], key=attrgetter("start"))
        self.due_part = self.paid_s = 0.0

    def pay(self, seconds: float) -> None:
        for caller, part in self.parts:
            caller.start += part * seconds / caller.weight
        self.paid_s += seconds


class Callers:
    """All callers of a batcher.

    Args:
        weights: by name, the weights that are not 1; the mapping may change.

    Attributes:
        waiting: the number of callers that have waiting requests.
        weight: the sum of their weights.
        longest_s: the longest call of late, seconds.
    """

    __slots__ = ("_forget_at", "_known", "_time", "_weights", "longest_s", "waiting", "weight")

    def __init__(self, weights: Mapping[str, float] = MappingProxyType({})) -> None:
        self.waiting = 0
        self.weight = 0.0
        self._weights = weights
        self.longest_s = 0.0
        self._known: dict[str, Caller] = {}
        self._time = 0.0  # the common virtual time
        self._forget_at = SMALL

    def enter(self, name: str) -> Caller:
        """Note that a caller has a first waiting request in a lane."""
        caller = self._caller(name)
        if not caller.lanes:
            caller.weight = self._weights.get(name, 1.0)
            self.waiting += 1
            self.weight += caller.weight
            caller.start = max(caller.start, self._time)
        caller.lanes += 1
        return caller

    def leave(self, caller: Caller) -> None:
        """Note that a caller has no waiting request in a lane any more."""
        caller.lanes -= 1
        if not caller.lanes:
            self.waiting -= 1
            self.weight = self.weight - caller.weight if self.waiting else 0.0  # as below
            caller.work_s = 0.0  # sums of rounded numbers begin at zero again

    def begin(self, rows: Mapping[str, int], expected_s: float) -> Charge:
        """Charges a call that begins. The common time moves to the time of the caller that is served.

        Args:
            rows: by caller, its rows in the call.
        """
        all_rows = sum(rows.values())
        charge = Charge([(self._caller(name), caller_rows / all_rows) for name, caller_rows in rows.items()])
        self._time = max(self._time, charge.first.start)
        charge.due_part = sum([part for caller, part in charge.parts if caller.start <= self._time])
        charge.pay(_IN_ADVANCE * expected_s)
        return charge

    def end(self, charge: Charge, seconds: float) -> None:
        """Charges a call that is over. The common time moves on by its due part, over the weights of busy callers."""
        charge.pay(max(0.0, seconds - charge.paid_s))
        busy = self.weight + sum([caller.weight for caller, _ in charge.parts if not caller.lanes])
        self._time = max(self._time, min(charge.first.start, self._time + seconds * charge.due_part / busy))
        self.longest_s = max(seconds, self.longest_s * _FADE)

    def _caller(self, name: str) -> Caller:
        caller = self._known.get(name)
        if caller is None:
            if len(self._known) >= self._forget_at:
                self._forget()
            caller = self._known[name] = Caller(self._time, self._weights.get(name, 1.0))
        return caller

    def _forget(self) -> None:
        """Forgets the callers that would begin at the common time if they came again."""
        self._known = {key: caller for key, caller in self._known.items() if caller.lanes or caller.start > self._time}
        self._forget_at = 2 * len(self._known) + SMALL


class HasVirtualTime(Protocol):
    """An item of a FairHeap: the requests of a caller in one lane, or the lanes of a caller.

    `fair_place` is its valid entry in the heap, None while it has none; any other entry is out of date.
    """

    caller: Caller
    fair_place: object


T = TypeVar("T", bound=HasVirtualTime)

#: An entry of the heap: the virtual time of its caller, a number that no other entry has, and the item.
_Entry = tuple[float, int, T]


class FairHeap(Generic[T]):
    """A heap of items by the virtual times of their callers: the least first, at equal times the oldest entry."""

    __slots__ = ("_heap", "_valid")

    def __init__(self) -> None:
        self._heap: list[_Entry[T]] = []
        self._valid = 0

    def push(self, item: T) -> None:
        if len(self._heap) > 2 * self._valid + SMALL:
            self._heap = [entry for entry in self._heap if entry[2].fair_place is entry]
            heapify(self._heap)
        self._valid += 1
        item.fair_place = entry = (item.caller.start, next(_serial), item)
        heappush(self._heap, entry)

    def discard(self, item: T) -> None:
        if item.fair_place is not None:
            item.fair_place = None
            self._valid -= 1

    def first(self) -> T | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            start, _, item = entry
            if item.fair_place is not entry:
                heappop(heap)
            elif start == item.caller.start:
                return item
            else:
                item.fair_place = entry = (item.caller.start, next(_serial), item)
                heapreplace(heap, entry)
        return None

    def __iter__(self) -> Iterator[tuple[float, T]]:
        """The items with their virtual times, in order. Walks the heap without changing it, as far as it is asked."""
        self.first()
        heap = self._heap
        following = [(*heap[0][:2], 0)] if heap else []
        while following:
            start, serial, place = heappop(following)
            item = heap[place][2]
            if serial == heap[place][1]:  # the entry's first visit
                for child in (2 * place + 1, 2 * place + 2):
                    if child < len(heap):
                        heappush(following, (*heap[child][:2], child))
                if item.fair_place is not heap[place]:
                    continue
                if item.caller.start != start:
                    heappush(following, (item.caller.start, next(_serial), place))
                    continue
            yield item.caller.start, item
