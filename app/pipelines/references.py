"""References in a pipeline's text: to an input of the pipeline, an output of a step, or a model."""

from __future__ import annotations

from typing import NamedTuple

#: The most digits of a version: any number of so many digits fits 64 bits.
_MOST_DIGITS = 18


class PipelineInvalid(Exception):
    """The text of a pipeline is wrong, or does not fit its models: one fault or several.

    A fault is one line, also where a name of the text has several, and says its place and what is expected.
    """

    def __init__(self, *faults: str) -> None:
        self.faults = tuple([" ".join(fault.split()) for fault in faults])
        super().__init__("; ".join(self.faults))


class Reference(NamedTuple):
    """A reference `step.name` to an output of a step, or, if `step` is empty, to the input `name` of the pipeline."""

    step: str
    name: str

    def __str__(self) -> str:
        return f"{self.step}.{self.name}" if self.step else self.name


class ModelReference(NamedTuple):
    """A reference to a model: `name`, the newest version; `name:label`, the label's; or `name:version`."""

    name: str
    version: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        pinned = self.label if self.version is None else str(self.version)
        return self.name if pinned is None else f"{self.name}:{pinned}"


def parse_reference(text: str) -> Reference:
    """The reference `step.output` or `input`. Only the first dot counts: names of outputs may have dots, too.

    Raises PipelineInvalid.
    """
    step, dot, name = text.partition(".")
    reference = Reference(step, name) if dot else Reference("", step)
    if not reference.name or (dot and not step):
        raise PipelineInvalid(f"{text!r} should be an input of the pipeline or 'step.output'")
    return reference


def parse_model(text: str) -> ModelReference:
    """The reference `name`, `name:label` or `name:version`, where a number is a version. Raises PipelineInvalid."""
    name, colon, pinned = text.partition(":")
    if not name or (colon and not pinned):
        raise PipelineInvalid(f"model {text!r} should be 'name', 'name:label' or 'name:version'")
    if not colon:
        return ModelReference(name)
    if not (pinned.isascii() and pinned.isdecimal()):
        return ModelReference(name, label=pinned)
    if len(pinned) > _MOST_DIGITS:
        raise PipelineInvalid(f"the version of a model should have at most {_MOST_DIGITS} digits, not {len(pinned)}")
    return ModelReference(name, version=int(pinned))
