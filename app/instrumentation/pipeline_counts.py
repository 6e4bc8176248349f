"""Counts of requests to pipelines and of their steps."""

from __future__ import annotations

from collections import Counter, defaultdict

from app.core.events import PipelineEnded, StepEnded
from app.instrumentation.histogram import BOUNDS, Histogram
from app.instrumentation.totals import Totals


class StepCounts(Totals):
    """Counts of one step of one version of a pipeline.

    queue_s, compute_s: seconds that a request waited at the step, and that its call, or all calls of a fold, took.
    batch_rows: the sum over requests of the rows in their calls, padding not counted.
    passed_over, failed: requests without rows for the step, and requests that failed there.
    rows: computed rows, of `of_rows` that requests had at the step.
    """

    def __init__(self) -> None:
        self.queue_s = Histogram(BOUNDS)
        self.compute_s = Histogram(BOUNDS)
        self.batch_rows = self.passed_over = self.failed = self.rows = self.of_rows = 0

    @property
    def computed(self) -> int:
        return self.compute_s.count

    def add(self, step: StepEnded, requests: int) -> None:
        _, rows, of_rows, timing, failed = step
        self.rows += rows
        self.of_rows += of_rows
        if timing is not None:
            _, queue_s, compute_s, batch_rows, _ = timing
            self.queue_s.observe(queue_s, requests)
            self.compute_s.observe(compute_s, requests)
            self.batch_rows += batch_rows * requests
        elif failed:
            self.failed += requests
        else:
            self.passed_over += requests


class _CountsByStep(defaultdict[str, StepCounts]):
    """The counts of steps by their names."""

    def __init__(self) -> None:
        super().__init__(StepCounts)

    def __sub__(self, before: _CountsByStep) -> _CountsByStep:
        later = _CountsByStep()
        for name, step in list(self.items()):
            later[name] = step - (before.get(name) or StepCounts())
        return later


class PipelineCounts(Totals):
    """Counts of one version of a pipeline.

    outcomes: requests by PipelineEnded's outcome.
    seconds: of requests that were not rejected, from arrival to end.
    overhead_s: see PipelineEnded.
    steps: by name.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = Histogram(BOUNDS)
        self.overhead_s = 0.0
        self.steps = _CountsByStep()

    def add(self, event: PipelineEnded) -> None:
        requests = event.requests
        self.outcomes[event.outcome] += requests
        if event.outcome != "rejected":
            self.seconds.observe(event.seconds, requests)
        self.overhead_s += event.overhead_s * requests
        steps = self.steps
        for step in event.steps:
            steps[step.step].add(step, requests)
