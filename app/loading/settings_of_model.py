"""Settings that name inputs, as they apply to one model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from app.config.settings import Settings
from app.core.errors import InvalidRequest
from app.core.inference import STRING, ModelSignature, dtype_name
from app.core.optional_inputs import with_declared_masks

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")


def of_model(values: Mapping[str, _Value], model: str) -> dict[str, _Value]:
    """The values of a setting for this model, by input: 'model/input' is for that model alone and overrides 'input'."""
    own = {name.removeprefix(f"{model}/"): value for name, value in values.items() if name.startswith(f"{model}/")}
    return {**values, **own}


def caller_signatures(
    signatures: Mapping[str, ModelSignature], model: str, settings: Settings
) -> Mapping[str, ModelSignature]:
    """The signatures of a model as callers see them: they may leave out the masks that settings declare.

    Raises InvalidRequest: pad_values does not fit one of the inputs.
    """
    for setting in ("pad_values", "mask_inputs"):
        warn_of_unknown(setting, getattr(settings, setting), model, signatures)
    check_pad_values(settings.pad_values, model, signatures)
    return with_declared_masks(signatures, of_model(settings.mask_inputs, model))


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


def check_pad_values(values: Mapping[str, object], model: str, signatures: Mapping[str, ModelSignature]) -> None:
    """Raises InvalidRequest if pad_values has a value for an input of this model that the input cannot hold."""
    for signature in signatures.values():
        for name, spec in signature.inputs.items():
            setting = f"{model}/{name}" if f"{model}/{name}" in values else name
            if setting not in values:
                continue
            try:
                element(values[setting], spec.dtype)
            except ValueError as error:
                raise InvalidRequest(
                    f"pad_values: {setting}={values[setting]} does not fit input {name!r} of model {model}, signature "
                    f"{signature.name!r}: {error}"
                ) from None


def element(value: object, dtype: np.dtype[Any]) -> Any:
    """The value as an element of an array of this dtype. Raises ValueError, which names the expected values."""
    if dtype == STRING:
        return str(value).encode()
    try:
        with np.errstate(over="raise"):
            found = np.array(value, np.int64 if dtype.kind == "b" else dtype)[()]
    except (ValueError, TypeError, OverflowError, FloatingPointError):
        raise ValueError(f"expected {_range(dtype)}") from None
    if dtype.kind in "biu" and (found != value or (dtype.kind == "b" and found not in {0, 1})):
        raise ValueError(f"expected {_range(dtype)}")
    return dtype.type(found)


def _range(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "0 or 1 (bool)"
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return f"a whole number from {bounds.min} to {bounds.max} ({dtype_name(dtype)})"
    return f"a number of type {dtype_name(dtype)}"
