"""A plan and the models of its steps: those that were there when it was made, kept until its last flow ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.batching.batcher import Batcher
from app.core.inference import TensorSpec
from app.model import Model
from app.pipelines.plan import Gather, Plan, StepPlan


class Binding:
    """Flows that began with it use it until they end, also when a newer one has taken its place.

    Args:
        models: of each step, by its number. Each is leased until the binding is retired and its last flow has ended.

    Attributes:
        other_models: by step, the names of the models of all others.
    """

    def __init__(
        self, name: str, plan: Plan, models: Sequence[Model], batcher: Batcher, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.plan = plan
        self.models = models
        self.clock = clock
        names = list(dict.fromkeys(model.name for model in models))
        self.other_models = [tuple([each for each in names if each != model.name]) for model in models]
        self._batcher = batcher
        self._flows = 0
        self._retired: Callable[[], None] | None = None
        self._leased = list(dict.fromkeys(models))
        for model in self._leased:
            model.lease()

    @property
    def flows(self) -> int:
        return self._flows

    def begin_flow(self) -> None:
        self._flows += 1
        self._batcher.begin_flow()

    def end_flow(self) -> None:
        self._flows -= 1
        self._batcher.end_flow()
        self._end_if_unused()

    def retire(self, then: Callable[[], None]) -> None:
        """No flow begins with it any more; `then` is called when the last one has ended and the models are free."""
        self._retired = then
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired is None or self._flows:
            return
        then, self._retired = self._retired, None
        leased, self._leased = self._leased, []
        for model in leased:
            model.end_lease()
        then()

    def later_s(self, step: StepPlan, rows: int) -> float:
        """Seconds that the steps after this one are expected to take, on the longest way."""
        found: dict[int, float] = {}
        for each in reversed(self.plan.steps):
            after_s = max([found[number] for number in each.feeds], default=0.0)
            if each is step:
                return after_s
            found[each.number] = after_s + self.models[each.number].expected_s(each.signature, rows)
        return 0.0

    def spec_of(self, gather: Gather, step: StepPlan | None, output: str) -> TensorSpec:
        """The type of what is gathered: an output of the pipeline, or an input of a step."""
        if step is None:
            return self.plan.signature.outputs[output]
        inputs = self.models[step.number].signatures[step.signature].inputs
        return next(inputs[name] for name, each in step.inputs.items() if each is gather)
