"""The explanation of a pipeline: where the time of its requests goes, from counts and the plan in force."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from app.core.batching_explanation import PipelineExplanation, StepExplanation
from app.instrumentation.counts import Counts
from app.instrumentation.figures import durations, rounded, share
from app.instrumentation.pipeline_counts import PipelineCounts, StepCounts
from app.pipelines.pipeline_model import PipelineModel
from app.pipelines.plan import INPUT, Plan, StepPlan


def explain_pipeline(model: PipelineModel, counted: PipelineCounts, demand: StepDemand) -> PipelineExplanation:
    """The explanation of a version.

    Args:
        counted: since the version was loaded.
        demand: the requests to the models of its steps.
    """
    bound, total_s = model.bound_to, counted.seconds.total
    steps = [] if bound is None else [
        _explain_step(
            step,
            bound.plan,
            [f"{each.name}/{each.version}" for each in bound.models[step.number]],
            counted.steps.get(step.name) or StepCounts(),
            total_s,
            demand.elsewhere(model.name, step),
        )
        for step in bound.plan.steps
    ]  # fmt: skip
    return PipelineExplanation(
        missing=model.missing,
        requests=counted.outcomes,
        total_ms=durations(counted.seconds),
        overhead_share=share(counted.overhead_s, total_s),
        steps=steps,
    )


def _explain_step(  # noqa: PLR0917 - all that is known of it
    step: StepPlan, plan: Plan, models: Sequence[str], counts: StepCounts, total_s: float, elsewhere: float
) -> StepExplanation:
    forms = {"each": step.each, "fold": step.fold is not None, "optional": step.optional}
    return StepExplanation(
        step=step.name,
        models=models,
        needs=[plan.steps[number].name for number in step.needs],
        condition=_read_by_condition(step, plan),
        forms=[name for name, has in forms.items() if has],
        computed=counts.computed,
        passed_over=counts.passed_over,
        failed=counts.failed,
        rows=counts.rows,
        row_share=share(counts.rows, counts.of_rows),
        rows_per_call=share(counts.batch_rows, counts.computed),
        wait_ms=durations(counts.queue_s),
        compute_ms=durations(counts.compute_s),
        wait_share=share(counts.queue_s.total, total_s),
        compute_share=share(counts.compute_s.total, total_s),
        elsewhere_share=rounded(elsewhere),
    )


def _read_by_condition(step: StepPlan, plan: Plan) -> Sequence[str] | None:
    if step.condition is None:
        return None
    read = dict.fromkeys(value.step for value in step.conditional.values() if value.step != INPUT)
    return [plan.steps[number].name for number in read]


class ModelRequests(NamedTuple):
    """Requests to models since the process began: direct ones by model, and those of steps by pipeline and step."""

    direct: Counter[str]
    steps: Counter[tuple[str, int, str]]

    @classmethod
    def of(cls, counts: Counts) -> ModelRequests:
        asked = cls(Counter(), Counter())
        for (_, _, model, _, signature), seconds in counts.requests.items():
            if signature:
                asked.direct[model] += seconds.count
        for (_, _, model), seconds in counts.past_requests.items():
            asked.direct[model] += seconds.count
        for life, pipeline in counts.pipelines.items():
            for step, counted in pipeline.steps.items():
                asked.steps[*life, step] += counted.computed
        return asked


class StepDemand:
    """The demand for the models of steps: direct requests, and requests of steps.

    Args:
        before, now: the requests between them count.
        pipelines: all served pipelines.
    """

    def __init__(self, before: ModelRequests, now: ModelRequests, pipelines: Sequence[PipelineModel]) -> None:
        self._direct = now.direct - before.direct
        self._by_step: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for pipeline in pipelines:
            for step in () if pipeline.bound_to is None else pipeline.bound_to.plan.steps:
                key = pipeline.name, pipeline.version, step.name
                for model in _models(step):
                    self._by_step[model][pipeline.name, step.name] += now.steps[key] - before.steps[key]

    def elsewhere(self, pipeline: str, step: StepPlan) -> float:
        """The share of the requests to a step's models that does not come from this step."""
        own = sum(self._by_step[model][pipeline, step.name] for model in _models(step))
        asked = sum(self._by_step[model].total() + self._direct[model] for model in _models(step))
        return 1 - own / asked if asked else 0.0


def _models(step: StepPlan) -> set[str]:
    return {reference.name for reference in step.models}
