"""From the text of a pipeline and the signatures of its models to a plan. Types and shapes are inferred and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from app.core.inference import (
    DEFAULT_SIGNATURE,
    Dimension,
    ModelSignature,
    TensorSpec,
    dtype_name,
    format_shape,
)
from app.pipelines.condition import Condition
from app.pipelines.document import PipelineText, StepText
from app.pipelines.plan import INPUT, Gather, Plan, StepPlan, Value
from app.pipelines.references import ModelReference, PipelineInvalid, Reference, parse_model, parse_reference

#: The signatures of a model. Raises whatever says that there is no such model.
FindSignatures = Callable[[ModelReference], Mapping[str, ModelSignature]]

Shape = tuple[Dimension, ...] | None


def models_of(text: PipelineText) -> Sequence[ModelReference]:
    """The models that a pipeline calls, each once. Raises PipelineInvalid."""
    return list(dict.fromkeys(_model_of(name, step) for name, step in text.steps.items()))


def compile_pipeline(text: PipelineText, find: FindSignatures) -> Plan:
    """Raises PipelineInvalid, whatever `find` raises."""
    return _Compilation(text, find).plan()


class _Sources(NamedTuple):
    references: Sequence[Reference]
    rest: Any = None


class _Compilation:
    def __init__(self, text: PipelineText, find: FindSignatures) -> None:
        self._text = text
        self._signatures = {name: _signature_of(name, step, find) for name, step in text.steps.items()}
        self._sources = {
            name: {each: _sources(f"step {name!r}: input {each!r}", sources) for each, sources in step.inputs.items()}
            for name, step in _steps(text)
        }
        self._outputs = {name: _sources(f"output {name!r}", sources) for name, sources in text.outputs.items()}
        self._conditions = {name: _condition(name, step) for name, step in _steps(text) if step.when}
        self._inputs: dict[str, TensorSpec] = {}
        self._specs: dict[Reference, TensorSpec] = {}
        self._total: set[str] = set()

    def plan(self) -> Plan:
        # 1. The steps in their order, each of them used.
        order = self._order()
        self._check_used()

        # 2. What flows between them.
        for name in order:
            with _at(f"step {name!r}"):
                self._check_step(name)
        for name in order:
            with _at(f"step {name!r}"):
                self._check_condition(name)
        outputs = {name: self._output_spec(name, sources) for name, sources in self._outputs.items()}

        # 3. Numbers in place of names.
        return self._numbered(order, outputs)

    # --- the order ---

    def _references(self, name: str) -> Iterator[Reference]:
        for sources in self._sources[name].values():
            yield from sources.references
        if name in self._conditions:
            yield from self._conditions[name].references

    def _order(self) -> list[str]:
        graph = {}
        for name in self._text.steps:
            with _at(f"step {name!r}"):
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
            outputs = self._signatures[reference.step].outputs
            if reference.name not in outputs:
                raise PipelineInvalid(
                    f"{reference}: its model has no output {reference.name!r}, only {_names(outputs)}"
                )
        elif reference.name in self._text.steps:
            raise PipelineInvalid(f"{reference} is a step: one of its outputs should be named, as {reference}.output")
        return reference

    def _check_used(self) -> None:
        used = {each.step for name in self._text.steps for each in self._references(name)}
        for name, sources in self._outputs.items():
            with _at(f"output {name!r}"):
                used |= {self._known(each).step for each in sources.references}
        if unused := self._text.steps.keys() - used:
            raise PipelineInvalid(f"nothing uses the outputs of {_names(sorted(unused))}")

    # --- one step ---

    def _check_step(self, name: str) -> None:
        step, signature = self._text.steps[name], self._signatures[name]
        _check_names(step, signature)
        for each, sources in self._sources[name].items():
            with _at(f"input {each!r}"):
                self._check_input(signature.inputs[each], sources, spread=each in step.each)

        total = not (step.optional or step.when)
        if total and all(self._is_total(sources) for sources in self._sources[name].values()):
            self._total.add(name)
        for output, spec in signature.outputs.items():
            shape = None if spec.shape is None else (None, None, *spec.shape[1:]) if step.each else spec.shape
            self._specs[Reference(name, output)] = TensorSpec(output, spec.dtype, shape)

    def _check_input(self, wanted: TensorSpec, sources: _Sources, *, spread: bool) -> None:
        shape = wanted.shape
        if spread and shape is not None:
            shape = (None, None, *shape[1:])
        for reference in sources.references:
            if not reference.step:
                self._add_input(reference.name, wanted.dtype, shape)
                continue
            spec = self._specs[reference]
            if spec.dtype != wanted.dtype:
                raise PipelineInvalid(
                    f"{reference} is {dtype_name(spec.dtype)}, but should be {dtype_name(wanted.dtype)}"
                )
            if _merged(spec.shape, shape) is _NO_SHAPE:
                raise PipelineInvalid(f"{reference} is {format_shape(spec.shape)}, but should be {format_shape(shape)}")
        _check_rest(sources.rest, wanted.dtype)

    def _add_input(self, name: str, dtype: np.dtype[Any], shape: Shape) -> None:
        known = self._inputs.get(name)
        merged = shape if known is None else _merged(known.shape, shape)
        if known is not None and known.dtype != dtype:
            raise PipelineInvalid(
                f"{name} is {dtype_name(known.dtype)} elsewhere, but should be {dtype_name(dtype)} here"
            )
        if known is not None and merged is _NO_SHAPE:
            raise PipelineInvalid(
                f"{name} is {format_shape(known.shape)} elsewhere, but should be {format_shape(shape)} here"
            )
        self._inputs[name] = TensorSpec(name, dtype, merged)

    def _check_condition(self, name: str) -> None:
        if name in self._conditions:
            condition = self._conditions[name]
            condition.check({reference: self._spec_of(reference) for reference in condition.references})

    def _is_total(self, sources: _Sources) -> bool:
        """Whether every row of a request has a value."""
        return sources.rest is not None or any(not each.step or each.step in self._total for each in sources.references)

    # --- outputs ---

    def _output_spec(self, name: str, sources: _Sources) -> TensorSpec:
        with _at(f"output {name!r}"):
            specs = [self._spec_of(self._known(each)) for each in sources.references]
            first, *others = specs
            shape = first.shape
            for reference, other in zip(sources.references[1:], others, strict=True):
                if other.dtype != first.dtype:
                    raise PipelineInvalid(
                        f"{reference} is {dtype_name(other.dtype)}, but {sources.references[0]} is "
                        f"{dtype_name(first.dtype)}"
                    )
                shape = _joined(shape, other.shape)
                if shape is _NO_SHAPE:
                    raise PipelineInvalid(f"{reference} has another rank than {sources.references[0]}")
            _check_rest(sources.rest, first.dtype)
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
        steps = [
            self._step_plan(
                name,
                number_of[name],
                values,
                needs[name],
                [number_of[other] for other in order if number_of[name] in needs[other]],
            )
            for name in order
        ]
        gathers = {name: _gather(sources, values) for name, sources in self._outputs.items()}
        signature = ModelSignature(DEFAULT_SIGNATURE, dict(self._inputs), dict(outputs))
        if not self._inputs:
            raise PipelineInvalid("no step reads an input of the pipeline")
        inputs = {name: values[Reference("", name)] for name in self._inputs}
        return Plan(signature, steps, inputs, len(values), gathers)

    def _step_plan(
        self, name: str, number: int, values: Mapping[Reference, Value], needs: tuple[int, ...], feeds: Sequence[int]
    ) -> StepPlan:
        step, condition = self._text.steps[name], self._conditions.get(name)
        inputs = {
            each: _gather(sources, values, spread=each in step.each) for each, sources in self._sources[name].items()
        }
        return StepPlan(
            number,
            name,
            _model_of(name, step),
            self._signatures[name].name,
            inputs,
            condition,
            {each: values[each] for each in condition.references} if condition is not None else {},
            bool(step.each),
            step.optional,
            step.timeout_ms / 1000 if step.timeout_ms is not None else inf,
            tuple([value for value in values.values() if value.step == number]),
            needs,
            tuple(feeds),
        )


def _steps(text: PipelineText) -> Iterator[tuple[str, StepText]]:
    return iter(text.steps.items())


def _model_of(name: str, step: StepText) -> ModelReference:
    with _at(f"step {name!r}"):
        return parse_model(step.model)


def _signature_of(name: str, step: StepText, find: FindSignatures) -> ModelSignature:
    with _at(f"step {name!r}"):
        signatures = find(parse_model(step.model))
        wanted = step.signature or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else "")
        if not wanted and len(signatures) == 1:
            (wanted,) = signatures
        if wanted not in signatures:
            raise PipelineInvalid(
                f"'signature' should be one of those of {step.model}: {_names(signatures)}"
                + (f", but is {wanted!r}" if wanted else "")
            )
        signature = signatures[wanted]
        if not signature.batchable or signature.ragged or signature.ragged_outputs or signature.sparse:
            raise PipelineInvalid(
                f"{step.model}: a step's model should have a free first dimension in all inputs and outputs, and "
                "neither ragged nor sparse ones"
            )
        return signature


def _condition(name: str, step: StepText) -> Condition:
    with _at(f"step {name!r}"):
        return Condition(step.when)


def _sources(place: str, sources: Sequence[str | float]) -> _Sources:
    with _at(place):
        return _parsed(sources)


def _parsed(sources: Sequence[str | float]) -> _Sources:
    texts = [each for each in sources if isinstance(each, str)]
    rest = None if isinstance(sources[-1], str) else sources[-1]
    if not texts or len(texts) < len(sources) - (rest is not None):
        raise PipelineInvalid(f"{list(sources)!r} should be references, and after them at most one number")
    return _Sources([parse_reference(each) for each in texts], rest)


def _check_names(step: StepText, signature: ModelSignature) -> None:
    if unknown := step.inputs.keys() - signature.inputs.keys():
        raise PipelineInvalid(f"{step.model} has no input {_names(sorted(unknown))}, only {_names(signature.inputs)}")
    if missing := signature.expected(step.inputs).keys() - step.inputs.keys():
        raise PipelineInvalid(f"{step.model} needs a value for its input {_names(sorted(missing))}")
    if unknown := set(step.each) - step.inputs.keys():
        raise PipelineInvalid(f"'each' should name inputs of the step, but names {_names(sorted(unknown))}")
    if step.timeout_ms is not None and not step.optional:
        raise PipelineInvalid("'timeout_ms' is for steps that are optional")


def _check_rest(rest: Any, dtype: np.dtype[Any]) -> None:
    if rest is None:
        return
    if dtype.kind not in "iufV" or (isinstance(rest, float) and _is_whole(dtype)):
        raise PipelineInvalid(f"{rest!r} is no {dtype_name(dtype)}")
    least, most = _limits(dtype)
    if not least <= rest <= most and abs(rest) < inf:
        raise PipelineInvalid(f"{rest!r} does not fit into {dtype_name(dtype)}")


def _is_whole(dtype: np.dtype[Any]) -> bool:
    """int4 is, too, whose kind is 'V'."""
    return "int" in dtype.name


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if _is_whole(dtype):
        whole = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # it has no stubs
        return int(whole.min), int(whole.max)
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # it has no stubs
    return -most, most


def _gather(sources: _Sources, values: Mapping[Reference, Value], *, spread: bool = False) -> Gather:
    return Gather(tuple([values[each] for each in sources.references]), sources.rest, spread)


#: In place of a shape: there is none that fits both.
_NO_SHAPE: Shape = (-1,)


def _merged(one: Shape, other: Shape) -> Shape:
    """The shape that fits both."""
    if one is None or other is None:
        return one if other is None else other
    if len(one) != len(other) or any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True)):
        return _NO_SHAPE
    return tuple([size if size is not None else twin for size, twin in zip(one, other, strict=True)])


def _joined(one: Shape, other: Shape) -> Shape:
    """The shape that holds both."""
    if one is None or other is None:
        return None
    if len(one) != len(other):
        return _NO_SHAPE
    return tuple([size if size == twin else None for size, twin in zip(one, other, strict=True)])


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except PipelineInvalid as fault:
        raise PipelineInvalid(f"{place}: {fault}") from None


def _names(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
