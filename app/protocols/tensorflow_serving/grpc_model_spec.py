"""ModelSpec: the model, version and signature that a gRPC call names, and those that answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.core.errors import InvalidRequest, ServingError, SignatureNotFound
from app.core.inference import DEFAULT_SIGNATURE, ModelSignature
from app.core.interfaces import ServedModel, ServedRepository
from app.transports.grpc.calls import GrpcCall


def resolve(repository: ServedRepository, spec: Any, call: GrpcCall) -> ServedModel:
    """The model to call. Raises InvalidRequest, NotAllowed, ModelNotFound, ModelNotReady."""
    if not spec.name:
        raise InvalidRequest("ModelSpec has no name specified.")
    call.check_model(spec.name)
    version, label = version_choice(spec)
    model = repository.resolve(spec.name, version, label)
    call.model, call.version = model.name, model.version
    return model


def version_choice(spec: Any) -> tuple[int | None, str | None]:
    """The version and the label that the call names; at most one is not None."""
    match spec.WhichOneof("version_choice"):
        case "version":
            return spec.version.value, None
        case "version_label":
            return None, spec.version_label
        case _:
            return None, None


def no_signature(name: str) -> ServingError:
    """The error for an unknown signature, with the text of TensorFlow Serving's Predict."""
    return SignatureNotFound(f'Serving signature key "{name}" not found.')


def resolve_signature(
    model: ServedModel, spec: Any, call: GrpcCall, missing: Callable[[str], ServingError] = no_signature
) -> ModelSignature:
    """The signature that the call names; an empty name means the default one. Raises `missing` of its name."""
    name = spec.signature_name or DEFAULT_SIGNATURE
    signature = model.signatures.get(name)
    if signature is None:
        raise missing(name)
    call.signature = name
    return signature


def fill_spec(spec: Any, name: str, version: int, signature: str = "") -> None:
    """Fills a reply's ModelSpec with what answered."""
    spec.name = name
    spec.version.value = version
    spec.signature_name = signature
