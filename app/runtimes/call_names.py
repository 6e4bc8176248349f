"""The check of the names in a call, for all runtimes: they answer alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.core.errors import InferenceFailed, InvalidRequest, ServingError, SignatureNotFound
from app.core.inference import Array, ModelSignature


def check_names(signature: ModelSignature, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> None:
    """Raises InvalidRequest unless all inputs are present, and the outputs are among the signature's."""
    if inputs.keys() != signature.inputs.keys():
        raise InvalidRequest(f"inputs must be {listed(signature.inputs)}, not {listed(inputs)}")
    if outputs and (unknown := set(outputs) - signature.outputs.keys()):
        raise InvalidRequest(f"outputs must be among {listed(signature.outputs)}, not {listed(unknown)}")


def no_function(signature: str, signatures: Iterable[str], *, closed: bool) -> ServingError:
    """The error of a call for a signature that a model lacks, or of a closed model."""
    if closed:
        return InferenceFailed("the model is closed")
    return SignatureNotFound(f"signature {signature!r} not found; there are {listed(signatures)}")


def listed(names: Iterable[str]) -> str:
    """The names, sorted and quoted, for an error text."""
    return ", ".join(map(repr, sorted(names))) or "none"
