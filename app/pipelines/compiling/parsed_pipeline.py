"""The text of a pipeline with its references parsed, and the signatures of its models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from app.core.inference import ModelSignature
from app.pipelines.compiling.fold_compilation import FoldTypes, Operation, operations_of
from app.pipelines.compiling.signatures import FindSignatures, signature_of_step
from app.pipelines.compiling.sources import Sources, parse_sources
from app.pipelines.compiling.tensor_types import at
from app.pipelines.condition import Condition
from app.pipelines.document import PipelineText, StepText
from app.pipelines.references import ModelReference, PipelineInvalid, Reference, parse_model, parse_reference


class ParsedPipeline:
    """Raises PipelineInvalid, whatever `find` raises.

    Attributes:
        folds, signatures: of the steps with `fold`, and of the others, by step.
        sources, starts: by step and input, or state, where its rows come from.
        conditions: of the steps that have one.
        outputs: by name.
    """

    def __init__(self, text: PipelineText, find: FindSignatures) -> None:
        self.text = text
        self.folds = {name: _fold(name, step, find) for name, step in text.steps.items() if step.fold is not None}
        self.signatures = {
            name: _signature_of(name, step, find) for name, step in text.steps.items() if name not in self.folds
        }
        self.starts = {
            name: {
                state: _sources(f"step {name!r}: start {state!r}", sources)
                for state, sources in (fold.text.start or {}).items()
            }
            for name, fold in self.folds.items()
        }
        self.sources = {
            name: {each: _sources(f"step {name!r}: input {each!r}", sources) for each, sources in step.inputs.items()}
            for name, step in text.steps.items()
        }
        self.outputs = {name: _sources(f"output {name!r}", sources) for name, sources in text.outputs.items()}
        self.conditions = {name: _condition(name, step) for name, step in text.steps.items() if step.when}

    def references(self, name: str) -> Iterator[Reference]:
        """All that a step reads."""
        for sources in self.sources[name].values():
            yield from sources.references
        if name in self.conditions:
            yield from self.conditions[name].references
        if name in self.folds:
            yield from self.shape_references(name)
            yield from self.start_references(name)

    def shape_references(self, name: str) -> Iterator[Reference]:
        """Of a fold, the inputs that say what its trees are like."""
        for text in (self.folds[name].text.children, self.folds[name].text.types):
            if text:
                reference = parse_reference(text)
                if reference.step:
                    raise PipelineInvalid(f"'children' and 'types' should be inputs of the pipeline, not {text!r}")
                yield reference

    def start_references(self, name: str) -> Iterator[Reference]:
        """Of a fold, what the states of start nodes come from."""
        for sources in self.starts[name].values():
            yield from sources.references

    def known(self, reference: Reference) -> Reference:
        """The same. Raises PipelineInvalid: there is no such step or output."""
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
    """One, or those of the operations of a fold. Raises PipelineInvalid."""
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


def quoted(names: Collection[str]) -> str:
    """Names, as error texts list them."""
    return ", ".join(map(repr, names))
