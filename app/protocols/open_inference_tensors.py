"""What an input says of itself before its elements are read: name, datatype and shape, checked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from app.errors import InvalidRequest
from app.inference import ModelSignature, TensorSpec
from app.protocols.open_inference_datatypes import datatype_of

#: No deeper than every numpy allows.
MAX_RANK = 31

#: Arrays of more bytes cannot even be addressed.
_MAX_BYTES = 2**63 - 1


def declared_input(name: str, datatype: str, signature: ModelSignature) -> TensorSpec:
    """What the signature says of this input.

    Raises:
        InvalidRequest: there is no such input, or it has another datatype.
        Unsupported: the protocol has no datatype for what the model wants.
    """
    spec = signature.inputs.get(name)
    if spec is None:
        known = ", ".join(map(repr, sorted(signature.inputs))) or "none"
        raise InvalidRequest(f"Unknown input {name[:256]!r}; signature {signature.name!r} has {known}")
    expected = datatype_of(spec.dtype)
    if datatype != expected:
        raise InvalidRequest(f"Input {name!r} has datatype {datatype[:64]!r}; expected {expected!r}")
    return spec


def checked_shape(spec: TensorSpec, shape: Sequence[object]) -> tuple[int, ...]:
    """Raises InvalidRequest unless `shape` is one that an array of this type can have."""
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"Input {spec.name!r} has {len(shape)} dimensions; expected {MAX_RANK} at most")
    sizes: list[int] = []
    for size in shape:
        if type(size) is not int or size < 0:
            raise InvalidRequest(
                f"Input {spec.name!r} has a dimension {str(size)[:64]!r} in 'shape'; expected whole numbers from 0"
            )
        sizes.append(size)
    if prod(size or 1 for size in sizes) * spec.dtype.itemsize > _MAX_BYTES:
        raise InvalidRequest(f"Input {spec.name!r} has shape {str(sizes)[:256]}: no tensor is that large")
    return tuple(sizes)
