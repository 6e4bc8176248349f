"""Settings that name inputs, as they apply to one model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeVar

from app.core.inference import ModelSignature

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")


def of_model(values: Mapping[str, _Value], model: str) -> dict[str, _Value]:
    """A setting's values for this model, by input: 'model/input' is for that model alone and overrides 'input'."""
    own = {name.removeprefix(f"{model}/"): value for name, value in values.items() if name.startswith(f"{model}/")}
    return {**values, **own}


def warn_of_unknown(
    setting: str, values: Mapping[str, object], model: str, signatures: Mapping[str, ModelSignature]
) -> None:
    """Warns of 'model/input' names whose input this model lacks; a name without a model may be another model's."""
    known = {name for signature in signatures.values() for name in signature.inputs}
    for name in values:
        of, _, given = name.partition("/")
        if of == model and given and given not in known:
            inputs = ", ".join(sorted(known))
            logger.warning("%s names %s, but the inputs of model %s are: %s", setting, name, model, inputs)
