"""Isolation: a batch that failed because of some of its requests is run again in smaller groups. No I/O, no clock.

Rules (test_isolation.py, tests/laws/test_isolation.py)
- A group is a batch like any other: it takes a free device, is answered as soon as it succeeds, and ends. Requests that
  expired or were cancelled before are not in it. An isolation has one group at a time. Groups alternate with other due
  batches, so one bad caller delays others by every other call at most. The oldest isolation is finished first.
- Its requests keep room in the queue until they are answered. So a flood of bad requests fills the queue, and is
  answered 503, instead of waiting in a second queue without bounds.
- An error is only given to a request that was run alone, or to all of a call that failed for another reason.
- The first group is the first half of the batch. Further sizes follow the share of bad requests so far: if it is high,
  requests go one by one. A group that failed has a bad request; if its first part has none, its rest has one.
- After `_MOST_FAILED` failed groups for each doubling of the batch requests go one by one. So a batch of n requests
  takes at most n + 3 log2(n) + 4 calls, however many are bad: with 1, 8 and 32 bad of 64 about 11, 43 and 74 calls,
  where halving to the end takes 13, 53 and 109.
- If no request was bad, the model may take fewer rows in a call than the smallest call that it rejected had. The next
  rejected call of as many rows shows whether that is so (proof/refused_call.py); from then on batches have no more.
- After a lack of memory groups only become smaller. If outputs have no row for each row of input, requests go one by
  one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from app.batching.batch import BatchInFlight, Execution
from app.batching.function import BatchFunction
from app.batching.queue import RequestQueue
from app.batching.request import PendingRequest
from app.core.bounded_cache import BoundedCache
from app.core.errors import InvalidRequest, OutOfMemory, ServingError

#: Groups that may fail for each doubling of the size of a batch. Measured by the worst and mean calls of all orders of
#: good and bad requests: with 2 sparse bad requests cost more, with 4 the worst case does.
_MOST_FAILED = 3

#: The number of good requests that count as seen at the start. Chosen: with fewer the first groups are too small.
_FIRST_GOOD = 8

#: The mean number of bad requests in a group, by which its size is chosen: it fails every other time.
_BAD_OF_GROUP = 0.69

#: Seconds for which a caller is remembered after a bad request. Chosen.
_REMEMBERED_S = 10.0

#: This many callers are remembered at most; the caller that was noted first is forgotten. Chosen.
_MAX_CALLERS = 1024


class Isolation:
    """The isolation of one batch that failed: its requests that are not answered yet.

    Args:
        batch: the batch as it failed; it is not answered itself.
        queue: gets back the room of the requests that were answered or left.

    Attributes:
        counted_s: the isolation's part of Isolations.expected_s.
    """

    def __init__(self, batch: BatchInFlight, rejection: ServingError, queue: RequestQueue) -> None:
        self.batch = batch
        self.counted_s = 0.0
        self._queue = queue
        self._suspects = deque(batch.requests)
        self._rows = sum([request.rows for request in batch.requests])  # of the suspects
        self._failures_left = _MOST_FAILED * len(batch.requests).bit_length()
        self._most = len(batch.requests)
        self._resolved = self._bad = 0
        self._tainted = 0  # one of so many requests at the front is known to be bad
        self._innocent = isinstance(rejection, InvalidRequest)  # no request was found so far that is to blame
        self._refused_rows = batch.call_rows  # of the smallest call that was rejected
        self._record_failure(len(batch.requests), rejection)

    def __len__(self) -> int:
        return len(self._suspects)

    def next_group(self) -> BatchInFlight | None:
        """The next requests to run together; None if all were answered. Requests that left meanwhile are dropped."""
        gone = [request for request in self._suspects if request.reply.done()]
        if gone:
            self._innocent = False  # one of these may have been to blame
            tainted = list(self._suspects)[: self._tainted]
            self._tainted -= sum([request.reply.done() for request in tainted])
            self._suspects = deque([request for request in self._suspects if not request.reply.done()])
            left = self.batch.part(gone)
            left.leave()
            self._rows -= left.rows
            self._queue.give_back(self.batch.key.model, gone)
            for request in gone:
                request.release()
        if not self._suspects:
            return None
        group = self.batch.part([self._suspects.popleft() for _ in range(self._size())])
        self._rows -= group.rows
        return group

    def record(self, requests: Sequence[PendingRequest], execution: Execution) -> None:
        """Learns from the end of a group: requests without an outcome are suspects again."""
        if execution.rejection is not None:
            self._suspects.extendleft(reversed(requests))
            self._rows += sum([request.rows for request in requests])
            self._record_failure(len(requests), execution.rejection)
            self._refused_rows = min(self._refused_rows, self.batch.part(requests).call_rows)
            return
        self._innocent = self._innocent and execution.succeeded
        self._queue.give_back(self.batch.key.model, requests)
        self._resolved += len(requests)
        bad = isinstance(execution.outcomes[0], InvalidRequest)  # of a group of one
        self._bad += bad
        self._tainted = 0 if bad else max(0, self._tainted - len(requests))

    def conclude(self) -> None:
        """Ends the isolation. If all requests were answered in smaller groups, their number may have been to blame."""
        if self._innocent:
            self.batch.function.row_limit.suspect(self._refused_rows)

    def _record_failure(self, requests: int, rejection: ServingError) -> None:
        if isinstance(rejection, InvalidRequest):
            self._failures_left -= 1
            self._tainted = requests
        elif isinstance(rejection, OutOfMemory):
            self._most = requests // 2
        else:
            self._most = 1

    def _size(self) -> int:
        """The number of requests in the next group."""
        share = (self._bad + 1) / (self._resolved + _FIRST_GOOD)
        size = self._most
        if self._failures_left <= 0:
            size = 1
        elif self._tainted:
            size = self._tainted // 2
        elif self._bad:
            size = 1 << (max(1, int(_BAD_OF_GROUP / share)).bit_length() - 1)
        return max(1, min(size, self._most, len(self._suspects)))

    @property
    def expected_s(self) -> float:
        """The expected seconds of its groups if no further one fails; 0 if that is unknown."""
        if not self._suspects:
            return 0.0
        groups = -(-len(self._suspects) // self._size())
        return groups * self.batch.costs.call_s(-(-self._rows // groups))

    def __repr__(self) -> str:
        return f"<Isolation of {self.batch!r}: {len(self._suspects)} requests wait>"


class Isolations:
    """The isolations of a batcher; groups of the oldest one are run first.

    Args:
        queue: isolated requests take its room.

    Attributes:
        open: all isolations: of each, a request is not answered.
        waiting: the isolations whose group could be run now, the oldest first.
        waiting_since_s: the time since when a group could have been run, if one waits; monotonic seconds.
        expected_s: the expected seconds of all groups that will follow.
    """

    waiting_since_s: float

    def __init__(self, queue: RequestQueue) -> None:
        self._queue = queue
        self.open = set[Isolation]()
        self.waiting: deque[Isolation] = deque()
        self._running: dict[BatchInFlight, Isolation] = {}
        self._was_last = False
        self.expected_s = 0.0

    def next(self, *, others_due: bool, ready: Callable[[BatchFunction], bool] = lambda _: True) -> Isolation | None:
        """The isolation whose group is next; None if none waits, or if another batch is due and a group was last.

        Args:
            ready: whether a call of a function finds its devices free.
        """
        is_next = bool(self.waiting) and not (others_due and self._was_last) and ready(self.waiting[0].batch.function)
        self._was_last = is_next
        return self.waiting.popleft() if is_next else None

    def next_group(self, isolation: Isolation) -> BatchInFlight | None:
        """The next group of an isolation, which starts; None if the isolation is over, since all others have left."""
        group = isolation.next_group()
        self._count(isolation)
        if group is not None:
            self._running[group] = isolation
        else:
            self.open.remove(isolation)
        return group

    def part_of(self, batch: BatchInFlight) -> BatchInFlight | None:
        """The rejected batch that a group belongs to; None if the batch is no group."""
        isolation = self._running.get(batch)
        return None if isolation is None else isolation.batch

    def record_end(self, batch: BatchInFlight, execution: Execution, now: float) -> BatchInFlight | None:
        """Learns from the end of a batch or group. Returns the batch whose isolation is over with it."""
        # 1. A group goes on with its isolation; a rejected batch begins one; any other batch needs none.
        isolation = self._running.pop(batch, None)
        begun = isolation is not None
        if isolation is not None:
            isolation.record(batch.requests, execution)
        elif execution.rejection is not None:
            isolation = Isolation(batch, execution.rejection, self._queue)
            self.open.add(isolation)
            self._queue.take_room(batch.key.model, batch.requests)
        else:
            return None
        self._count(isolation)

        # 2. The isolation is over, or its next group waits: the oldest isolation first.
        if not isolation:
            isolation.conclude()
            self.open.remove(isolation)
            return isolation.batch
        if not self.waiting:
            self.waiting_since_s = now
        if begun:
            self.waiting.appendleft(isolation)
        else:
            self.waiting.append(isolation)
        return None

    def _count(self, isolation: Isolation) -> None:
        """Counts the expected seconds of an isolation anew."""
        before_s, isolation.counted_s = isolation.counted_s, isolation.expected_s
        self.expected_s = max(0.0, self.expected_s + isolation.counted_s - before_s)
        if len(self.open) == 1:  # sums of rounded numbers begin at zero again
            self.expected_s = isolation.counted_s

    def __repr__(self) -> str:
        return f"<Isolations {[*self.waiting, *self._running.values()]}>"


class Suspects:
    """The callers that sent bad requests lately.

    A bad request costs the other requests of its batch further calls. So for a short time its caller's requests share
    calls only with those of other such callers.

    Attributes:
        until_s: by caller, until when it is remembered; monotonic seconds.
    """

    def __init__(self) -> None:
        self.until_s: BoundedCache[str, float] = BoundedCache(_MAX_CALLERS)

    def note(self, caller: str, now: float) -> None:
        """Notes a caller whose request a model rejected at `now` (monotonic seconds). Unknown callers have no name."""
        if caller:
            self.until_s.pop(caller, None)  # noted last, forgotten last
            self.until_s.keep(caller, now + _REMEMBERED_S)

    def has(self, caller: str, now: float) -> bool:
        until_s = self.until_s.get(caller)
        if until_s is not None and until_s <= now:
            del self.until_s[caller]
            return False
        return until_s is not None
