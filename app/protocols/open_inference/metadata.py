"""Metadata of the server and of models, and the repository's index, as the protocol's JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app import __version__
from app.core.inference import ModelSignature, TensorSpec
from app.core.versions import VersionState, VersionStatus
from app.protocols.open_inference.datatypes import described_datatype

_SAVED_MODEL, _PIPELINE = "tensorflow_savedmodel", "ferry_pipeline"

#: Triton's extensions that Ferry supports.
_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)

_STATES = {
    VersionState.START: "LOADING",
    VersionState.LOADING: "LOADING",
    VersionState.AVAILABLE: "READY",
    VersionState.UNLOADING: "UNLOADING",
    VersionState.END: "UNAVAILABLE",
}

_NEVER_LOADED = {"name": "", "version": "", "state": "UNAVAILABLE", "reason": "no version of it is loaded"}


def server_document(shared_memory: bool) -> dict[str, Any]:
    """The document of ServerMetadata."""
    extensions = [*_EXTENSIONS, *(["system_shared_memory"] if shared_memory else [])]
    return {"name": "ferry", "version": __version__, "extensions": extensions}


def model_document(
    name: str, versions: Iterable[int], signature: ModelSignature, *, pipeline: bool = False
) -> dict[str, Any]:
    """The document of ModelMetadata."""
    return {
        "name": name,
        "versions": [str(version) for version in sorted(versions)],
        "platform": platform(pipeline),
        "inputs": [_tensor(spec) for spec in signature.inputs.values()],
        "outputs": [_tensor(spec) for spec in signature.outputs.values()],
    }


def index_documents(name: str, statuses: Sequence[VersionStatus], ready: bool) -> list[dict[str, str]]:
    """The index entries of a model: one for each version, or one in all if there is no version.

    Args:
        ready: leave out versions that cannot be called.
    """
    documents = [_index_entry(name, status) for status in statuses] or [_NEVER_LOADED | {"name": name}]
    return [each for each in documents if not ready or each["state"] == "READY"]


def available(statuses: Sequence[VersionStatus]) -> list[int]:
    return [status.version for status in statuses if status.state is VersionState.AVAILABLE]


def platform(pipeline: bool) -> str:
    """The platform of a model. Not Triton's 'ensemble' for a pipeline: its configuration would list steps."""
    return _PIPELINE if pipeline else _SAVED_MODEL


def wire_shape(spec: TensorSpec) -> list[int]:
    """The shape with -1 for free sizes. The protocol cannot say that the rank is unknown: [-1] stands for it."""
    return [-1] if spec.shape is None else [-1 if size is None else size for size in spec.shape]


def _index_entry(name: str, status: VersionStatus) -> dict[str, str]:
    return {
        "name": name,
        "version": str(status.version),
        "state": _STATES[status.state],
        "reason": status.error_message or ("unloaded" if status.state is VersionState.END else ""),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": described_datatype(spec.dtype), "shape": wire_shape(spec)}
