"""A compiled pipeline: what a request needs to know at run time, by numbers in place of names.

Values are numbered: the inputs of the pipeline first, then the outputs of the steps. A step computes some rows of a
request: all, or those that are left of its inputs and its condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.core.inference import ModelSignature
from app.pipelines.condition import Condition
from app.pipelines.references import ModelReference, Reference

#: The `step` of a value that is an input of the pipeline.
INPUT = -1


class Value(NamedTuple):
    """An input of the pipeline, or an output of the step of this number."""

    number: int
    step: int
    name: str


class Gather(NamedTuple):
    """Where rows come from: for each row the first of the values that has it; `rest`, if it is given, has all others.

    spread: the second dimension is taken apart, so that each element is a row.
    """

    values: tuple[Value, ...]
    rest: Any = None
    spread: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """One call of a model.

    inputs: by the model's input.
    condition, conditional: which rows it computes, and the values that the condition reads.
    each: whether elements are its rows, which are gathered again in its outputs.
    outputs: those that are used.
    needs: the steps whose outputs it reads; feeds: those that read its own.
    timeout_s: from its start; infinity if it has as long as the request.
    """

    number: int
    name: str
    model: ModelReference
    signature: str
    inputs: Mapping[str, Gather]
    condition: Condition | None
    conditional: Mapping[Reference, Value]
    each: bool
    optional: bool
    timeout_s: float
    outputs: tuple[Value, ...]
    needs: tuple[int, ...]
    feeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A whole pipeline.

    signature: as callers see it.
    steps: in an order in which each comes after those that it needs.
    values: how many there are.
    outputs: by name.
    """

    signature: ModelSignature
    steps: Sequence[StepPlan]
    inputs: Mapping[str, Value]
    values: int
    outputs: Mapping[str, Gather]
    _needed: dict[tuple[str, ...], frozenset[int]] = field(default_factory=dict)

    @property
    def models(self) -> Sequence[ModelReference]:
        """Each once, in the order of the steps."""
        return list(dict.fromkeys(step.model for step in self.steps))

    def needed(self, outputs: tuple[str, ...]) -> frozenset[int]:
        """The steps that a request for these outputs (none: all) takes."""
        wanted = frozenset(outputs or self.outputs)
        known = self._needed.get(key := tuple(sorted(wanted)))
        if known is None:
            steps = {value.step for name in wanted for value in self.outputs[name].values} - {INPUT}
            left = list(steps)
            while left:
                more = set(self.steps[left.pop()].needs) - steps
                steps |= more
                left += more
            known = frozenset(steps)
            if len(self._needed) < _MOST_SUBSETS:
                self._needed[key] = known
        return known


#: Callers choose subsets of outputs; this many are remembered. Chosen.
_MOST_SUBSETS = 256
