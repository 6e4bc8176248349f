"""When a lane's next batch is due and how many rows it may take. Pure and stateless.

A policy sees what waits in one lane and answers with a plan; the batcher executes the
lane whose plan is due first. Timers therefore always start at the oldest waiting request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class LaneView(Protocol):
    """What a policy may look at."""

    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def oldest_arrival_s(self) -> float: ...


class BatchPlan(NamedTuple):
    """Take requests off the front while they fit into `rows`, from `due_s` on (monotonic seconds).

    `reason` says why the batch is closed then: 'full', 'idle' or 'delay'.
    """

    due_s: float
    rows: int
    reason: str


class BatchingPolicy(Protocol):
    """Plans the next batch of a lane in which at least one request waits."""

    def plan(self, lane: LaneView) -> BatchPlan: ...


@dataclass(frozen=True, slots=True)
class WorkConserving:
    """A free device takes at once whatever waits; batches fill while the device works.

    Source: the adaptive batching of TensorFlow's `batch_scheduler` with a zero timeout. A
    delay above 0 makes a free device wait for company until the oldest request is that old.
    """

    max_delay_s: float = 0.0

    def plan(self, lane: LaneView) -> BatchPlan:
        arrival_s = lane.oldest_arrival_s
        if lane.rows >= lane.max_rows:
            return BatchPlan(arrival_s, lane.max_rows, "full")
        return BatchPlan(arrival_s + self.max_delay_s, lane.max_rows, "delay" if self.max_delay_s else "idle")


@dataclass(frozen=True, slots=True)
class OneByOne:
    """No batching: every request runs alone. For comparison, and for models that forbid company."""

    max_delay_s: float = 0.0

    def plan(self, lane: LaneView) -> BatchPlan:
        return BatchPlan(lane.oldest_arrival_s, 1, "idle")


_REGISTRY: dict[str, Callable[[float], BatchingPolicy]] = {
    "work_conserving": WorkConserving,
    "one_by_one": OneByOne,
}


def policy_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_policy(name: str, max_delay_s: float) -> BatchingPolicy:
    """Makes the policy registered under `name`."""
    return _REGISTRY[name](max_delay_s)
