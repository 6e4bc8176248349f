"""Classify and regress for REST and gRPC: the signatures that fit, and the outputs that the methods use.

The names and types of a signature's inputs and outputs decide, not its method name: TensorFlow 2 exports signatures for
classify and regress under predict's method name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature, string_array

#: The input of both methods: serialized tf.Example, [rows].
INPUT = "inputs"

#: The outputs of classify, both [rows, classes]; a signature may lack one of them.
CLASSES, SCORES = "classes", "scores"

#: The output of regress, [rows] or [rows, 1].
REGRESSION = "outputs"


#: The context may take this many bytes in all examples together, and this many times the bytes of the request. Chosen.
_FREE_BYTES, _CONTEXT_RATIO = 1024 * 1024, 32


def with_context(context: bytes, examples: Sequence[bytes]) -> Array:
    """Serialized examples, [rows], with the features of the context that an example lacks.

    Concatenated messages merge when they are parsed, and the later one overrides the earlier.

    Raises:
        InvalidRequest: the context, repeated for each example, is far larger than the request.
    """
    size = len(context) + sum(map(len, examples))
    if len(context) * len(examples) > _FREE_BYTES + _CONTEXT_RATIO * size:
        raise InvalidRequest(
            f"The context of {len(context)} bytes goes to each of {len(examples)} examples, which is too much for a"
            f" request of {size} bytes; send fewer examples, or the context's features with each"
        )
    return string_array([context + example for example in examples] if context else examples)


@dataclass(frozen=True, slots=True)
class ExamplesMethod:
    """Classify or regress. `outputs`: the outputs that the method uses; a signature must have at least one."""

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
    """Whether the only input has strings and the name of examples."""
    return signature.inputs.keys() == {INPUT} and signature.inputs[INPUT].dtype == STRING
