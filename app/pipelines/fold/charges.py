"""What calls took of each request, and where its next one stands in the queue. No I/O, no clock.

Rules (test_folding_calls.py)
- A call stands in the queue where the first of its requests does: at that one's arrival, later by what earlier steps
  computed for it; after its first call at its beginning, later by its share of the time that passed from call to call.
  So a tree of a thousand calls gives way to what came meanwhile, and many of them to what came _MOST_AHEAD_S before
  their last call. Seconds of computing alone would not do: of small calls most of the time is passed between them.
- A call in which only large requests are (deep ones, or ones of many nodes) stands no earlier than the end of the last
  call: behind whatever came meanwhile, as each further step of a pipeline. Else a chain, whose calls have one node
  each, is always the oldest by _MOST_AHEAD_S, and small trees wait so long at each step before and behind the fold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.inference import BatchTiming
from app.pipelines.fold import compiled_fold
from app.pipelines.fold.arena import grown
from app.pipelines.fold.forest import Numbers

#: So much later than one that was computed just now may others have come, and still wait for its next call. Many trees
#: together get a small share each, so that deep ones held up what came after a second for two more. Chosen: trees of
#: usual size end within it.
_MOST_AHEAD_S = 0.05

#: A request of more levels or nodes is a large one. Chosen: trees of sentences have fewer. Were all trees large, those
#: of 64 callers would share fewer calls: a tree took 5 to 10 % more of the processor (measured).
_LARGE_LEVELS, _LARGE_NODES = 64, 512

#: Requests at first. Chosen.
_FIRST_REQUESTS = 64


class Charges:
    """Those of requests by their numbers; all times are monotonic seconds."""

    __slots__ = ("_begun_s", "_charged_s", "_compiled", "_entered_s", "_large", "_largest", "_offsets_s", "_seconds")

    def __init__(self) -> None:
        self._charged_s = 0.0  # the time up to which requests were charged
        self._entered_s = np.zeros(_FIRST_REQUESTS)  # its arrival, and its share of the time since then
        self._begun_s = np.zeros(_FIRST_REQUESTS)  # when its nodes were ready to be computed
        self._offsets_s = np.zeros(_FIRST_REQUESTS)  # of priority
        self._seconds = np.zeros(_FIRST_REQUESTS)  # of the calls that it was in
        self._largest = np.zeros(_FIRST_REQUESTS, np.intp)  # rows of the largest batch
        self._large = np.zeros(_FIRST_REQUESTS, bool)
        loaded = compiled_fold.library()
        self._compiled = None if loaded is None else compiled_fold.CompiledCharges(loaded)
        self._point_to_requests()

    def _point_to_requests(self) -> None:
        if self._compiled is not None:
            self._compiled.point_to(self._entered_s, self._begun_s, self._seconds, self._largest)

    def make_room(self, highest: int) -> None:
        """Requests have numbers up to this one."""
        if highest < len(self._entered_s):
            return
        more = 2 * (highest + 1)
        self._entered_s, self._begun_s = grown(self._entered_s, more), grown(self._begun_s, more)
        self._offsets_s, self._large = grown(self._offsets_s, more), grown(self._large, more)
        self._seconds, self._largest = grown(self._seconds, more), grown(self._largest, more)
        self._point_to_requests()

    def begin(  # noqa: PLR0917 - what is known of it
        self, number: int, levels: int, nodes: int, entered_s: float, offset_s: float, now: float, *, first: bool
    ) -> None:
        """Its nodes are ready to be computed. Before the first one nobody was there."""
        if first:
            self._charged_s = now
        self._begun_s[number] = now
        self._large[number] = levels > _LARGE_LEVELS or nodes > _LARGE_NODES
        self._entered_s[number] = entered_s
        self._offsets_s[number] = offset_s
        self._seconds[number] = self._largest[number] = 0

    def charge(self, requests: Numbers, timing: BatchTiming, now: float) -> None:
        """A call is over.

        Args:
            requests: in which each of its requests stands once for each of its nodes.
        """
        share_s = (now - self._charged_s) / max(1, timing.rows)
        self._charged_s = now
        if self._compiled is not None:
            self._compiled.charge(requests, timing.compute_s, timing.rows, share_s, now - _MOST_AHEAD_S)
            return
        nodes = np.bincount(requests)
        own = nodes.nonzero()[0]
        self._seconds[own] += timing.compute_s
        self._largest[own] = np.maximum(self._largest[own], timing.rows)
        charged = np.maximum(self._entered_s[own], self._begun_s[own])
        charged += share_s * nodes[own]
        self._entered_s[own] = np.maximum(charged, now - _MOST_AHEAD_S)

    def first_of(self, requests: Numbers) -> int:
        """Which of them stands first."""
        places = self._entered_s[requests]
        if (large := self._large[requests]).any():
            places[large] = np.maximum(places[large], self._charged_s)
        return int(requests[(places - self._offsets_s[requests]).argmin()])

    def entered_s(self, number: int) -> float:
        """Where its next call stands."""
        entered_s = float(self._entered_s[number])
        return max(entered_s, self._charged_s) if self._large[number] else entered_s

    def timings(self, numbers: Sequence[int]) -> Sequence[BatchTiming]:
        """What the calls of these requests took."""
        if not numbers:
            return ()
        of_each = zip(self._seconds[numbers].tolist(), self._largest[numbers].tolist(), strict=True)
        return [BatchTiming(0.0, seconds, rows) for seconds, rows in of_each]
