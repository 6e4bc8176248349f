"""The values of a flow: arrays of its inputs and of computed steps, and the rows that each step computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from app.core.inference import Array
from app.pipelines.flows.elements import split_elements
from app.pipelines.flows.rows import NO_ROWS, Rows, intersection, join, pick, union
from app.pipelines.plan import INPUT, Gather, Plan, StepPlan, Value


class FlowValues:
    """The values of one flow.

    Args:
        inputs: of the request, by name.

    Attributes:
        counts: the numbers of rows of the request, by kind; -1 until a fold says it.
        rows: by step, the rows that it computed; NO_ROWS if it was passed over.
    """

    __slots__ = ("_arrays", "_plan", "counts", "rows")

    def __init__(self, plan: Plan, inputs: Mapping[str, Array], counts: list[int]) -> None:
        self._plan = plan
        self.counts = counts
        self._arrays: list[Array | None] = [None] * plan.values
        for name, value in plan.inputs.items():
            self._arrays[value.number] = inputs.get(name)
        self.rows: list[Rows] = [None] * len(plan.steps)

    def array(self, value: Value) -> Array | None:
        """The value of the rows that have it, [rows, ...]; None if none has."""
        return self._arrays[value.number]

    def _has(self, value: Value) -> Rows:
        """The rows that have the value."""
        return None if value.step == INPUT else self.rows[value.step]

    def count(self, step: StepPlan) -> int:
        """The number of rows that a step computes."""
        rows = self.rows[step.number]
        return self.counts[step.kind] if rows is None else rows.size

    def keep(self, step: StepPlan, outputs: Mapping[str, Array], elements: int) -> None:
        """Keep the outputs of a step. `elements`: of each of its rows, if it has `each`."""
        count = self.count(step)
        for value in step.outputs:
            array = outputs[value.name]
            self._arrays[value.number] = array.reshape(count, elements, *array.shape[1:]) if step.each else array

    def release(self) -> None:
        """Let go of all arrays."""
        self._arrays = []

    # --- the inputs of a step ---

    def rows_of(self, step: StepPlan) -> Rows:
        """The rows that a step computes."""
        # 1. The rows that all inputs have, and all values that the condition reads.
        gathers = [*step.inputs.values()]
        sets = [self._domain(gather) for gather in gathers]
        if step.condition is None:
            return intersection(sets)
        sets += map(self._has, step.conditional.values())
        rows = intersection(sets)
        if rows is not None and not rows.size:
            return NO_ROWS

        # 2. Of these the rows for which the condition holds.
        read = {
            reference: pick(array, self._has(value), rows)
            for reference, value in step.conditional.items()
            if (array := self._arrays[value.number]) is not None  # it is not: these rows have all values
        }
        holds = step.condition.holds(read)
        if holds.all():
            return rows
        return np.flatnonzero(holds) if rows is None else rows[holds]

    def _domain(self, gather: Gather) -> Rows:
        """The rows for which a gather has a value."""
        if gather.rest is not None:
            return None
        return union([self._has(value) for value in gather.values])

    def inputs(self, step: StepPlan, rows: Rows) -> tuple[dict[str, Array], int]:
        """The inputs of the model for these rows, and the number of elements of a row."""
        inputs = {name: self.gathered(gather, rows) for name, gather in step.inputs.items()}
        if not step.each:
            return inputs, 1
        return split_elements(step, inputs)

    def gathered(self, gather: Gather, rows: Rows) -> Array:
        """The rows of a step's input, or of an output of the pipeline.

        Raises InferenceFailed: as rows.join.
        """
        # 1. One source, as it is.
        if len(gather.values) == 1:
            (value,) = gather.values
            array, has_rows = self._arrays[value.number], self._has(value)
            if array is not None and (gather.rest is None or has_rows is rows):
                return pick(array, has_rows, rows)

        # 2. Several, or a value for the rest.
        arrays = [(self._arrays[value.number], self._has(value)) for value in gather.values]
        parts = [(array, has_rows) for array, has_rows in arrays if array is not None]
        spec = gather.spec
        elements = self._elements(gather) if gather.rest is not None else None
        if elements is not None and spec.shape is not None:
            spec = replace(spec, shape=(None, elements, *spec.shape[2:]))
        return join(parts, gather.rest, rows, self.counts[gather.kind], spec)

    def _elements(self, gather: Gather) -> int | None:
        """The number of elements of a row from a step with `each`, also if no row went to it; None from other steps."""
        for value in gather.values:
            step = None if value.step == INPUT else self._plan.steps[value.step]
            for step_input in step.inputs.values() if step is not None and step.each else ():
                if step_input.spread and (found := self._spread_elements(step_input)) is not None:
                    return found
        return None

    def _spread_elements(self, gather: Gather) -> int | None:
        for value in gather.values:
            array = self._arrays[value.number]
            if array is not None and array.ndim > 1:
                return int(array.shape[1])
        return self._elements(gather)

    # --- parts, by the rows of the request ---

    def taken(self, kept: Array) -> FlowValues:
        """The values of some rows. `kept`: a mask, [rows]."""
        new_numbers = kept.cumsum() - 1
        part, steps = self._part(int(np.count_nonzero(kept))), self._plan.steps
        _take(part._arrays, self._plan.inputs.values(), kept)
        for number, rows in enumerate(self.rows):
            if rows is None:
                _take(part._arrays, steps[number].outputs, kept)
            elif rows.size:
                here = kept[rows]
                _take(part._arrays, steps[number].outputs, here)
                part.rows[number] = new_numbers[rows[here]]
        return part

    def slice(self, start: int, end: int) -> FlowValues:
        """The values of neighbouring rows, as views."""
        part, steps = self._part(end - start), self._plan.steps
        _take(part._arrays, self._plan.inputs.values(), slice(start, end))
        for number, rows in enumerate(self.rows):
            if rows is None:
                _take(part._arrays, steps[number].outputs, slice(start, end))
            elif rows.size:
                low, high = rows.searchsorted((start, end)).tolist()
                _take(part._arrays, steps[number].outputs, slice(low, high))
                part.rows[number] = rows[low:high] - start
        return part

    def _part(self, count: int) -> FlowValues:
        """A copy for so many rows. Only flows with one kind of rows are divided."""
        part = FlowValues.__new__(FlowValues)
        part._plan, part.counts = self._plan, [count]
        part._arrays, part.rows = self._arrays.copy(), self.rows.copy()
        return part


def _take(arrays: list[Array | None], values: Iterable[Value], taken: Array | slice) -> None:
    for value in values:
        array = arrays[value.number]
        if array is not None:
            arrays[value.number] = array[taken]
