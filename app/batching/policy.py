"""When a lane's next batch is due and how many rows it may take. Pure and stateless.

A policy sees what waits in one lane and answers with a plan; the batcher executes the
lane whose plan is due first. Timers therefore always start at the oldest waiting request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class LaneView(Protocol):
    """What a policy may look at: what waits, how long a call of late took, how many rows of late were under way."""

    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def oldest_arrival_s(self) -> float: ...
    @property
    def call_s(self) -> float: ...
    @property
    def peak_rows(self) -> float: ...


class BatchPlan(NamedTuple):
    """Take requests off the front while they fit into `rows`, from `due_s` on (monotonic seconds).

    `reason` says why the batch is closed then: 'full', 'idle', 'pause' or 'delay'.
    """

    due_s: float
    rows: int
    reason: str


class BatchingPolicy(Protocol):
    """Plans the next batch of a lane in which at least one request waits."""

    @property
    def eager(self) -> bool:
        """Does an idle device take at once whatever comes, and all of it?"""

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:
        """`idle_since_s` is when a device last became free (monotonic seconds), if the process is short of CPU."""


#: A pause this many calls long makes calls an eighth as frequent at most.
_CALLS_A_PAUSE = 8


@dataclass(frozen=True, slots=True)
class WorkConserving:
    """A free device takes at once whatever waits; batches fill while the device works.

    Two exceptions. A delay above 0 makes a free device wait for company until the oldest request is that
    old. And while the process is short of CPU the device pauses after a short call, up to `max_pause_s` from
    the start of the call, until as many rows wait as were under way at the most of late: calls much shorter
    than what stands around them cost the event loop more than they give (docs/architecture.md, "Short
    calls"). A lone client never waits.
    Source: the adaptive batching of TensorFlow's `batch_scheduler` with a zero timeout; the pause is ours.
    """

    max_delay_s: float = 0.0
    max_pause_s: float = 0.0

    @property
    def eager(self) -> bool:
        return not self.max_delay_s

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:
        arrival_s = lane.oldest_arrival_s
        if lane.rows >= lane.max_rows:
            return BatchPlan(arrival_s, lane.max_rows, "full")
        due_s = arrival_s + self.max_delay_s
        pause_s = min(_CALLS_A_PAUSE * lane.call_s, self.max_pause_s - lane.call_s)
        if pause_s > 0 and lane.rows < lane.peak_rows and idle_since_s + pause_s > due_s:
            return BatchPlan(idle_since_s + pause_s, lane.max_rows, "pause")
        return BatchPlan(due_s, lane.max_rows, "delay" if self.max_delay_s else "idle")


@dataclass(frozen=True, slots=True)
class OneByOne:
    """No batching: every request runs alone. For comparison, and for models that forbid company."""

    max_delay_s: float = 0.0
    max_pause_s: float = 0.0

    @property
    def eager(self) -> bool:
        return False

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:  # noqa: ARG002 - the seam's signature
        return BatchPlan(lane.oldest_arrival_s, 1, "idle")


_REGISTRY: dict[str, Callable[[float, float], BatchingPolicy]] = {
    "work_conserving": WorkConserving,
    "one_by_one": OneByOne,
}


def policy_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_policy(name: str, max_delay_s: float, max_pause_s: float) -> BatchingPolicy:
    """Makes the policy registered under `name`."""
    return _REGISTRY[name](max_delay_s, max_pause_s)
