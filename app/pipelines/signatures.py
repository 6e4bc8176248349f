"""Which signature of its model a step calls, and whether a step may call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.core.inference import DEFAULT_SIGNATURE, ModelSignature
from app.pipelines.references import ModelReference, PipelineInvalid, parse_model

#: The signatures of a model. Raises whatever says that there is no such model.
FindSignatures = Callable[[ModelReference], Mapping[str, ModelSignature]]


def signature_of_step(model: str, wanted: str, find: FindSignatures) -> ModelSignature:
    """That of a step, by its text. Raises PipelineInvalid, whatever `find` raises."""
    signatures = find(parse_model(model))
    wanted = wanted or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else "")
    if not wanted and len(signatures) == 1:
        (wanted,) = signatures
    if wanted not in signatures:
        raise PipelineInvalid(
            f"'signature' should be one of those of {model}: {', '.join(map(repr, signatures))}"
            + (f", but is {wanted!r}" if wanted else "")
        )
    signature = signatures[wanted]
    if not signature.batchable or signature.ragged or signature.ragged_outputs or signature.sparse:
        raise PipelineInvalid(
            f"{model}: a step's model should have a free first dimension in all inputs and outputs, and "
            "neither ragged nor sparse ones"
        )
    return signature
