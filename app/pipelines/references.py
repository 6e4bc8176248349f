"""What a pipeline's text refers to: an input of the pipeline, or an output of a step."""

from __future__ import annotations

from typing import NamedTuple

#: Digits of a version: as many as every number of 64 bits may have.
_MOST_DIGITS = 18


class PipelineInvalid(Exception):
    """The text of a pipeline is wrong, or does not fit its models: one fault or several.

    Each names its place and what is expected, in one line, also if names of the text have several.
    """

    def __init__(self, *faults: str) -> None:
        self.faults = tuple([" ".join(fault.split()) for fault in faults])
        super().__init__("; ".join(self.faults))


class Reference(NamedTuple):
    """`step.output`, or the input `output` of the pipeline if `step` is empty."""

    step: str
    name: str

    def __str__(self) -> str:
        return f"{self.step}.{self.name}" if self.step else self.name


class ModelReference(NamedTuple):
    """`name`, `name:label` or `name:version`: the newest version, that with the label, or one by its number."""

    name: str
    version: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        pinned = self.label if self.version is None else str(self.version)
        return self.name if pinned is None else f"{self.name}:{pinned}"


def parse_reference(text: str) -> Reference:
    """`step.output` or `input`: only the first dot counts, since names of outputs may have dots, too.

    Raises PipelineInvalid.
    """
    step, dot, name = text.partition(".")
    reference = Reference(step, name) if dot else Reference("", step)
    if not reference.name or (dot and not step):
        raise PipelineInvalid(f"{text!r} should be an input of the pipeline or 'step.output'")
    return reference


def parse_model(text: str) -> ModelReference:
    """`name`, `name:label` or `name:version`; what is no number is a label. Raises PipelineInvalid."""
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
