"""Records of the steps of a flow: the timings of computed steps, and the failed ones."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.events import StepEnded
from app.core.inference import BatchTiming, StepTiming
from app.pipelines.flows.rows import NO_ROWS
from app.pipelines.flows.values import FlowValues
from app.pipelines.plan import StepPlan


class StepRecords:
    """The records of one flow, by the numbers of its steps."""

    __slots__ = ("_failed", "_timings")

    def __init__(self) -> None:
        self._timings: dict[int, StepTiming] = {}
        self._failed: tuple[int, ...] = ()

    def copy(self) -> StepRecords:
        """A copy for a part of the flow, which goes on by itself."""
        copy = StepRecords()
        copy._timings, copy._failed = self._timings.copy(), self._failed
        return copy

    def computed(self, step: StepPlan, timing: StepTiming) -> None:
        self._timings[step.number] = timing

    def failed(self, step: StepPlan) -> None:
        self._failed += (step.number,)

    @property
    def compute_s(self) -> float:
        """The sum of the steps' compute times so far."""
        return sum([each.compute_s for each in self._timings.values()])

    def timing(self, steps: Sequence[StepPlan], elapsed_s: float) -> tuple[BatchTiming, float]:
        """The timing of a request that was answered after so many seconds, and its overhead.

        The compute time is that of the longest way; the rest counts as waiting. Overhead is the part of the waiting in
        which no step of that way waited.
        """
        # The longest ways to all steps, in their order. Comprehensions would take twice as long.
        timings = self._timings
        computed, busy = [0.0] * len(steps), [0.0] * len(steps)
        for step in steps:
            number, compute_s, busy_s = step.number, 0.0, 0.0
            for needed in step.needs:
                compute_s, busy_s = max(compute_s, computed[needed]), max(busy_s, busy[needed])
            if number in timings:
                _, queue_s, own_s, *_ = timings[number]
                compute_s, busy_s = compute_s + own_s, busy_s + queue_s + own_s
            computed[number], busy[number] = compute_s, busy_s
        compute_s = max(computed)
        rows = max([each.rows for each in timings.values()], default=0)
        ordered = tuple([timings[number] for number in sorted(timings)])
        return BatchTiming(max(0.0, elapsed_s - compute_s), compute_s, rows, ordered), max(0.0, elapsed_s - max(busy))

    def ended(self, steps: Sequence[StepPlan], values: FlowValues) -> list[StepEnded]:
        """The events of the steps that were computed, failed or passed over."""
        ended = []
        for step in steps:
            number = step.number
            rows, timing, failed = values.rows[number], self._timings.get(number), number in self._failed
            if timing is not None or failed or rows is NO_ROWS:
                of_rows = max(0, values.counts[step.kind])
                computed = 0 if timing is None else of_rows if rows is None else rows.size
                if step.fold is not None and not computed:
                    timing = None  # trees without inner nodes need no call
                ended.append(StepEnded(step.name, computed, of_rows, timing, failed))
        return ended
