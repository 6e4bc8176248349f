"""The batching policy and its options: the rows of a lane's next batch, and when it is due. No I/O, clock or state.

A policy sees one lane and its costs. The scheduler takes the most urgent of the due lanes. Delays start at the oldest
waiting request. Two parts change the number of rows afterwards: several idle devices each take a share (devices.py) if
the plan allows it, and a batch that is not full takes requests of neighbouring buckets (merging.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from reprlib import repr as shorten
from sys import maxsize
from types import UnionType
from typing import Any, NamedTuple, Protocol

from app.batching.costs.cost_model import Costs
from app.core.batch_sizes import LEAST_WEIGHT, MOST_DELAY_MS, MOST_TARGET_MS, MOST_WEIGHT
from app.core.errors import InvalidRequest

_WEIGHT = f"a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, or 0 for none"


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """The batching options of a model. They may be changed while it serves, from the next batch on.

    Attributes:
        max_batch_size: most rows in one call; 0 for as many as the model was warmed up with.
        max_batch_delay_ms: how long an idle device waits for more requests.
        target_p99_ms: a call and the one before it take at most this long, as far as batch sizes decide; 0 for none.
        weight: the model's share of the devices' time beside other models'; 0 for none, which counts as 1.

    Raises:
        InvalidRequest: a value is wrong; the text names it and says what is expected.
    """

    max_batch_size: int = 0
    max_batch_delay_ms: float = 0.0
    target_p99_ms: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        self._check("max_batch_size", int, inf, "a whole number of rows, or 0 for the model's largest")
        for name, most in (("max_batch_delay_ms", MOST_DELAY_MS), ("target_p99_ms", MOST_TARGET_MS)):
            self._check(name, int | float, most, f"a number of milliseconds from 0 to {most}")
        self._check("weight", int | float, MOST_WEIGHT, _WEIGHT, LEAST_WEIGHT)

    def _check(self, name: str, kinds: type | UnionType, most: float, expected: str, least: float = 0) -> None:
        """Raises InvalidRequest unless an option is 0 or a number of these kinds from `least` to `most`."""
        value = getattr(self, name)
        fits = isinstance(value, (int, float)) and (value == 0 or least <= value <= most)
        if isinstance(value, bool) or not isinstance(value, kinds) or not fits:
            raise InvalidRequest(f"{name} is {shorten(value)}, but should be {expected}")

    def changed(self, changes: Mapping[str, Any]) -> BatchingOptions:
        """These options with some of them changed, by name. Raises InvalidRequest."""
        names = [each.name for each in fields(self)]
        for name in changes:
            if name not in names:
                raise InvalidRequest(f"{name[:64]} is no batching option; there are {', '.join(names)}")
        return replace(self, **changes)

    def check_largest(self, largest: int) -> None:
        """Raises InvalidRequest if batches would be larger than the model's largest."""
        if self.max_batch_size > largest:
            raise InvalidRequest(
                f"max_batch_size is {self.max_batch_size}, but should be at most {largest}, the largest batch that the "
                "model was warmed up with"
            )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


DEFAULTS = BatchingOptions()


class LaneView(Protocol):
    """A lane, as policies see it: a Lane, or one in which no request waits (scheduler.py).

    `timeout_s` is the time that its first request has from arrival to answer.
    """

    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def waiting_since_s(self) -> float: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def costs(self) -> Costs: ...


class BatchPlan(NamedTuple):
    """The plan of a batch: from `due_s` on (monotonic seconds) it takes requests off the front that fit into `rows`.

    most_rows: larger requests are cut.
    reason: why the batch is closed then: 'full', 'idle' or 'delay'.
    shared: several idle devices may each take a share, because the rest is due at once, too.
    """

    due_s: float
    rows: int
    reason: str
    most_rows: int
    shared: bool = False


class BatchingPolicy(Protocol):
    """A policy: it plans the next batch of a lane in which at least one request waits.

    The server has one, `SelfTuning`; policies of other servers run on the same batcher in bench/simulator/.
    """

    @property
    def eager(self) -> bool:
        """True if no delay and no max_batch_size is set, so an idle device takes all rows of every request at once."""

    def most_rows(self, lane: LaneView) -> int:
        """The rows of a full batch."""

    def plan(self, lane: LaneView) -> BatchPlan:
        """The due time and the rows of the next batch."""


#: The share of the allowed time that calls may take: an answer still has to reach its caller. Chosen.
HEADROOM = 0.99


class SelfTuning:
    """The policy of the server: work-conserving, with batch sizes that follow from the measured costs of calls.

    - A free device takes the waiting rows at once, and batches fill while the device works. With a delay above 0 a free
      device waits until the oldest request is that old or the batch is full.
    - A full batch is no larger than makes a row cheaper.
    - A call takes at most half of the time that its requests have (or of the target for the p99, if that is less), so
      that the call before it and the call itself fit.
    - Instead of padding, the next smaller size is taken if a row is clearly cheaper in it than in the padded call, or
      if two calls are done sooner than that one.
    - If the lane explores, the batch takes the next larger size and is not split: a size that was measured in a bad
      moment is measured again.
    No request waits for any of this but the delay. Before calls are measured, all waiting rows are taken.
    """

    def __init__(self, options: BatchingOptions = DEFAULTS) -> None:
        self._largest = options.max_batch_size or maxsize
        self._max_delay_s = options.max_batch_delay_ms / 1000
        self._target_s = options.target_p99_ms / 1000 or inf

    @property
    def eager(self) -> bool:
        return not self._max_delay_s and self._largest == maxsize

    def most_rows(self, lane: LaneView) -> int:
        most_rows, curve, pace = min(lane.max_rows, self._largest), lane.costs.curve, lane.costs.pace
        if curve is None or pace is None or most_rows == 1:
            return most_rows
        # The largest size at which a row takes hardly more of the machine than at any other, of those in time.
        return pace.efficient_within(min(most_rows, curve.rows_within(self._call_s(lane))))

    def plan(self, lane: LaneView) -> BatchPlan:
        arrival_s, (rows, most_rows) = lane.waiting_since_s, self._next_rows(lane)
        if lane.rows >= most_rows:
            return BatchPlan(arrival_s, most_rows, "full", most_rows, not self._max_delay_s)
        if self._max_delay_s:
            return BatchPlan(arrival_s + self._max_delay_s, rows, "delay", most_rows)
        return BatchPlan(arrival_s, rows, "idle", most_rows, True)

    def _call_s(self, lane: LaneView) -> float:
        return HEADROOM / 2 * min(self._target_s, lane.timeout_s) / (1 + lane.costs.margin)

    def _next_rows(self, lane: LaneView) -> tuple[int, int]:
        """The rows of the next batch if it is not full, and if it is."""
        most_rows, costs, rows = self.most_rows(lane), lane.costs, lane.rows
        curve, pace = costs.curve, costs.pace
        if curve is None or pace is None:
            return most_rows, most_rows
        if costs.explores:
            most_rows = curve.larger_within(most_rows, self._call_s(lane), min(lane.max_rows, self._largest))
            return most_rows, most_rows
        first = pace.first_rows(rows) if rows < most_rows else rows
        return first if first < rows else most_rows, most_rows
