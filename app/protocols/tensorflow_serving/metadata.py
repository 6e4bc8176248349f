"""Status and metadata as TensorFlow Serving's JSON, which is the JSON mapping of its protocol buffers.

REST writes these documents; gRPC converts them into messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import tensor_parts
from app.codecs.tensorflow_types import enum_name
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.versions import VersionStatus

_TensorProto = message_class("tensorflow.TensorProto")


def status_document(statuses: Sequence[VersionStatus]) -> dict[str, Any]:
    """The document of GetModelStatusResponse."""
    return {"model_version_status": [_version_status(status) for status in statuses]}


def model_document(name: str, statuses: Sequence[VersionStatus]) -> dict[str, Any]:
    """The entry of a model in the list of models, which TensorFlow Serving does not have.

    A version that was loaded in an unusual way has a `note` here, and none in GetModelStatusResponse, whose clients
    reject unknown fields.
    """
    return {"name": name, "model_version_status": [_version_status(each) | _note(each) for each in statuses]}


def metadata_document(name: str, version: int, signatures: Mapping[str, ModelSignature]) -> dict[str, Any]:
    """The document of GetModelMetadataResponse."""
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": signatures_document(signatures)},
    }


def signatures_document(signatures: Mapping[str, ModelSignature]) -> dict[str, Any]:
    """The document of SignatureDefMap."""
    return {"signature_def": {key: _signature(signature) for key, signature in signatures.items()}}


def _version_status(status: VersionStatus) -> dict[str, Any]:
    return {
        "version": str(status.version),
        "state": status.state.value,
        "status": {
            "error_code": "UNKNOWN" if status.error_message else "OK",
            "error_message": status.error_message,
        },
    }


def _note(status: VersionStatus) -> dict[str, str]:
    return {"note": status.note} if status.note else {}


def _signature(signature: ModelSignature) -> dict[str, Any]:
    return {
        "inputs": {name: _tensor(spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _tensor(spec) for name, spec in signature.outputs.items()},
        "method_name": signature.method_name,
        "defaults": {name: _value(array) for name, array in signature.defaults.items()},
    }


def _value(array: Array) -> dict[str, Any]:
    proto = _TensorProto.FromString(b"".join(tensor_parts(array, as_content=False)))
    document: dict[str, Any] = MessageToDict(
        proto, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    return document


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    sizes = spec.shape or ()
    return {
        "dtype": enum_name(spec.dtype),
        "tensor_shape": {
            "dim": [{"size": str(-1 if size is None else size), "name": ""} for size in sizes],
            "unknown_rank": spec.shape is None,
        },
        "name": spec.tensor_name,
    }
