"""When a lane's next batch is due and how many rows it may take. Pure and stateless.

A policy sees what waits in one lane, and what calls cost, and answers with a plan; of the lanes that are due the
batcher executes the most urgent one. Timers therefore always start at the oldest waiting request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from app.batching.cost_curve import CostCurve
from app.batching.options import DEFAULTS, BatchingOptions
from app.errors import InvalidRequest


class LaneView(Protocol):
    """What a policy may look at: what waits, what calls cost (`call_s`: whatever their size), and how many rows of
    late were under way. `timeout_s` is the time that the head has from arrival to answer, `margin` by which share
    calls may take longer than `curve` says."""

    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def oldest_arrival_s(self) -> float: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def call_s(self) -> float: ...
    @property
    def curve(self) -> CostCurve | None: ...
    @property
    def margin(self) -> float: ...
    @property
    def peak_rows(self) -> float: ...


class BatchPlan(NamedTuple):
    """Take requests off the front while they fit into `rows`, from `due_s` on (monotonic seconds).

    Requests of more than `most_rows` are cut. `reason` says why the batch is closed then: 'full', 'idle', 'pause'
    or 'delay'.
    """

    due_s: float
    rows: int
    reason: str
    most_rows: int


class BatchingPolicy(Protocol):
    """Plans the next batch of a lane in which at least one request waits."""

    @property
    def eager(self) -> bool:
        """Does an idle device take at once whatever comes, and all of it?"""

    def most_rows(self, lane: LaneView) -> int:
        """The rows of a full batch."""

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:
        """`idle_since_s` is when a device last became free (monotonic seconds), if the process is short of CPU."""


#: A pause this many calls long makes calls an eighth as frequent at most.
_CALLS_A_PAUSE = 8

#: The share of the time allowed that is planned with: answers have a way to go after their call.
HEADROOM = 0.99


class WorkConserving:
    """A free device takes at once whatever waits; batches fill while the device works.

    Two exceptions. A delay above 0 makes a free device wait for company until the oldest request is that
    old. And while the process is short of CPU the device pauses after a short call, up to `max_pause_ms` from
    the start of the call, until as many rows wait as were under way at the most of late: calls much shorter
    than what stands around them cost the event loop more than they give (docs/architecture.md, "Short
    calls"). A lone client never waits.
    Source: the adaptive batching of TensorFlow's `batch_scheduler` with a zero timeout; the pause is ours.
    """

    def __init__(self, options: BatchingOptions = DEFAULTS) -> None:
        self._largest = options.max_batch_size
        self._max_delay_s = options.max_batch_delay_ms / 1000
        self._max_pause_s = options.max_pause_ms / 1000

    def most_rows(self, lane: LaneView) -> int:
        return min(lane.max_rows, self._largest) if self._largest else lane.max_rows

    @property
    def eager(self) -> bool:
        return not (self._max_delay_s or self._largest)

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:
        arrival_s, most_rows, call_s = lane.oldest_arrival_s, self.most_rows(lane), lane.call_s
        if lane.rows >= most_rows:
            return BatchPlan(arrival_s, most_rows, "full", most_rows)
        due_s = arrival_s + self._max_delay_s
        pause_s = min(_CALLS_A_PAUSE * call_s, self._max_pause_s - call_s)
        if pause_s > 0 and lane.rows < lane.peak_rows and idle_since_s + pause_s > due_s:
            return BatchPlan(idle_since_s + pause_s, most_rows, "pause", most_rows)
        return BatchPlan(due_s, self._rows(lane, most_rows), "delay" if self._max_delay_s else "idle", most_rows)

    def _rows(self, lane: LaneView, most_rows: int) -> int:  # noqa: ARG002 - others look at the lane
        return most_rows


class SelfTuning(WorkConserving):
    """Work-conserving, with batches whose size follows from what calls were measured to cost.

    - Where larger batches make a row no cheaper, a full batch is one of the size from which on it is so.
    - A call takes at most half of the time that its requests have (or of the target for the p99, if that is less):
      the call before and their own then fit.
    - Of what waits the next smaller size is taken where a row is clearly cheaper in it than in the padded call, or two
      calls are done sooner than that one.
    Nothing of this waits, and what was not measured yet is run as it comes.
    """

    def __init__(self, options: BatchingOptions = DEFAULTS) -> None:
        super().__init__(options)
        self._target_s = options.target_p99_ms / 1000 or float("inf")

    def most_rows(self, lane: LaneView) -> int:
        most_rows, curve = super().most_rows(lane), lane.curve
        if curve is None or most_rows == 1:
            return most_rows
        call_s = HEADROOM / 2 * min(self._target_s, lane.timeout_s) / (1 + lane.margin)
        return curve.efficient_within(call_s, most_rows)

    def _rows(self, lane: LaneView, most_rows: int) -> int:
        first = lane.curve.first_rows(lane.rows) if lane.curve is not None else lane.rows
        return first if first < lane.rows else most_rows


class OneByOne:
    """No batching: every request runs alone. For comparison, and for models that forbid company."""

    def __init__(self, options: BatchingOptions = DEFAULTS) -> None:
        """Has no use for options."""

    def most_rows(self, lane: LaneView) -> int:
        return lane.max_rows

    @property
    def eager(self) -> bool:
        return False

    def plan(self, lane: LaneView, idle_since_s: float) -> BatchPlan:  # noqa: ARG002 - the seam's signature
        return BatchPlan(lane.oldest_arrival_s, 1, "idle", lane.max_rows)


_REGISTRY: dict[str, Callable[[BatchingOptions], BatchingPolicy]] = {
    "self_tuning": SelfTuning,
    "work_conserving": WorkConserving,
    "one_by_one": OneByOne,
}


def policy_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_policy(name: str, options: BatchingOptions = DEFAULTS) -> BatchingPolicy:
    """Makes the policy registered under `name`. Raises InvalidRequest where there is none."""
    if name not in _REGISTRY:
        raise InvalidRequest(f"policy is {name[:64]!r}, but should be one of: {', '.join(_REGISTRY)}")
    return _REGISTRY[name](options)
