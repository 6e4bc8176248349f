"""How other servers form batches, as policies of Ferry's batcher, for the simulator and for tests of the batcher.

Otherwise they run on Ferry's batcher: expired requests leave the queue, and batches fill while the device is busy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from sys import maxsize
from typing import NamedTuple

from app.batching.policy import DEFAULTS, BatchingOptions, BatchingPolicy, BatchPlan, LaneView


class WorkConserving:
    """TensorFlow's `batch_scheduler` with a zero timeout: a free device takes at once whatever waits.

    One exception: with a delay above 0 a free device waits until the oldest request is that old or the batch is full.
    """

    def __init__(self, options: BatchingOptions = DEFAULTS) -> None:
        self._largest = options.max_batch_size or maxsize
        self._max_delay_s = options.max_batch_delay_ms / 1000

    @property
    def eager(self) -> bool:
        return not self._max_delay_s and self._largest == maxsize

    def most_rows(self, lane: LaneView) -> int:
        return min(lane.max_rows, self._largest)

    def plan(self, lane: LaneView) -> BatchPlan:
        arrival_s, most_rows = lane.waiting_since_s, self.most_rows(lane)
        if lane.rows >= most_rows:
            return BatchPlan(arrival_s, most_rows, "full", most_rows, not self._max_delay_s)
        if self._max_delay_s:
            return BatchPlan(arrival_s + self._max_delay_s, most_rows, "delay", most_rows)
        return BatchPlan(arrival_s, most_rows, "idle", most_rows, True)


@dataclass(frozen=True)
class FixedTimeout:
    """TensorFlow Serving's BasicBatchScheduler: a batch closes when full, or after `timeout_s`."""

    max_rows: int
    timeout_s: float

    @property
    def eager(self) -> bool:
        return False

    def most_rows(self, lane: LaneView) -> int:
        return min(self.max_rows, lane.max_rows)

    def plan(self, lane: LaneView) -> BatchPlan:
        most_rows = self.most_rows(lane)
        if lane.rows >= most_rows:
            return BatchPlan(lane.waiting_since_s, most_rows, "full", most_rows)
        return BatchPlan(lane.waiting_since_s + self.timeout_s, most_rows, "delay", most_rows)


@dataclass(frozen=True)
class PreferredSizes:
    """Triton's dynamic batcher: a batch of a preferred size starts at once, any other after `delay_s`.

    If several preferred sizes can be filled, it takes the largest.
    """

    preferred: tuple[int, ...]
    delay_s: float

    @property
    def eager(self) -> bool:
        return False

    def most_rows(self, lane: LaneView) -> int:
        return lane.max_rows

    def plan(self, lane: LaneView) -> BatchPlan:
        filled = [rows for rows in self.preferred if rows <= lane.rows]
        if filled:
            return BatchPlan(lane.waiting_since_s, max(filled), "full", lane.max_rows)
        return BatchPlan(lane.waiting_since_s + self.delay_s, lane.max_rows, "delay", lane.max_rows)


class AdditiveIncrease:
    """Clipper's AIMD: the largest batch grows by `step` rows after a call within the target, shrinks by 10 % after one
    that was not."""

    def __init__(self, target_s: float, step: float) -> None:
        self._target_s = target_s
        self._step = step
        self._rows = 1.0

    @property
    def eager(self) -> bool:
        return False

    def most_rows(self, lane: LaneView) -> int:
        return max(1, min(int(self._rows), lane.max_rows))

    def plan(self, lane: LaneView) -> BatchPlan:
        most_rows = self.most_rows(lane)
        return BatchPlan(lane.waiting_since_s, most_rows, "full", most_rows)

    def called(self, rows: int, seconds: float) -> None:
        """A call ended. Only a full one says whether a larger one may be tried."""
        if seconds > self._target_s:
            self._rows = max(1.0, 0.9 * self._rows)
        elif rows >= int(self._rows):
            self._rows += self._step


class Setting(NamedTuple):
    """`policy` makes a new one for each run, since one of them learns; this many rows may wait."""

    text: str
    policy: Callable[[], BatchingPolicy]
    queue_rows: int


PEERS = ("fixed timeout", "preferred sizes", "AIMD")


def settings_of(peer: str, quick: bool) -> Iterator[Setting]:
    """A grid of what its users would try; with `quick` the middle of it.

    A queue of 60 rows is what a finer search found nearly everywhere: of 64 the last are late behind two calls of 32.
    """
    grid = itertools.product((32,), (0,), (60,)) if quick else itertools.product((16, 32, 64), (0, 10), (32, 60, 8192))
    for rows, delay_ms, queue_rows in grid:
        queue = f"queue {queue_rows}"
        if peer == "fixed timeout":
            fixed = partial(FixedTimeout, rows, delay_ms / 1e3)
            yield Setting(f"{rows} rows, {delay_ms} ms, {queue}", fixed, queue_rows)
        elif peer == "preferred sizes":
            preferred = partial(PreferredSizes, (rows // 4, rows // 2, rows), delay_ms / 1e3)
            yield Setting(f"{rows // 4}, {rows // 2}, {rows} rows, {delay_ms} ms, {queue}", preferred, queue_rows)
        else:
            target_ms, step = 1.25 * rows, 32 if delay_ms else 4
            increase = partial(AdditiveIncrease, target_ms / 1e3, step)
            yield Setting(f"target {target_ms:g} ms, step {step}, {queue}", increase, queue_rows)
