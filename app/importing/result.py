"""The result of an import, for the line that tells of it. All fields are plain: it travels as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A model that was imported, and how it was proven.

    format: of the source, for people.
    inputs, outputs: of the signature that requests get by default: type and shape by name.
    signatures: the names of all signatures.
    calls: the calls whose answers were equal.
    difference: the largest difference of floating-point answers, relative to the largest value of their output.
    example: the body of a predict request that it answers, as JSON; empty if none is known.
    notes: remarks for people.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    signatures: Sequence[str]
    calls: int
    difference: float
    example: str = ""
    notes: Sequence[str] = ()

    def line(self, place: str, seconds: float) -> str:
        """One line that tells of the import."""
        within = f" within {self.difference:.0e}" if self.difference else ""
        return (
            f"{place}: {self.format}, {_listed('input', self.inputs)}, {_listed('output', self.outputs)}; equal to the "
            f"source{within} on {self.calls} calls; {seconds:.1f} s"
        )


def _listed(word: str, specs: Mapping[str, str]) -> str:
    plural = "" if len(specs) == 1 else "s"
    return f"{word}{plural} " + " and ".join(f"{name} {spec}" for name, spec in specs.items())
