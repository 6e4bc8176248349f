"""Whose turn it is of the requests in flight: start-time fair queueing by nodes. No I/O, no clock.

Rules (test_agenda.py)
- A request has a virtual time: it moves forward by each node that is taken while not all fits into a call.
- The time of all is where the last node was that was taken, or further by an equal part of the call for each request.
- A request begins at the time of all, and nobody is behind it: unused turns are not saved up. So everybody's place
  comes up, however many others arrive, and who has just come waits for a part of a call of each other at most.

Batching has the same rules for callers (app/batching/waiting/callers.py), there by seconds.
"""

from __future__ import annotations

import numpy as np

from app.pipelines.fold.arena import grown
from app.pipelines.fold.forest import Numbers

#: The bits of the virtual time of a node: it is a whole number, so that each one's share of a call is above 0.
_SHARE_BITS = 6

#: The bits by which a virtual time is before an age.
_AGE_BITS = 30

#: How far ahead a request is, by a node that is taken.
NODE = 1 << (_SHARE_BITS + _AGE_BITS)


class Turns:
    """The virtual times and ages of requests.

    Attributes:
        times, ages: by their numbers.
        now: the time of all.
    """

    __slots__ = ("_begun", "_requests", "ages", "now", "times")

    def __init__(self, requests: int) -> None:
        self.now = self._begun = self._requests = 0
        self.times = np.zeros(requests, np.intp)
        self.ages = np.zeros(requests, np.intp)

    def __len__(self) -> int:
        return len(self.times)

    def grow(self, requests: int) -> None:
        self.times, self.ages = grown(self.times, requests), grown(self.ages, requests)

    def begin(self, request: int) -> None:
        """A new request has this number."""
        self._begun += 1
        self._requests += 1
        self.times[request] = self.now
        self.ages[request] = self._begun & ((1 << _AGE_BITS) - 1)

    def ahead(self) -> Numbers:
        """How far each is ahead of the time of all; of equals the older one less. No two are equal; all fit 62 bits."""
        np.maximum(self.times, self.now, out=self.times)
        ahead = self.times - self.now
        ahead <<= _AGE_BITS
        ahead += self.ages
        return ahead

    def end(self) -> None:
        """One of the requests is over."""
        self._requests -= 1

    def charge(self, requests: Numbers, last: int) -> None:
        """Nodes of these requests were taken; requests stand there once for each node.

        Args:
            last: how far the last of them was ahead; see `ahead`.
        """
        np.add.at(self.times, requests, 1 << _SHARE_BITS)
        self.go_on(len(requests), last)

    def go_on(self, nodes: int, last: int) -> None:
        """The time of all, when so many nodes were taken and charged."""
        share = (nodes << _SHARE_BITS) // max(1, self._requests)
        self.now += max(1, share, last >> _AGE_BITS)

    def __repr__(self) -> str:
        return f"<Turns of {self._requests} requests at {self.now >> _SHARE_BITS} nodes>"
