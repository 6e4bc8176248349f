"""From the text of a pipeline and the signatures of its models to a plan. Types and shapes are inferred and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import Any

import numpy as np

from app.core.inference import (
    DEFAULT_SIGNATURE,
    ModelSignature,
    TensorSpec,
    dtype_name,
    format_shape,
)
from app.pipelines.compiling.fold_compilation import NUMBER, FoldTypes, Operation, input_key, operations_of, state_key
from app.pipelines.compiling.row_kinds import RowKinds
from app.pipelines.compiling.signatures import FindSignatures, signature_of_step
from app.pipelines.compiling.sources import Sources, check_order, parse_sources
from app.pipelines.compiling.tensor_types import NO_SHAPE, Shape, at, check_fits, check_rest, each_hint, joined, merged
from app.pipelines.condition import Condition
from app.pipelines.document import PipelineText, StepText
from app.pipelines.fold.forest import ForestRules
from app.pipelines.plan import INPUT, FoldPlan, Gather, Plan, StepPlan, Value
from app.pipelines.references import ModelReference, PipelineInvalid, Reference, parse_model, parse_reference


def models_of(text: PipelineText) -> Mapping[ModelReference, str]:
    """The models that a pipeline calls, each once, and the first step that does. Raises PipelineInvalid."""
    found: dict[ModelReference, str] = {}
    for name, step in text.steps.items():
        for model in _models_of(name, step):
            found.setdefault(model, name)
    return found


def compile_pipeline(text: PipelineText, find: FindSignatures) -> Plan:
    """Raises PipelineInvalid, whatever `find` raises."""
    return _Compilation(text, find).plan()


class _Compilation:
    def __init__(self, text: PipelineText, find: FindSignatures) -> None:
        self._text = text
        self._folds = {name: _fold(name, step, find) for name, step in _steps(text) if step.fold is not None}
        self._signatures = {
            name: _signature_of(name, step, find) for name, step in _steps(text) if name not in self._folds
        }
        self._starts = {
            name: {
                state: _sources(f"step {name!r}: start {state!r}", sources)
                for state, sources in (fold.text.start or {}).items()
            }
            for name, fold in self._folds.items()
        }
        self._sources = {
            name: {each: _sources(f"step {name!r}: input {each!r}", sources) for each, sources in step.inputs.items()}
            for name, step in _steps(text)
        }
        self._outputs = {name: _sources(f"output {name!r}", sources) for name, sources in text.outputs.items()}
        self._conditions = {name: _condition(name, step) for name, step in _steps(text) if step.when}
        self._inputs: dict[str, TensorSpec] = {}
        self._specs: dict[Reference, TensorSpec] = {}
        self._total: set[str] = set()
        self._read: set[Reference] = set()

    def plan(self) -> Plan:
        # 1. The steps in their order, each of them used.
        order = self._order()
        self._check_used()

        # 2. What flows between them.
        for name in order:
            with at(f"step {name!r}"):
                self._check_step(name)
        for name in order:
            with at(f"step {name!r}"):
                self._check_condition(name)
        outputs = {name: self._output_spec(name, sources) for name, sources in self._outputs.items()}

        # 3. Numbers in place of names.
        plan = self._numbered(order, outputs)
        self._check_orders()
        return plan

    # --- the order ---

    def _references(self, name: str) -> Iterator[Reference]:
        for sources in self._sources[name].values():
            yield from sources.references
        if name in self._conditions:
            yield from self._conditions[name].references
        if name in self._folds:
            yield from self._shape_references(name)
            yield from self._start_references(name)

    def _shape_references(self, name: str) -> Iterator[Reference]:
        """Of a fold, the inputs that say what its trees are like."""
        for text in (self._folds[name].text.children, self._folds[name].text.types):
            if text:
                reference = parse_reference(text)
                if reference.step:
                    raise PipelineInvalid(f"'children' and 'types' should be inputs of the pipeline, not {text!r}")
                yield reference

    def _start_references(self, name: str) -> Iterator[Reference]:
        for sources in self._starts[name].values():
            yield from sources.references

    def _order(self) -> list[str]:
        graph = {}
        for name in self._text.steps:
            with at(f"step {name!r}"):
                known = [self._known(each).step for each in self._references(name)]
                graph[name] = list(dict.fromkeys(step for step in known if step))
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise PipelineInvalid(f"steps need each other: {' -> '.join(reversed(error.args[1]))}") from None

    def _known(self, reference: Reference) -> Reference:
        if reference.step:
            if reference.step not in self._text.steps:
                raise PipelineInvalid(
                    f"{reference}: there is no step {reference.step!r}, only {_names(self._text.steps)}"
                )
            outputs = self._outputs_of(reference.step)
            if reference.name not in outputs:
                raise PipelineInvalid(
                    f"{reference}: its model has no output {reference.name!r}, only {_names(outputs)}"
                )
        elif reference.name in self._text.steps:
            raise PipelineInvalid(f"{reference} is a step: one of its outputs should be named, as {reference}.output")
        return reference

    def _outputs_of(self, name: str) -> Collection[str]:
        return self._folds[name].outputs() if name in self._folds else self._signatures[name].outputs

    def _check_used(self) -> None:
        self._read |= {each for name in self._text.steps for each in self._references(name)}
        for name, sources in self._outputs.items():
            with at(f"output {name!r}"):
                self._read |= {self._known(each) for each in sources.references}
        if unused := self._text.steps.keys() - {each.step for each in self._read}:
            raise PipelineInvalid(f"nothing uses the outputs of {_names(sorted(unused))}")

    # --- one step ---

    def _check_step(self, name: str) -> None:
        if name in self._folds:
            self._check_fold(name)
            return
        step, signature = self._text.steps[name], self._signatures[name]
        _check_names(step, signature)
        for each, sources in self._sources[name].items():
            with at(f"input {each!r}"):
                self._check_input(signature.inputs[each], sources, spread=each in step.each, may_spread=True)

        total = not (step.optional or step.when)
        if total and all(self._is_total(sources) for sources in self._sources[name].values()):
            self._total.add(name)
        for output, spec in signature.outputs.items():
            shape = None if spec.shape is None else (None, None, *spec.shape[1:]) if step.each else spec.shape
            self._specs[Reference(name, output)] = TensorSpec(output, spec.dtype, shape)

    def _check_input(self, wanted: TensorSpec, sources: Sources, *, spread: bool, may_spread: bool = False) -> None:
        shape = wanted.shape
        if spread and shape is not None:
            shape = (None, None, *shape[1:])
        for reference in sources.references:
            if not reference.step:
                self._add_input(reference.name, wanted.dtype, shape)
                continue
            hint = each_hint(wanted, self._specs[reference]) if may_spread and not spread else ""
            check_fits(reference, self._specs[reference], wanted.dtype, shape, hint)
        check_rest(sources.rest, wanted.dtype)

    def _add_input(self, name: str, dtype: np.dtype[Any], shape: Shape) -> None:
        known = self._inputs.get(name)
        both = shape if known is None else merged(known.shape, shape)
        if known is not None and known.dtype != dtype:
            raise PipelineInvalid(
                f"{name} is {dtype_name(known.dtype)} elsewhere, but should be {dtype_name(dtype)} here"
            )
        if known is not None and both is NO_SHAPE:
            raise PipelineInvalid(
                f"{name} is {format_shape(known.shape)} elsewhere, but should be {format_shape(shape)} here"
            )
        self._inputs[name] = TensorSpec(name, dtype, both)

    def _check_fold(self, name: str) -> None:
        fold = self._folds[name]

        # 1. States: what start nodes have flows into the models, and so do the models' own outputs.
        read = {each.name for each in self._read if each.step == name}
        fold.infer({state: self._computed(sources) for state, sources in self._starts[name].items()}, read)
        for state, sources in self._starts[name].items():
            with at(f"start {state!r}"):
                self._check_input(fold.rows[state_key(state)], sources, spread=False)

        # 2. The trees, and what each node has of its own.
        if fold.text.children:
            self._add_input(fold.text.children, NUMBER, (None, fold.slots))
        if fold.text.types:
            self._add_input(fold.text.types, NUMBER, (None,))
        for each, sources in self._sources[name].items():
            with at(f"input {each!r}"):
                for wanted in fold.wanted(each):
                    self._check_input(wanted, sources, spread=False)
                fold.add_node_input(each, self._joined_spec(sources))

        # 3. What becomes of it. Nodes without a value would leave their parents without one.
        if not all(map(self._is_total, (*self._sources[name].values(), *self._starts[name].values()))):
            raise PipelineInvalid(
                "some nodes may have no value, as a step before it may leave rows out: a list of sources should end "
                "with a step that computes all rows, or with a value for the rest, such as 0"
            )
        self._total.add(name)
        for output, (key, _) in fold.outputs().items():
            if output in read:
                self._specs[Reference(name, output)] = TensorSpec(output, fold.rows[key].dtype, fold.rows[key].shape)

    def _computed(self, sources: Sources) -> Sequence[TensorSpec]:
        return [self._specs[each] for each in sources.references if each.step]

    def _joined_spec(self, sources: Sources) -> TensorSpec:
        """What holds the rows of all sources."""
        first, *others = [self._spec_of(each) for each in sources.references]
        shape = first.shape
        for other in others:
            shape = joined(shape, other.shape)
        return TensorSpec(str(sources.references[0]), first.dtype, shape)

    def _check_condition(self, name: str) -> None:
        if name in self._conditions:
            condition = self._conditions[name]
            for reference in condition.references:
                if not reference.step and reference.name not in self._inputs:
                    raise PipelineInvalid(
                        f"'when' reads {reference.name!r}, which no step takes as an input. A condition may read "
                        "outputs of steps and inputs that some step takes"
                    )
            condition.check({reference: self._spec_of(reference) for reference in condition.references})

    def _is_total(self, sources: Sources) -> bool:
        """Whether every row of a request has a value."""
        return sources.rest is not None or any(map(self._has_all_rows, sources.references))

    def _has_all_rows(self, reference: Reference) -> bool:
        return not reference.step or reference.step in self._total

    # --- outputs ---

    def _output_spec(self, name: str, sources: Sources) -> TensorSpec:
        with at(f"output {name!r}"):
            specs = [self._spec_of(self._known(each)) for each in sources.references]
            first, *others = specs
            shape = first.shape
            for reference, other in zip(sources.references[1:], others, strict=True):
                if other.dtype != first.dtype:
                    raise PipelineInvalid(
                        f"{reference} is {dtype_name(other.dtype)}, but {sources.references[0]} is "
                        f"{dtype_name(first.dtype)}"
                    )
                shape = joined(shape, other.shape)
                if shape is NO_SHAPE:
                    raise PipelineInvalid(f"{reference} has another rank than {sources.references[0]}")
            check_rest(sources.rest, first.dtype)
            if not self._is_total(sources):
                raise PipelineInvalid(
                    "some rows may have no value, as each of its steps may leave rows out: it should end with a step "
                    "that computes all rows, or with a value for the rest, such as 0"
                )
            return TensorSpec(name, first.dtype, shape)

    def _spec_of(self, reference: Reference) -> TensorSpec:
        if reference.step:
            return self._specs[reference]
        if reference.name not in self._inputs:
            raise PipelineInvalid(f"{reference} is no input of a step, so that its type is not known")
        return self._inputs[reference.name]

    def _check_orders(self) -> None:
        for name, sources in self._outputs.items():
            with at(f"output {name!r}"):
                check_order(sources, self._has_all_rows)
        for step in self._text.steps:
            places = [(f"input {name!r}", each) for name, each in self._sources[step].items()]
            places += [(f"start {name!r}", each) for name, each in self._starts.get(step, {}).items()]
            for place, sources in places:
                with at(f"step {step!r}: {place}"):
                    check_order(sources, self._has_all_rows)

    # --- kinds of rows ---

    def _row_kinds(self) -> RowKinds:
        kinds = RowKinds()
        for name in self._signatures:
            kinds.join([_computed_by(name), *map(self._place, self._references(name))])
        for name in self._folds:
            own = [each for sources in self._sources[name].values() for each in sources.references]
            kinds.join([_nodes_of(name), *map(self._place, (*self._shape_references(name), *own))])
            if self._starts[name]:
                kinds.join(map(self._place, self._start_references(name)))
        for sources in self._outputs.values():
            kinds.join(map(self._place, sources.references))
        if not self._folds:  # one request, one number of rows
            kinds.join([*map(_computed_by, self._signatures), *[Reference("", name) for name in self._inputs]])
        return kinds

    def _place(self, reference: Reference) -> Hashable:
        """Whose rows these are."""
        if reference.step not in self._folds:
            return _computed_by(reference.step) if reference.step else reference
        _, of_roots = self._folds[reference.step].outputs()[reference.name]
        return _roots_of(reference.step) if of_roots else _nodes_of(reference.step)

    # --- numbers ---

    def _numbered(self, order: Sequence[str], outputs: Mapping[str, TensorSpec]) -> Plan:
        number_of = {name: number for number, name in enumerate(order)}
        values: dict[Reference, Value] = {}
        used = [each for name in order for each in self._references(name)]
        used += [each for sources in self._outputs.values() for each in sources.references]
        for reference in (*(Reference("", name) for name in self._inputs), *used):
            if reference not in values:
                step = number_of[reference.step] if reference.step else INPUT
                values[reference] = Value(len(values), step, reference.name)

        needs = {
            name: tuple(sorted({values[each].step for each in self._references(name)} - {INPUT})) for name in order
        }
        numbering = _Numbering(values, self._row_kinds(), self._place)
        steps = [
            self._step_plan(
                name,
                number_of[name],
                numbering,
                needs[name],
                tuple([number_of[other] for other in order if number_of[name] in needs[other]]),
            )
            for name in order
        ]
        gathers = {name: numbering.gather(sources) for name, sources in self._outputs.items()}
        inputs = {name: values[Reference("", name)] for name in self._inputs}
        kind_of = {name: numbering.kind(Reference("", name)) for name in self._inputs}
        signature = ModelSignature(DEFAULT_SIGNATURE, dict(self._inputs), dict(outputs), mixed_rows=bool(self._folds))
        return Plan(signature, steps, inputs, len(values), gathers, len(numbering.kinds), kind_of)

    def _step_plan(
        self, name: str, number: int, numbering: _Numbering, needs: tuple[int, ...], feeds: tuple[int, ...]
    ) -> StepPlan:
        step, condition, is_fold = self._text.steps[name], self._conditions.get(name), name in self._folds
        inputs = {
            each: numbering.gather(sources, spread=each in step.each) for each, sources in self._sources[name].items()
        }
        read = tuple([value for value in numbering.values.values() if value.step == number])
        return StepPlan(
            number,
            name,
            _models_of(name, step),
            "" if is_fold else self._signatures[name].name,
            {} if is_fold else inputs,
            condition,
            {each: numbering.values[each] for each in condition.references} if condition is not None else {},
            bool(step.each),
            step.optional,
            step.timeout_ms / 1000 if step.timeout_ms is not None else inf,
            read,
            needs,
            feeds,
            numbering.kinds.number(_nodes_of(name) if is_fold else _computed_by(name)),
            self._fold_plan(name, inputs, read, numbering) if is_fold else None,
        )

    def _fold_plan(
        self, name: str, inputs: Mapping[str, Gather], read: Sequence[Value], numbering: _Numbering
    ) -> FoldPlan:
        fold = self._folds[name]
        text, outputs = fold.text, fold.outputs()
        answered = {value.name: outputs[value.name] for value in read}
        kept = {key for key, _ in answered.values()}
        start = {state_key(state): numbering.gather(sources) for state, sources in self._starts[name].items()}
        arrays = {state_key(state) for state in fold.states} | set(map(input_key, inputs)) | kept
        return FoldPlan(
            ForestRules(
                fold.slots,
                0,
                len(fold.operations),
                text.shared,
                text.children or ", ".join(inputs),  # of a chain there are no others
                text.types or "types",
            ),
            tuple([fold.plan_of(each, kept) for each in fold.operations]),
            {key: ((spec.shape or ())[1:], spec.dtype) for key, spec in fold.rows.items() if key in arrays},  # type: ignore[misc]  # FoldTypes checks that sizes are known
            numbering.values[Reference("", text.children)] if text.children else None,
            numbering.values[Reference("", text.types)] if text.types else None,
            start,
            {input_key(each): gather for each, gather in inputs.items()},
            answered,
            next((gather.kind for gather in start.values()), None),
            numbering.kinds.number(_nodes_of(name)),
            numbering.kinds.number(_roots_of(name)),
        )


class _Numbering:
    """Numbers of values and of kinds of rows."""

    def __init__(
        self, values: Mapping[Reference, Value], kinds: RowKinds, place: Callable[[Reference], Hashable]
    ) -> None:
        self.values = values
        self.kinds = kinds
        self._place = place

    def kind(self, reference: Reference) -> int:
        return self.kinds.number(self._place(reference))

    def gather(self, sources: Sources, *, spread: bool = False) -> Gather:
        values = tuple([self.values[each] for each in sources.references])
        return Gather(values, sources.rest, spread, self.kind(sources.references[0]))


def _computed_by(step: str) -> Hashable:
    return "step", step


def _nodes_of(step: str) -> Hashable:
    return "nodes", step


def _roots_of(step: str) -> Hashable:
    return "roots", step


def _steps(text: PipelineText) -> Iterator[tuple[str, StepText]]:
    return iter(text.steps.items())


def _models_of(name: str, step: StepText) -> tuple[ModelReference, ...]:
    with at(f"step {name!r}"):
        if step.fold is not None:
            return tuple([parse_model(each.model) for each in operations_of(step)])
        return (parse_model(step.model),)


def _fold(name: str, step: StepText, find: FindSignatures) -> FoldTypes:
    with at(f"step {name!r}"):
        return FoldTypes(
            step, [Operation(each, signature_of_step(each.model, each.signature, find)) for each in operations_of(step)]
        )


def _signature_of(name: str, step: StepText, find: FindSignatures) -> ModelSignature:
    with at(f"step {name!r}"):
        return signature_of_step(step.model, step.signature, find)


def _condition(name: str, step: StepText) -> Condition:
    with at(f"step {name!r}"):
        return Condition(step.when)


def _sources(place: str, sources: Sequence[str | float]) -> Sources:
    with at(place):
        return parse_sources(sources)


def _check_names(step: StepText, signature: ModelSignature) -> None:
    if unknown := step.inputs.keys() - signature.inputs.keys():
        raise PipelineInvalid(f"{step.model} has no input {_names(sorted(unknown))}, only {_names(signature.inputs)}")
    if missing := signature.expected(step.inputs).keys() - step.inputs.keys():
        raise PipelineInvalid(f"{step.model} needs a value for its input {_names(sorted(missing))}")
    if unknown := set(step.each) - step.inputs.keys():
        raise PipelineInvalid(f"'each' should name inputs of the step, but names {_names(sorted(unknown))}")
    if step.timeout_ms is not None and not step.optional:
        raise PipelineInvalid("'timeout_ms' is for steps that are optional")


def _names(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
