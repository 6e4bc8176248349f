"""TensorProto messages for requests of tests and benchmarks."""

from __future__ import annotations

from typing import Any

from app.codecs.protobuf.tensor_protos import tensor_parts
from app.core.inference import Array


def encode_tensor(array: Array, proto: Any, as_content: bool) -> None:
    """Fills the empty message `proto`. Raises as `tensor_parts` does."""
    proto.MergeFromString(b"".join(tensor_parts(array, as_content)))
