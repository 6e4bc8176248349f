"""The costs of calls by request, and the place of a request's next call in the queue. No I/O, no clock.

Rules (test_folding_calls.py)
- A call stands in the queue at the place of its first request. Before the first call of a request that place is the
  request's arrival, later by the compute time of earlier steps. Afterwards it is the beginning of the fold, later by
  the request's share of the time that passed from call to call.
- So a tree of a thousand calls gives way to requests that came meanwhile, and many such trees give way to requests that
  came _MOST_AHEAD_S before their last call. Compute time alone would not do: between small calls most time passes
  outside of them.
- A call of large requests alone (deep trees, or trees of many nodes) stands no earlier than the end of the last call.
  So it comes behind requests that came meanwhile, as a further step of a pipeline does. Otherwise a chain, whose calls
  have one node each, would always be the oldest by _MOST_AHEAD_S, and small trees would wait that long at each step
  before and behind the fold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.inference import BatchTiming
from app.pipelines.fold.arena import grown
from app.pipelines.fold.forest import Numbers

#: The most seconds by which a request may have come later than one just computed, and still wait for the latter's next
#: call. Where many trees share the time, each moves back slowly: deep trees held up requests that came a second later
#: for two seconds more. Chosen: trees of usual size end within it.
_MOST_AHEAD_S = 0.05

#: A request of more levels or nodes is large. Chosen: trees of sentences have fewer. If all trees counted as large, the
#: trees of 64 callers would share fewer calls: a tree took 5 to 10 % more of the processor (measured).
_LARGE_LEVELS, _LARGE_NODES = 64, 512

#: Requests at first. Chosen.
_FIRST_REQUESTS = 64


class FoldCosts:
    """The costs of requests, by their numbers in the agenda; all times are monotonic seconds."""

    __slots__ = ("_begun_s", "_charged_s", "_entered_s", "_large", "_largest", "_offsets_s", "_seconds")

    def __init__(self) -> None:
        self._charged_s = 0.0  # the time up to which requests were charged
        self._entered_s = np.zeros(_FIRST_REQUESTS)  # the arrival, and the share of the time since then
        self._begun_s = np.zeros(_FIRST_REQUESTS)  # when nodes were ready to be computed
        self._offsets_s = np.zeros(_FIRST_REQUESTS)  # of priority
        self._seconds = np.zeros(_FIRST_REQUESTS)  # of the calls with nodes of the request
        self._largest = np.zeros(_FIRST_REQUESTS, np.intp)  # rows of the largest batch
        self._large = np.zeros(_FIRST_REQUESTS, bool)

    def _grow(self, more: int) -> None:
        self._entered_s, self._begun_s = grown(self._entered_s, more), grown(self._begun_s, more)
        self._offsets_s, self._large = grown(self._offsets_s, more), grown(self._large, more)
        self._seconds, self._largest = grown(self._seconds, more), grown(self._largest, more)

    def begin(  # noqa: PLR0917 - what is known of it
        self, number: int, levels: int, nodes: int, entered_s: float, offset_s: float, now: float, *, first: bool
    ) -> None:
        """Begin a request, whose nodes are ready to be computed. `first`: there is no other request."""
        if number >= len(self._entered_s):
            self._grow(2 * (number + 1))
        if first:
            self._charged_s = now
        self._begun_s[number] = now
        self._large[number] = levels > _LARGE_LEVELS or nodes > _LARGE_NODES
        self._entered_s[number] = entered_s
        self._offsets_s[number] = offset_s
        self._seconds[number] = self._largest[number] = 0

    def charge(self, requests: Numbers, timing: BatchTiming, now: float) -> None:
        """Charge the requests of a call that is over.

        Args:
            requests: the requests' numbers, one for each node of the call.
        """
        share_s = (now - self._charged_s) / max(1, timing.rows)
        self._charged_s = now
        nodes, least_s = np.bincount(requests), now - _MOST_AHEAD_S
        own = nodes.nonzero()[0]
        if len(own) == 1:  # of a lone tree: as below, in a third of the time
            number = int(own[0])
            charged_s = max(self._entered_s[number], self._begun_s[number]) + share_s * len(requests)
            self._entered_s[number] = max(charged_s, least_s)
            self._seconds[number] += timing.compute_s
            self._largest[number] = max(self._largest[number], timing.rows)
            return
        charged = np.maximum(self._entered_s[own], self._begun_s[own])
        charged += share_s * nodes[own]
        self._entered_s[own] = np.maximum(charged, least_s)
        self._seconds[own] += timing.compute_s
        self._largest[own] = np.maximum(self._largest[own], timing.rows)

    def first_of(self, requests: Numbers) -> int:
        """The request, among these, that stands first in the queue."""
        places = self._entered_s[requests]
        if (large := self._large[requests]).any():
            places[large] = np.maximum(places[large], self._charged_s)
        return int(requests[(places - self._offsets_s[requests]).argmin()])

    def entered_s(self, number: int) -> float:
        """The place of a request's next call in the queue."""
        entered_s = float(self._entered_s[number])
        return max(entered_s, self._charged_s) if self._large[number] else entered_s

    def timings(self, numbers: Sequence[int]) -> Sequence[BatchTiming]:
        """The compute time and the largest batch of these requests."""
        if not numbers:
            return ()
        of_each = zip(self._seconds[numbers].tolist(), self._largest[numbers].tolist(), strict=True)
        return [BatchTiming(0.0, seconds, rows) for seconds, rows in of_each]
