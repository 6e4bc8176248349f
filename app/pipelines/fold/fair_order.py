"""The fair order of requests in flight: start-time fair queueing by nodes. No I/O, no clock.

Rules (test_agenda.py)
- A request has a virtual time, which moves forward by each node taken while not all nodes fit into a call.
- The common time is the place of the last node taken, or further by an equal part of the call for each request.
- A request begins at the common time, and none is behind it: unused shares are not saved up. So each request is served,
  however many requests arrive, and a new request waits for at most a part of a call of each other request.

Batching has the same rules for callers (app/batching/waiting/callers.py), there by seconds.
"""

from __future__ import annotations

import numpy as np

from app.pipelines.fold.arena import grown
from app.pipelines.fold.forest import Numbers

#: The bits of the virtual time of a node: a share of a call is a whole number above 0.
_SHARE_BITS = 6

#: The bits of an age, which stand below a virtual time.
_AGE_BITS = 30

#: The distance by which one taken node moves a request ahead.
NODE = 1 << (_SHARE_BITS + _AGE_BITS)


class FairOrder:
    """The virtual times and ages of requests.

    Attributes:
        times, ages: by request number.
        now: the common time.
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
        """Begin a new request with this number."""
        self._begun += 1
        self._requests += 1
        self.times[request] = self.now
        self.ages[request] = self._begun & ((1 << _AGE_BITS) - 1)

    def ahead(self) -> Numbers:
        """The distance of each request from the common time; of equals the older one's is less.

        No two are equal; all fit 62 bits.
        """
        np.maximum(self.times, self.now, out=self.times)
        ahead = self.times - self.now
        ahead <<= _AGE_BITS
        ahead += self.ages
        return ahead

    def end(self) -> None:
        """End a request."""
        self._requests -= 1

    def charge(self, requests: Numbers, last: int) -> None:
        """Charge requests for taken nodes, and move the common time.

        Args:
            requests: their numbers, one for each node.
            last: the distance of the last node; see `ahead`.
        """
        np.add.at(self.times, requests, 1 << _SHARE_BITS)
        share = (len(requests) << _SHARE_BITS) // max(1, self._requests)
        self.now += max(1, share, last >> _AGE_BITS)

    def __repr__(self) -> str:
        return f"<FairOrder of {self._requests} requests at {self.now >> _SHARE_BITS} nodes>"
