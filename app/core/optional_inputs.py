"""Inputs that callers may leave out: inputs with a default value, and declared masks and lengths.

A default value is part of the model (`SignatureDef.defaults`). A default value of one row holds for each row of the
request, so that requests with and without the input share calls; any other is taken as it is, as TensorFlow Serving
takes all.

Masks and lengths say which part of another input is not padding. They are filled in before requests are padded. So a
mask is all ones over the caller's values, and padding adds 0 to it; a length is the size that the caller sent, and
padding does not change it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.validation import check_names_and_dtypes

logger = logging.getLogger(__name__)

#: Usual names of masks and lengths.
_USUAL_NAMES = re.compile("mask|length|seq_len", re.IGNORECASE)


def with_declared_masks(
    signatures: Mapping[str, ModelSignature], wanted: Mapping[str, str]
) -> Mapping[str, ModelSignature]:
    """The signatures with the masks that callers may leave out.

    Args:
        wanted: by the name of a mask or length, the input that it describes. One that does not fit must be sent; a
            warning says why.
    """
    return {name: _with_declared(signature, wanted) for name, signature in signatures.items()}


def _with_declared(signature: ModelSignature, wanted: Mapping[str, str]) -> ModelSignature:
    masks = {}
    for name, spec in signature.inputs.items():
        if name not in wanted:
            _hint(signature, spec)
        elif reason := _why_not(signature, spec, wanted):
            logger.warning("Input %r of signature %r must be sent: %s", name, signature.name, reason)
        else:
            masks[name] = wanted[name]
    return replace(signature, masks=masks) if masks else signature


def _why_not(signature: ModelSignature, spec: TensorSpec, wanted: Mapping[str, str]) -> str:
    """The reason why the mask cannot be filled in; empty where it can."""
    source = signature.inputs.get(wanted[spec.name])
    if source is None:
        return f"there is no input {wanted[spec.name]!r} for it to describe"
    if source.name in wanted:
        return f"it describes {source.name!r}, which is itself one of mask_inputs"
    if not signature.shares_calls or signature.ragged or signature.shared & {spec.name, source.name}:
        return "the signature cannot be batched, or is ragged"
    if spec.dtype == STRING or spec.shape is None or source.shape is None:
        return f"{spec} cannot describe {source}"
    least = 2 if is_length(spec) else len(spec.shape)
    if len(source.shape) < least or not spec.accepts_shape((0, *_inner(spec, source.shape))):
        return f"{spec} cannot describe {source}"
    return ""


def _hint(signature: ModelSignature, spec: TensorSpec) -> None:
    others = [name for name, other in signature.inputs.items() if other.shape and None in other.shape[1:]]
    source = next((name for name in others if not _USUAL_NAMES.search(name)), None)
    if source is not None and _USUAL_NAMES.search(spec.name) and source != spec.name:
        logger.info(
            "Input %r of signature %r looks like a mask or a length: with mask_inputs %s=%s callers may leave it out",
            spec.name, signature.name, spec.name, source,
        )  # fmt: skip


def with_left_out(signature: ModelSignature, inputs: dict[str, Array]) -> dict[str, Array]:
    """Check names and dtypes, and add the default values and masks that `inputs` lacks; the same dict if it lacks none.

    Raises:
        InvalidRequest: another input is missing, of another dtype, or has too few dimensions for its mask.
    """
    check_names_and_dtypes(signature, inputs)
    if signature.defaults:
        inputs = _with_defaults(signature, inputs)
    missing = {name: source for name, source in signature.masks.items() if name not in inputs}
    if not missing:
        return inputs
    return inputs | {name: _mask(signature, name, inputs[source], source) for name, source in missing.items()}


def _with_defaults(signature: ModelSignature, inputs: dict[str, Array]) -> dict[str, Array]:
    missing = {name: value for name, value in signature.defaults.items() if name not in inputs}
    if not missing:
        return inputs
    shared, rows = signature.shared, None
    if signature.shares_calls:
        rows = next((len(array) for name, array in inputs.items() if array.ndim and name not in shared), 1)
    return inputs | {
        name: _for_each_row(signature.inputs[name], value, None if name in shared else rows)
        for name, value in missing.items()
    }


def _for_each_row(spec: TensorSpec, value: Array, rows: int | None) -> Array:
    """A view of the default value, repeated if it is one row (or a row without the dimension of rows)."""
    if rows is None or spec.shape is None:
        return value
    row = value[np.newaxis] if value.ndim == len(spec.shape) - 1 else value
    return np.broadcast_to(row, (rows, *row.shape[1:])) if row.ndim and len(row) == 1 else row


def _mask(signature: ModelSignature, name: str, array: Array, source: str) -> Array:
    spec = signature.inputs[name]
    if array.ndim < max(2, len(spec.shape or ())):
        raise InvalidRequest(f"Input {source!r} has {array.ndim} dimensions; expected {signature.inputs[source]}")
    shape = (len(array), *_inner(spec, array.shape))
    if not is_length(spec):
        return np.ones(shape, spec.dtype)
    if array.shape[1] > _most(spec.dtype):
        raise InvalidRequest(
            f"Input {source!r} is {array.shape[1]} long, more than its length {name!r} ({spec}) can hold"
        )
    return np.full(shape, array.shape[1], spec.dtype)


def is_length(spec: TensorSpec) -> bool:
    """Whether the input is one number for each row."""
    return spec.shape is not None and set(spec.shape[1:]) <= {1}


def _inner(spec: TensorSpec, source: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inner shape of a mask or length that describes an input of shape `source`; None is a free size."""
    shape = spec.shape or ()
    return shape[1:] if is_length(spec) else source[1 : len(shape)]


def _most(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "b":
        return 1
    return int(np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else np.inf
