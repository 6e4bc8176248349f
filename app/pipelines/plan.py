"""A compiled pipeline: what a request needs to know at run time, by numbers in place of names.

Values are numbered: the inputs of the pipeline first, then the outputs of the steps. A step computes some rows of a
request: all, or those that are left of its inputs and its condition.

Rows are of one kind (a kind is a number, too) unless a step folds trees: leaves, nodes and roots are rows of three
kinds. What is joined, compared or computed together is of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature
from app.pipelines.condition import Condition
from app.pipelines.fold.forest import ForestRules
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
    kind: of its rows.
    """

    values: tuple[Value, ...]
    rest: Any = None
    spread: bool = False
    kind: int = 0


class OperationPlan(NamedTuple):
    """What computes the nodes of one type. Keys are names of arrays of an arena.

    slots: how many children such a node may have.
    children: by input of the model, the key of a state, and the slot of the child whose state it is; None: of all
        children, stacked.
    nodes: by input of the model, the key of what each node has from the request.
    results: by key, the output of the model that is written there.
    """

    model: ModelReference
    signature: str
    slots: int
    children: Mapping[str, tuple[str, int | None]]
    nodes: Mapping[str, str]
    results: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class FoldPlan:
    """The nodes of trees, computed from their children up.

    arrays: by key, shape and dtype of what is kept for each node.
    children, types: the inputs that say what the children of each node are, and of which type it is; None: a chain, and
        one type.
    start: by key, the states of the nodes that exist before.
    nodes: by key, what each node has from the request.
    outputs: by name, the key of what is answered, and whether it is of roots or of each node.
    start_kind, node_kind, root_kind: of rows.
    """

    rules: ForestRules
    operations: tuple[OperationPlan, ...]
    arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    children: Value | None
    types: Value | None
    start: dict[str, Gather]
    nodes: dict[str, Gather]
    outputs: Mapping[str, tuple[str, bool]]
    start_kind: int | None
    node_kind: int
    root_kind: int


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """One call of a model, or those of a fold.

    models: one, or those of the operations of a fold.
    inputs: by the model's input; none of a fold.
    kind: of its rows.
    condition, conditional: which rows it computes, and the values that the condition reads.
    each: whether elements are its rows, which are gathered again in its outputs.
    outputs: those that are used.
    needs: the steps whose outputs it reads; feeds: those that read its own.
    timeout_s: from its start; infinity if it has as long as the request.
    """

    number: int
    name: str
    models: tuple[ModelReference, ...]
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
    kind: int = 0
    fold: FoldPlan | None = None


class Way(NamedTuple):
    """The steps that a request takes, and those of them that it begins with: optional ones last.

    These are judged for all then, and a request is not rejected because of an optional one.
    """

    needed: frozenset[int]
    first: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A whole pipeline.

    signature: as callers see it.
    steps: in an order in which each comes after those that it needs.
    values: how many there are.
    outputs: by name.
    kinds: how many there are of rows, and by input its own.
    """

    signature: ModelSignature
    steps: Sequence[StepPlan]
    inputs: Mapping[str, Value]
    values: int
    outputs: Mapping[str, Gather]
    kinds: int = 1
    kind_of: Mapping[str, int] = field(default_factory=dict)
    _ways: dict[tuple[str, ...], Way] = field(default_factory=dict)

    def sequential(self) -> bool:
        """Whether a request is at one step at a time: there is no fold, and each step needs all before it."""
        before: list[set[int]] = []
        for step in self.steps:
            before.append({each for needed in step.needs for each in (needed, *before[needed])})
        return all(
            step.fold is None and len(needed) == number
            for number, (step, needed) in enumerate(zip(self.steps, before, strict=True))
        )

    @property
    def models(self) -> Sequence[ModelReference]:
        """Each once, in the order of the steps."""
        return list(dict.fromkeys(model for step in self.steps for model in step.models))

    def count_rows(self, inputs: Mapping[str, Array]) -> list[int]:
        """By kind, the rows of a request; -1 where no input says it. Raises InvalidRequest: inputs of a kind differ."""
        counts, named = [-1] * self.kinds, [""] * self.kinds
        for name, array in inputs.items():
            kind = self.kind_of[name]
            if counts[kind] not in {-1, len(array)}:
                raise InvalidRequest(
                    f"Inputs {named[kind]!r} and {name!r} must have equally many rows; they have {counts[kind]} and "
                    f"{len(array)}"
                )
            counts[kind], named[kind] = len(array), name
        return counts

    def way(self, outputs: tuple[str, ...]) -> Way:
        """That of a request for these outputs (none: all)."""
        known = self._ways.get(outputs)
        if known is None:
            needed = self._needed(outputs or tuple(self.outputs))
            first = [step for step in self.steps if not step.needs and step.number in needed]
            known = Way(needed, tuple(sorted(first, key=lambda step: step.optional)))
            if len(self._ways) < _MOST_SUBSETS:
                self._ways[outputs] = known
        return known

    def _needed(self, outputs: tuple[str, ...]) -> frozenset[int]:
        steps = {value.step for name in outputs for value in self.outputs[name].values} - {INPUT}
        left = list(steps)
        while left:
            more = set(self.steps[left.pop()].needs) - steps
            steps |= more
            left += more
        return frozenset(steps)


#: Callers choose subsets of outputs; this many are remembered. Chosen.
_MOST_SUBSETS = 256
