"""The plan of a pipeline: the compiled form that requests use, with numbers in place of names.

Values are numbered: the inputs of the pipeline first, then the outputs of the steps. A step computes some rows of a
request: all rows, or the rows that its inputs and its condition leave.

Rows are of one kind (a kind is a number, too) unless a step folds trees: leaves, nodes and roots are rows of three
kinds. Rows that are joined, compared or computed together are of one kind.
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
    """The source of rows: for each row the first of the values that has it, or else the constant `rest`, if given.

    spread: the second dimension is split, so that an element is a row.
    kind: of the rows.
    """

    values: tuple[Value, ...]
    rest: Any = None
    spread: bool = False
    kind: int = 0


class OperationPlan(NamedTuple):
    """The operation that computes the nodes of one type. Keys are names of arrays of an arena.

    slots: the most children of such a node.
    children: by input of the model, the key of a state, and the slot of the child that has it; None: of all children,
        stacked.
    nodes: by input of the model, the key of an input of the nodes.
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
    """A fold: the nodes of trees, computed from their children up.

    arrays: by key, shape and dtype of a row of the arena.
    children: the input with the children of each node; None: a chain.
    types: the input with the type of each node; None: one type.
    start: by key, the sources of the start nodes' states.
    nodes: by key, the sources of the inner nodes' inputs.
    outputs: by name, the key of an output, and whether roots have it or all inner nodes.
    start_kind, node_kind, root_kind: the kinds of rows.
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
    """A step: one call of a model, or the calls of a fold.

    models: the model, or the models of a fold's operations.
    inputs: the sources of rows, by the model's input; empty for a fold.
    kind: of its rows.
    condition: chooses the rows that the step computes; None: all rows.
    conditional: the values that the condition reads.
    each: whether elements are its rows, which are joined again in its outputs.
    outputs: the outputs that other steps or the pipeline use.
    needs: the steps whose outputs it reads.
    feeds: the steps that read its outputs.
    timeout_s: from its start; infinity if only the request has a deadline.
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
    """The steps of a request, by its outputs, and its first steps, optional ones last.

    Admission judges the first steps for all. With optional ones last, a request is not rejected because of one.
    """

    needed: frozenset[int]
    first: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A whole pipeline.

    signature: for callers.
    steps: in an order in which a step comes after the steps that it needs.
    values: the number of values.
    outputs: by name, the sources of their rows.
    kinds: the number of kinds of rows.
    kind_of: by input of the pipeline, the kind of its rows.
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
        """Whether a request is at one step at a time: there is no fold, and a step needs all steps before it."""
        before: list[set[int]] = []
        for step in self.steps:
            before.append({each for needed in step.needs for each in (needed, *before[needed])})
        return all(
            step.fold is None and len(needed) == number
            for number, (step, needed) in enumerate(zip(self.steps, before, strict=True))
        )

    @property
    def models(self) -> Sequence[ModelReference]:
        """The models of all steps, without repetitions, in the order of the steps."""
        return list(dict.fromkeys(model for step in self.steps for model in step.models))

    def count_rows(self, inputs: Mapping[str, Array]) -> list[int]:
        """The rows of a request, by kind; -1 where no input says it. Raises InvalidRequest: inputs of a kind differ."""
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
        """The way of a request for these outputs (none: all)."""
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


#: Subsets of outputs, which callers choose, whose ways are remembered. Chosen.
_MOST_SUBSETS = 256
