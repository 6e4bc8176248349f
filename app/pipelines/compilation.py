"""The compilation of a pipeline: from its text and the signatures of its models to a plan, with types checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from app.core.inference import (
    ModelSignature,
    TensorSpec,
    dtype_name,
    format_shape,
)
from app.pipelines.compiling.fold_compilation import NUMBER, state_key
from app.pipelines.compiling.numbering import Numbering
from app.pipelines.compiling.parsed_pipeline import ParsedPipeline, models_of_step, quoted
from app.pipelines.compiling.signatures import FindSignatures
from app.pipelines.compiling.sources import Sources, check_order
from app.pipelines.compiling.tensor_types import (
    NO_SHAPE,
    Shape,
    check_fits,
    check_rest,
    each_hint,
    joined,
    located,
    merged,
)
from app.pipelines.document import PipelineText, StepText
from app.pipelines.plan import Plan
from app.pipelines.references import ModelReference, PipelineInvalid, Reference


def models_of(text: PipelineText) -> Mapping[ModelReference, str]:
    """The models that a pipeline calls, with the first step that calls each. Raises PipelineInvalid."""
    found: dict[ModelReference, str] = {}
    for name, step in text.steps.items():
        for model in models_of_step(name, step):
            found.setdefault(model, name)
    return found


def compile_pipeline(text: PipelineText, find: FindSignatures) -> Plan:
    """The plan of a pipeline. Raises PipelineInvalid, and whatever `find` raises."""
    return _Compilation(ParsedPipeline(text, find)).plan()


class _Compilation:
    """One compilation: the types of a pipeline's values as they become known, step by step."""

    def __init__(self, parsed: ParsedPipeline) -> None:
        self._parsed = parsed
        self._inputs: dict[str, TensorSpec] = {}
        self._specs: dict[Reference, TensorSpec] = {}  # of the outputs of steps
        self._total: set[str] = set()  # the steps that compute every row
        self._read: set[Reference] = set()  # the references of steps and outputs

    def plan(self) -> Plan:
        # 1. The order of the steps; each is used.
        order = self._order()
        self._check_used()

        # 2. The types of the values between them.
        for name in order:
            with located(f"step {name!r}"):
                self._check_step(name)
        for name in order:
            with located(f"step {name!r}"):
                self._check_condition(name)
        outputs = {name: self._output_spec(name, sources) for name, sources in self._parsed.outputs.items()}

        # 3. Numbers in place of names.
        plan = Numbering(self._parsed, order, self._inputs).plan(outputs)
        self._check_orders()
        return plan

    # --- the order ---

    def _order(self) -> list[str]:
        graph = {}
        for name in self._parsed.text.steps:
            with located(f"step {name!r}"):
                known = [self._parsed.known(each).step for each in self._parsed.references(name)]
                graph[name] = list(dict.fromkeys(step for step in known if step))
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise PipelineInvalid(f"steps need each other: {' -> '.join(reversed(error.args[1]))}") from None

    def _check_used(self) -> None:
        self._read |= {each for name in self._parsed.text.steps for each in self._parsed.references(name)}
        for name, sources in self._parsed.outputs.items():
            with located(f"output {name!r}"):
                self._read |= {self._parsed.known(each) for each in sources.references}
        if unused := self._parsed.text.steps.keys() - {each.step for each in self._read}:
            raise PipelineInvalid(f"nothing uses the outputs of {quoted(sorted(unused))}")

    # --- one step ---

    def _check_step(self, name: str) -> None:
        if name in self._parsed.folds:
            self._check_fold(name)
            return
        step, signature = self._parsed.text.steps[name], self._parsed.signatures[name]
        _check_names(step, signature)
        for each, sources in self._parsed.sources[name].items():
            with located(f"input {each!r}"):
                self._check_input(signature.inputs[each], sources, spread=each in step.each, may_spread=True)

        total = not (step.optional or step.when)
        if total and all(self._is_total(sources) for sources in self._parsed.sources[name].values()):
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
        fold = self._parsed.folds[name]

        # 1. States: those of start nodes are inputs of the models, and so are the models' outputs.
        read = {each.name for each in self._read if each.step == name}
        fold.infer({state: self._computed(sources) for state, sources in self._parsed.starts[name].items()}, read)
        for state, sources in self._parsed.starts[name].items():
            with located(f"start {state!r}"):
                self._check_input(fold.rows[state_key(state)], sources, spread=False)

        # 2. The trees, and the inputs of their nodes.
        if fold.text.children:
            self._add_input(fold.text.children, NUMBER, (None, fold.slots))
        if fold.text.types:
            self._add_input(fold.text.types, NUMBER, (None,))
        for each, sources in self._parsed.sources[name].items():
            with located(f"input {each!r}"):
                for wanted in fold.wanted(each):
                    self._check_input(wanted, sources, spread=False)
                fold.add_node_input(each, self._joined_spec(sources))

        # 3. The outputs. A node without a value would leave its parents without one.
        if not all(map(self._is_total, (*self._parsed.sources[name].values(), *self._parsed.starts[name].values()))):
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
        """The type of rows from all sources."""
        first, *others = [self._spec_of(each) for each in sources.references]
        shape = first.shape
        for other in others:
            shape = joined(shape, other.shape)
        return TensorSpec(str(sources.references[0]), first.dtype, shape)

    def _check_condition(self, name: str) -> None:
        if name in self._parsed.conditions:
            condition = self._parsed.conditions[name]
            for reference in condition.references:
                if not reference.step and reference.name not in self._inputs:
                    raise PipelineInvalid(
                        f"'when' reads {reference.name!r}, which no step takes as an input. A condition may read "
                        "outputs of steps and inputs that some step takes"
                    )
            condition.check({reference: self._spec_of(reference) for reference in condition.references})

    def _is_total(self, sources: Sources) -> bool:
        """Whether the sources have a value for every row of a request."""
        return sources.rest is not None or any(map(self._has_all_rows, sources.references))

    def _has_all_rows(self, reference: Reference) -> bool:
        return not reference.step or reference.step in self._total

    # --- outputs ---

    def _output_spec(self, name: str, sources: Sources) -> TensorSpec:
        with located(f"output {name!r}"):
            specs = [self._spec_of(self._parsed.known(each)) for each in sources.references]
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
        for name, sources in self._parsed.outputs.items():
            with located(f"output {name!r}"):
                check_order(sources, self._has_all_rows)
        for step in self._parsed.text.steps:
            places = [(f"input {name!r}", each) for name, each in self._parsed.sources[step].items()]
            places += [(f"start {name!r}", each) for name, each in self._parsed.starts.get(step, {}).items()]
            for place, sources in places:
                with located(f"step {step!r}: {place}"):
                    check_order(sources, self._has_all_rows)


def _check_names(step: StepText, signature: ModelSignature) -> None:
    if unknown := step.inputs.keys() - signature.inputs.keys():
        raise PipelineInvalid(f"{step.model} has no input {quoted(sorted(unknown))}, only {quoted(signature.inputs)}")
    if missing := signature.expected(step.inputs).keys() - step.inputs.keys():
        raise PipelineInvalid(f"{step.model} needs a value for its input {quoted(sorted(missing))}")
    if unknown := set(step.each) - step.inputs.keys():
        raise PipelineInvalid(f"'each' should name inputs of the step, but names {quoted(sorted(unknown))}")
    if step.timeout_ms is not None and not step.optional:
        raise PipelineInvalid("'timeout_ms' is for steps that are optional")
