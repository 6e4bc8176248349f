"""Which requests run out of time next. Pure.

Answered requests are dropped lazily: when they come up, or all at once as soon as they are
the majority, so the heap never holds more than about twice what is under way.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from app.batching.pending import PendingRequest

_SMALL = 64


class Deadlines:
    """The requests under way, by deadline."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PendingRequest]] = []
        self._sequence = count()
        self._compact_at = _SMALL

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The earliest deadline of an unanswered request; infinity where there is none."""
        heap = self._heap
        while heap and heap[0][2].reply.done():
            heappop(heap)
        return heap[0][0] if heap else inf

    def push(self, request: PendingRequest) -> None:
        if request.deadline_s == inf:
            return
        if len(self._heap) >= self._compact_at:
            self._compact()
        heappush(self._heap, (request.deadline_s, next(self._sequence), request))

    def pop_expired(self, now: float) -> list[PendingRequest]:
        """The unanswered requests whose deadline has come, earliest first."""
        expired = []
        while self.next_s <= now:
            expired.append(heappop(self._heap)[2])
        return expired

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].reply.done()]
        heapify(self._heap)
        self._compact_at = max(_SMALL, 2 * len(self._heap))
