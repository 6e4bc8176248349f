"""The binding of a plan to models: the versions that its steps call, kept until its last flow ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.batching.steps import Steps
from app.core.events import Listener
from app.model import Model
from app.pipelines.fold_admission import FoldAdmission
from app.pipelines.folding import Fold, FoldLimits
from app.pipelines.plan import Plan, StepPlan


class Binding:
    """A plan with its models. A flow uses one binding from its begin to its end, also after a newer one replaced it.

    Args:
        models: by step number, the step's model, or the models of a fold's operations. They are leased until the
            binding is retired and its last flow has ended.
        steps: the batcher's interface for steps.
        limits: of each fold.
        tell: gets a PipelineEnded for each request.

    Attributes:
        step_models: by step number, the names of the step's models.
        other_models: by step number, the names of the models of all other steps.
        folds: by step number, the folds.
        admission: reserves room for flows with trees.
        flows: the number of flows under way.
        newest_s: the arrival of the flow that began last.
        together: whether requests that arrive together may become one joint flow.
    """

    def __init__(  # noqa: PLR0917 - what it binds
        self,
        name: str,
        version: int,
        plan: Plan,
        models: Sequence[Sequence[Model]],
        steps: Steps,
        limits: FoldLimits,
        clock: Callable[[], float],
        tell: Listener,
    ) -> None:
        self.name = name
        self.version = version
        self.plan = plan
        self.models = models
        self.steps = steps
        self.clock = clock
        self.tell = tell
        self._leased = list(dict.fromkeys(model for of_step in models for model in of_step))
        names = list(dict.fromkeys(model.name for model in self._leased))
        self.step_models = [tuple([model.name for model in of_step]) for of_step in models]
        self.other_models = [tuple([each for each in names if each != of_step[0].name]) for of_step in models]
        self.folds = {
            step.number: Fold(step.fold, models[step.number], steps.when_free, limits, clock)
            for step in plan.steps
            if step.fold is not None
        }
        self.together = plan.sequential()
        self.admission = FoldAdmission({plan.steps[number]: fold for number, fold in self.folds.items()})
        self.flows = 0  # under way
        self.newest_s = 0.0
        self._retired: Callable[[], None] | None = None
        for model in self._leased:
            model.lease()

    def begin_flow(self, arrival_s: float | None) -> None:
        """Keep the models until `end_flow`. `arrival_s`: None for a part of a flow that has begun."""
        self.flows += 1
        if arrival_s is not None:
            self.newest_s = arrival_s
        self.steps.begin_flow()

    def end_flow(self) -> None:
        self.flows -= 1
        self.steps.end_flow()
        self._end_if_unused()

    def retire(self, then: Callable[[], None]) -> None:
        """End the binding: no further flow begins. `then` is called when the last flow has ended."""
        self._retired = then
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired is None or self.flows:
            return
        then, self._retired = self._retired, None
        leased, self._leased = self._leased, []
        for model in leased:
            model.end_lease()
        then()

    def joint_rows(self, arrived: int) -> int:
        """The most rows of a joint flow: the rows of a call, or, where several calls run at a time, an equal share."""
        first, signature = self.models[0][0], self.plan.steps[0].signature
        quick = first.coalescable_rows(signature)
        share = -(-arrived // self.steps.slot_count)
        return min(quick or max(1, min(share, first.call_rows(signature))), self.steps.max_queue_rows)

    def later_s(self, step: StepPlan | None, rows: Sequence[int], levels: Mapping[int, int]) -> float:
        """Seconds that the steps after this one (None: all steps) are expected to take, on the longest way.

        Args:
            rows: the request's rows, by kind.
            levels: by fold step, the levels of its trees; a level is a call.
        """
        found: dict[int, float] = {}
        for each in reversed(self.plan.steps):
            after_s = max([found[number] for number in each.feeds], default=0.0)
            if each is step:
                return after_s
            found[each.number] = after_s + self._expected_s(each, max(1, rows[each.kind]), levels.get(each.number, 0))
        return max(found.values())

    def _expected_s(self, step: StepPlan, rows: int, levels: int) -> float:
        models = self.models[step.number]
        if step.fold is None:
            return models[0].expected_s(step.signature, rows)
        signatures = [each.signature for each in step.fold.operations]
        return levels * max([each.expected_s(name, 1) for each, name in zip(models, signatures, strict=True)])
