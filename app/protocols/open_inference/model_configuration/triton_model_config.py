"""The configuration of a model as Triton's ModelConfig, which load generators and clients read."""

from __future__ import annotations

from typing import Any

from app.batching.policy import BatchingOptions
from app.batching.priority import DEFAULT_LEVEL, LOWEST_LEVEL
from app.core.batch_sizes import BatchSizes
from app.core.inference import STRING, ModelSignature, TensorSpec
from app.protocols.open_inference.datatypes import DATATYPES, described_datatype
from app.protocols.open_inference.metadata import platform, wire_shape

#: Numbers of channels: grey, colours, colours with transparency.
_COLOURS = frozenset({1, 3, 4})


def config_document(
    name: str, signature: ModelSignature, sizes: BatchSizes, options: BatchingOptions, *, pipeline: bool = False
) -> dict[str, Any]:
    """The ModelConfig of a signature, as Triton writes it in JSON: `dims` are without the batch dimension."""
    batched = signature.batchable
    config: dict[str, Any] = {
        "name": name,
        "platform": platform(pipeline),
        "backend": "" if pipeline else "tensorflow",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": (options.max_batch_size or sizes.largest) if batched else 0,
        "input": [_input(spec, batched, signature.optional(name)) for name, spec in signature.inputs.items()],
        "output": [_output(spec, batched, name in signature.labels) for name, spec in signature.outputs.items()],
        "instance_group": [],
        "default_model_filename": "pipeline.yaml" if pipeline else "saved_model.pb",
        "parameters": {"signature_name": {"string_value": signature.name}},
        "model_transaction_policy": {"decoupled": False},
    }
    if batched:
        config["dynamic_batching"] = {
            "preferred_batch_size": list(sizes.allowed),
            "max_queue_delay_microseconds": round(options.max_batch_delay_ms * 1e3),
            "priority_levels": LOWEST_LEVEL,
            "default_priority_level": DEFAULT_LEVEL,
        }
    return config


def _input(spec: TensorSpec, batched: bool, optional: bool) -> dict[str, Any]:
    return {
        "name": spec.name,
        "data_type": _data_type(spec),
        "format": _format(spec, batched),
        "dims": _dims(spec, batched),
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": optional,
    }


def _format(spec: TensorSpec, batched: bool) -> str:
    """The layout of an image, for clients that send images: by the place of a size that is a number of channels."""
    dims = _dims(spec, batched)
    if len(dims) != 3 or spec.dtype.kind in "bcO":
        return "FORMAT_NONE"
    if dims[2] in _COLOURS:
        return "FORMAT_NHWC"
    return "FORMAT_NCHW" if dims[0] in _COLOURS else "FORMAT_NONE"


def _output(spec: TensorSpec, batched: bool, labelled: bool) -> dict[str, Any]:
    return {
        "name": spec.name,
        "data_type": _data_type(spec),
        "dims": _dims(spec, batched),
        "label_filename": "labels.txt" if labelled else "",
        "is_shape_tensor": False,
    }


def _dims(spec: TensorSpec, batched: bool) -> list[int]:
    return wire_shape(spec)[1:] if batched and spec.shape is not None else wire_shape(spec)


def _data_type(spec: TensorSpec) -> str:
    if spec.dtype == STRING:
        return "TYPE_STRING"
    name = described_datatype(spec.dtype)
    return f"TYPE_{name}" if name in DATATYPES else "TYPE_INVALID"
