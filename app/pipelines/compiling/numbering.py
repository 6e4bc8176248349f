"""The numbering of a checked pipeline: numbers in place of names of steps, values and kinds of rows, in a plan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf

from app.core.inference import DEFAULT_SIGNATURE, ModelSignature, TensorSpec
from app.pipelines.compiling.fold_compilation import input_key, state_key
from app.pipelines.compiling.parsed_pipeline import ParsedPipeline, models_of_step
from app.pipelines.compiling.row_kinds import RowKinds
from app.pipelines.compiling.sources import Sources
from app.pipelines.compiling.tensor_types import spread_out
from app.pipelines.fold.forest import ForestRules
from app.pipelines.plan import INPUT, FoldPlan, Gather, Plan, StepPlan, Value
from app.pipelines.references import Reference


class Numbering:
    """The numbers of one pipeline.

    Args:
        order: the steps; a step stands behind the steps that it reads.
        inputs: the types of the pipeline's inputs.
    """

    def __init__(self, parsed: ParsedPipeline, order: Sequence[str], inputs: Mapping[str, TensorSpec]) -> None:
        self._parsed = parsed
        self._order = order
        self._inputs = inputs
        self._number_of = {name: number for number, name in enumerate(order)}
        self._values = self._numbered_values()
        self._kinds = self._row_kinds()

    def plan(self, outputs: Mapping[str, TensorSpec]) -> Plan:
        """The plan of the pipeline, with outputs of these types."""
        parsed = self._parsed
        needs = {
            name: tuple(sorted({self._values[each].step for each in parsed.references(name)} - {INPUT}))
            for name in self._order
        }
        steps = [
            self._step_plan(
                name,
                number,
                needs[name],
                tuple([self._number_of[other] for other in self._order if number in needs[other]]),
            )
            for name, number in self._number_of.items()
        ]
        gathers = {name: self._gather(sources, outputs[name]) for name, sources in parsed.outputs.items()}
        inputs = {name: self._values[Reference("", name)] for name in self._inputs}
        kind_of = {name: self._kind(Reference("", name)) for name in self._inputs}
        signature = ModelSignature(
            DEFAULT_SIGNATURE, dict(self._inputs), dict(outputs), mixed_rows=bool(parsed.folds), strict_names=True
        )
        return Plan(signature, steps, inputs, len(self._values), gathers, len(self._kinds), kind_of)

    # --- values ---

    def _numbered_values(self) -> dict[Reference, Value]:
        """The values by reference, the inputs of the pipeline first."""
        parsed, values = self._parsed, dict[Reference, Value]()
        used = [each for name in self._order for each in parsed.references(name)]
        used += [each for sources in parsed.outputs.values() for each in sources.references]
        for reference in (*(Reference("", name) for name in self._inputs), *used):
            if reference not in values:
                step = self._number_of[reference.step] if reference.step else INPUT
                values[reference] = Value(len(values), step, reference.name)
        return values

    def _gather(self, sources: Sources, spec: TensorSpec, *, spread: bool = False) -> Gather:
        values = tuple([self._values[each] for each in sources.references])
        return Gather(values, spec, sources.rest, spread, self._kind(sources.references[0]))

    # --- kinds of rows ---

    def _kind(self, reference: Reference) -> int:
        return self._kinds.number(self._place(reference))

    def _row_kinds(self) -> RowKinds:
        parsed, kinds = self._parsed, RowKinds()
        for name in parsed.signatures:
            kinds.join([("step", name), *map(self._place, parsed.references(name))])
        for name in parsed.folds:
            own = [each for sources in parsed.sources[name].values() for each in sources.references]
            kinds.join([("nodes", name), *map(self._place, (*parsed.shape_references(name), *own))])
            if parsed.starts[name]:
                kinds.join(map(self._place, parsed.start_references(name)))
        for sources in parsed.outputs.values():
            kinds.join(map(self._place, sources.references))
        if not parsed.folds:  # one request, one number of rows
            kinds.join(
                [*[("step", name) for name in parsed.signatures], *[Reference("", name) for name in self._inputs]]
            )
        return kinds

    def _place(self, reference: Reference) -> Hashable:
        """The place that a reference's rows belong to: an input, or the rows, nodes or roots of a step."""
        if reference.step not in self._parsed.folds:
            return ("step", reference.step) if reference.step else reference
        _, of_roots = self._parsed.folds[reference.step].outputs()[reference.name]
        return ("roots", reference.step) if of_roots else ("nodes", reference.step)

    # --- steps ---

    def _step_plan(self, name: str, number: int, needs: tuple[int, ...], feeds: tuple[int, ...]) -> StepPlan:
        parsed = self._parsed
        step, condition, is_fold = parsed.text.steps[name], parsed.conditions.get(name), name in parsed.folds
        read = tuple([value for value in self._values.values() if value.step == number])
        return StepPlan(
            number,
            name,
            models_of_step(name, step),
            "" if is_fold else parsed.signatures[name].name,
            {} if is_fold else self._gathered_inputs(name),
            condition,
            {each: self._values[each] for each in condition.references} if condition is not None else {},
            bool(step.each),
            step.optional,
            step.timeout_ms / 1000 if step.timeout_ms is not None else inf,
            read,
            needs,
            feeds,
            self._kinds.number(("nodes", name) if is_fold else ("step", name)),
            self._fold_plan(name, read) if is_fold else None,
        )

    def _gathered_inputs(self, name: str) -> Mapping[str, Gather]:
        """The sources of rows of a step, by the model's input."""
        each, wanted = self._parsed.text.steps[name].each, self._parsed.signatures[name].inputs
        return {
            own: self._gather(sources, spread_out(wanted[own]) if own in each else wanted[own], spread=own in each)
            for own, sources in self._parsed.sources[name].items()
        }

    def _fold_plan(self, name: str, read: Sequence[Value]) -> FoldPlan:
        # 1. The values of its nodes: those that are read, the states at the start, and the inputs.
        fold = self._parsed.folds[name]
        text, outputs, inputs = fold.text, fold.outputs(), self._parsed.sources[name]
        answered = {value.name: outputs[value.name] for value in read}
        kept = {key for key, _ in answered.values()}
        starts = {state_key(state): sources for state, sources in self._parsed.starts[name].items()}
        start = {key: self._gather(sources, fold.rows[key]) for key, sources in starts.items()}
        nodes = {input_key(each): self._gather(sources, fold.rows[input_key(each)]) for each, sources in inputs.items()}
        arrays = {state_key(state) for state in fold.states} | nodes.keys() | kept

        # 2. The plan: the form of forests, the operations, the arrays that are kept, and where the values come from.
        return FoldPlan(
            ForestRules(
                fold.slots,
                0,
                len(fold.operations),
                text.shared,
                text.children or ", ".join(inputs),  # a chain has no other nodes
                text.types or "types",
            ),
            tuple([fold.plan_of(each, kept) for each in fold.operations]),
            {key: ((spec.shape or ())[1:], spec.dtype) for key, spec in fold.rows.items() if key in arrays},  # type: ignore[misc]  # FoldTypes checks that sizes are known
            self._values[Reference("", text.children)] if text.children else None,
            self._values[Reference("", text.types)] if text.types else None,
            start,
            nodes,
            answered,
            next((gather.kind for gather in start.values()), None),
            self._kinds.number(("nodes", name)),
            self._kinds.number(("roots", name)),
        )
