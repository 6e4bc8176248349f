"""What a pipeline tells of its requests, and what is explained of its steps."""

from __future__ import annotations

from typing import Any

from app.core.batching_explanation import DurationsDocument, PipelineExplanation, StepExplanation
from app.core.events import PipelineEnded, StepEnded
from app.core.inference import NO_TIME, BatchTiming, StepTiming


def pipeline_ended(outcome: str = "answered", *steps: StepEnded, pipeline: str = "p") -> PipelineEnded:
    """A request of 4 rows that took 10 s: 6 were computed, 3 waited; the pipeline itself took 1."""
    answered = outcome == "answered"
    timing = BatchTiming(4.0, 6.0, 8) if answered else NO_TIME
    return PipelineEnded(pipeline, 1, "s", outcome, 4, 10.0, float(answered), timing, steps or (computed(),))


def computed(step: str = "small", rows: int = 4, of_rows: int = 4, batch_rows: int = 8) -> StepEnded:
    """It waited for a second, and its call took two."""
    return StepEnded(step, rows, of_rows, StepTiming(step, 1.0, 2.0, batch_rows), failed=False)


def passed_over(step: str = "big") -> StepEnded:
    return StepEnded(step, 0, 4, None, failed=False)


def failed(step: str = "big") -> StepEnded:
    return StepEnded(step, 0, 4, None, failed=True)


def ms(mean: float) -> DurationsDocument:
    return DurationsDocument(mean=mean, p50=mean, p90=2 * mean, p99=3 * mean)


def step(name: str, *needs: str, **changes: Any) -> StepExplanation:
    """It computes all rows of 100 requests, for a fifth of their time, in calls of 8 rows; nobody waits."""
    return StepExplanation(
        **{
            "step": name, "models": [f"{name}-model/1"], "needs": needs, "condition": None, "forms": [],
            "computed": 100, "passed_over": 0, "failed": 0, "rows": 400, "row_share": 1.0, "rows_per_call": 8.0,
            "wait_ms": ms(0), "compute_ms": ms(2), "wait_share": 0.0, "compute_share": 0.2, "elsewhere_share": 0.0,
            **changes,
        }
    )  # fmt: skip


def pipeline(*steps: StepExplanation, **changes: Any) -> PipelineExplanation:
    """100 requests of 10 ms."""
    return PipelineExplanation(
        **{
            "missing": "", "requests": {"answered": 100}, "total_ms": ms(10), "overhead_share": 0.02, "steps": steps,
            **changes,
        }
    )  # fmt: skip
