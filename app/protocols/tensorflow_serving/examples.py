"""Classify and regress, as REST and gRPC both have them: which signatures fit, and which outputs they use.

The names and types of a signature's inputs and outputs decide, not its method name: TensorFlow 2 exports signatures for
classify and regress under predict's method name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.errors import InvalidRequest
from app.core.inference import STRING, ModelSignature

#: The input of both: serialized tf.Example, [rows].
INPUT = "inputs"

#: The outputs of classify, both [rows, classes]; a signature may lack one of them.
CLASSES, SCORES = "classes", "scores"

#: The output of regress, [rows] or [rows, 1].
REGRESSION = "outputs"


@dataclass(frozen=True, slots=True)
class ExamplesMethod:
    """Classify or regress. `outputs` are those that it uses, at least one of which a signature must have."""

    name: str
    outputs: tuple[str, ...]

    def fits(self, signature: ModelSignature) -> bool:
        return takes_examples(signature) and any(name in signature.outputs for name in self.outputs)

    def wanted(self, signature: ModelSignature) -> tuple[str, ...]:
        """The outputs to compute. Raises InvalidRequest if the signature does not fit."""
        if not takes_examples(signature):
            raise self._misfit(signature, f"the one input {INPUT!r} of type string", signature.inputs)
        wanted = tuple(name for name in self.outputs if name in signature.outputs)
        if not wanted:
            raise self._misfit(signature, f"output {' or '.join(map(repr, self.outputs))}", signature.outputs)
        return wanted

    def _misfit(self, signature: ModelSignature, expected: str, found: Mapping[str, object]) -> InvalidRequest:
        names = ", ".join(f"{name!r} {spec}" for name, spec in sorted(found.items())) or "none"
        return InvalidRequest(
            f"Signature {signature.name!r} cannot {self.name}: expecting {expected}, but it has {names}"
        )


CLASSIFY = ExamplesMethod("classify", (CLASSES, SCORES))
REGRESS = ExamplesMethod("regress", (REGRESSION,))


def takes_examples(signature: ModelSignature) -> bool:
    """Is its only input of strings, under the name that examples have?"""
    return signature.inputs.keys() == {INPUT} and signature.inputs[INPUT].dtype == STRING
