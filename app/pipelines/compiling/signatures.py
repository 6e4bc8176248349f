"""The signature of its model that a step calls, and the check that a step may call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.core.inference import DEFAULT_SIGNATURE, ModelSignature, format_shape
from app.pipelines.references import ModelReference, PipelineInvalid, parse_model

#: The most inputs and outputs that an error text names. Chosen.
_MOST_TOLD = 4

#: Finds the signatures of a model. Raises an error of its own if there is no such model.
FindSignatures = Callable[[ModelReference], Mapping[str, ModelSignature]]


def signature_of_step(model: str, wanted: str, find: FindSignatures) -> ModelSignature:
    """The signature of a step, by its text. Raises PipelineInvalid, and whatever `find` raises."""
    signatures = find(parse_model(model))
    wanted = wanted or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else "")
    if not wanted and len(signatures) == 1:
        (wanted,) = signatures
    if not signatures:
        raise PipelineInvalid(f"{model} was saved without signatures, so no step can call it")
    if wanted not in signatures:
        raise PipelineInvalid(
            f"'signature' should be one of those of {model}: {', '.join(map(repr, signatures))}"
            + (f", but is {wanted!r}" if wanted else "")
        )
    signature = signatures[wanted]
    # A model that mixes rows may be a step: a call has the rows of one request, equally many in all inputs.
    if not signature.all_rows or signature.ragged or signature.ragged_outputs or signature.sparse:
        raise PipelineInvalid(
            f"{model}: a step's model should have a free first dimension in all inputs and outputs, and "
            f"neither ragged nor sparse ones{_which(signature)}"
        )
    return signature


def _which(signature: ModelSignature) -> str:
    """The first unfit inputs and outputs, as the end of a sentence."""
    odd = [f"{name!r} is ragged" for name in (*signature.ragged, *signature.ragged_outputs)]
    odd += [f"{each.values!r} is sparse" for each in signature.sparse]
    for unknown, specs in ((False, signature.inputs), (True, signature.outputs)):
        for name, spec in specs.items():
            free = unknown if spec.shape is None else bool(spec.shape) and spec.shape[0] is None
            odd += [] if free else [f"{name!r} is {format_shape(spec.shape)}"]
    return f", but {', '.join(odd[:_MOST_TOLD])}" if odd else ""
