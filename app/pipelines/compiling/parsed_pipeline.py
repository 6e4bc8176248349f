"""The text of a pipeline with its references parsed, and the signatures of its models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import ParamSpec, TypeVar

from app.pipelines.compiling.fold_compilation import FoldTypes, Operation, operations_of
from app.pipelines.compiling.signatures import FindSignatures, signature_of_step
from app.pipelines.compiling.sources import parse_sources
from app.pipelines.compiling.tensor_types import located
from app.pipelines.condition import Condition
from app.pipelines.document import PipelineText, StepText
from app.pipelines.references import ModelReference, PipelineInvalid, Reference, parse_model, parse_reference

T = TypeVar("T")
Parameters = ParamSpec("Parameters")


class ParsedPipeline:
    """A pipeline's text, parsed.

    Attributes:
        folds: by step, the types of steps with `fold`.
        signatures: by step, the signatures of other steps.
        sources: by step and input, the sources of its rows.
        starts: by fold and state, the sources of the start nodes' states.
        conditions: by step, for steps that have one.
        outputs: by output of the pipeline, the sources of its rows.

    Raises:
        PipelineInvalid, and whatever `find` raises.
    """

    def __init__(self, text: PipelineText, find: FindSignatures) -> None:
        # 1. The models' signatures.
        self.text = text
        self.folds = {
            name: _at(f"step {name!r}", _fold, step, find) for name, step in text.steps.items() if step.fold is not None
        }
        self.signatures = {
            name: _at(f"step {name!r}", signature_of_step, step.model, step.signature, find)
            for name, step in text.steps.items()
            if name not in self.folds
        }

        # 2. The references of the text, and its conditions.
        self.starts = {
            name: {
                state: _at(f"step {name!r}: start {state!r}", parse_sources, sources)
                for state, sources in (fold.text.start or {}).items()
            }
            for name, fold in self.folds.items()
        }
        self.sources = {
            name: {
                each: _at(f"step {name!r}: input {each!r}", parse_sources, sources)
                for each, sources in step.inputs.items()
            }
            for name, step in text.steps.items()
        }
        self.outputs = {name: _at(f"output {name!r}", parse_sources, sources) for name, sources in text.outputs.items()}
        self.conditions = {
            name: _at(f"step {name!r}", Condition, step.when) for name, step in text.steps.items() if step.when
        }

    def references(self, name: str) -> Iterator[Reference]:
        """The references of a step: of its inputs, its condition and its trees."""
        for sources in self.sources[name].values():
            yield from sources.references
        if name in self.conditions:
            yield from self.conditions[name].references
        if name in self.folds:
            yield from self.shape_references(name)
            yield from self.start_references(name)

    def shape_references(self, name: str) -> Iterator[Reference]:
        """The inputs of the pipeline that hold a fold's trees: children and types."""
        for text in (self.folds[name].text.children, self.folds[name].text.types):
            if text:
                reference = parse_reference(text)
                if reference.step:
                    raise PipelineInvalid(f"'children' and 'types' should be inputs of the pipeline, not {text!r}")
                yield reference

    def start_references(self, name: str) -> Iterator[Reference]:
        """The references of the start nodes' states of a fold."""
        for sources in self.starts[name].values():
            yield from sources.references

    def known(self, reference: Reference) -> Reference:
        """The reference, checked. Raises PipelineInvalid: there is no such step or output."""
        if reference.step:
            if reference.step not in self.text.steps:
                raise PipelineInvalid(
                    f"{reference}: there is no step {reference.step!r}, only {quoted(self.text.steps)}"
                )
            outputs = self._outputs_of(reference.step)
            if reference.name not in outputs:
                raise PipelineInvalid(
                    f"{reference}: its model has no output {reference.name!r}, only {quoted(outputs)}"
                )
        elif reference.name in self.text.steps:
            raise PipelineInvalid(f"{reference} is a step: one of its outputs should be named, as {reference}.output")
        return reference

    def _outputs_of(self, name: str) -> Collection[str]:
        return self.folds[name].outputs() if name in self.folds else self.signatures[name].outputs


def models_of_step(name: str, step: StepText) -> tuple[ModelReference, ...]:
    """The model of a step, or the models of a fold's operations. Raises PipelineInvalid."""
    with located(f"step {name!r}"):
        if step.fold is not None:
            return tuple([parse_model(each.model) for each in operations_of(step)])
        return (parse_model(step.model),)


def _fold(step: StepText, find: FindSignatures) -> FoldTypes:
    return FoldTypes(
        step, [Operation(each, signature_of_step(each.model, each.signature, find)) for each in operations_of(step)]
    )


def _at(place: str, read: Callable[Parameters, T], *args: Parameters.args, **kwargs: Parameters.kwargs) -> T:
    """The result of `read`, whose faults name the place."""
    with located(place):
        return read(*args, **kwargs)


def quoted(names: Collection[str]) -> str:
    """A list of names for error texts."""
    return ", ".join(map(repr, names))
