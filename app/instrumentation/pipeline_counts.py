"""Counts of requests to pipelines and of their steps."""

from __future__ import annotations

from collections import Counter, defaultdict

from app.core.events import PipelineEnded, StepEnded
from app.instrumentation.histogram import BOUNDS, Histogram


class StepCounts:
    """Counts of one step of one version of a pipeline.

    queue_s, compute_s: seconds that each request waited there, and that its call took; of a fold all its calls.
    batch_rows: the sum over requests of the rows in their calls, padding not counted.
    passed_over, failed: requests of which no row was left for it, and at which it failed.
    rows: those that it computed, of `of_rows` that requests had there.
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

    def since(self, before: StepCounts) -> StepCounts:
        later = StepCounts()
        later.queue_s, later.compute_s = self.queue_s.since(before.queue_s), self.compute_s.since(before.compute_s)
        later.batch_rows = self.batch_rows - before.batch_rows
        later.passed_over, later.failed = self.passed_over - before.passed_over, self.failed - before.failed
        later.rows, later.of_rows = self.rows - before.rows, self.of_rows - before.of_rows
        return later


class PipelineCounts:
    """Counts of one version of a pipeline.

    outcomes: requests by PipelineEnded's outcome.
    seconds: of each that was not rejected, from its arrival to its end; overhead_s: see PipelineEnded.
    steps: by name.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = Histogram(BOUNDS)
        self.overhead_s = 0.0
        self.steps: defaultdict[str, StepCounts] = defaultdict(StepCounts)

    def add(self, event: PipelineEnded) -> None:
        requests = event.requests
        self.outcomes[event.outcome] += requests
        if event.outcome != "rejected":
            self.seconds.observe(event.seconds, requests)
        self.overhead_s += event.overhead_s * requests
        steps = self.steps
        for step in event.steps:
            steps[step.step].add(step, requests)

    def since(self, before: PipelineCounts) -> PipelineCounts:
        later = PipelineCounts()
        later.outcomes = self.outcomes - before.outcomes
        later.seconds = self.seconds.since(before.seconds)
        later.overhead_s = self.overhead_s - before.overhead_s
        for name, step in self.steps.copy().items():
            later.steps[name] = step.since(before.steps.get(name) or StepCounts())
        return later
