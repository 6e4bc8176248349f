"""The example of a predict request: a document of TensorFlow Serving's JSON for inputs that a model accepts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.core.inference import STRING, Array, ModelSignature


def document_of(signature: ModelSignature, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """The document for the first row of these inputs, or for all of them where the signature has no rows."""
    if not signature.batchable:
        return {"inputs": {name: _nested(array) for name, array in inputs.items()}}
    row = {name: _nested(array[0]) for name, array in inputs.items()}
    return {"instances": [row if len(row) > 1 else next(iter(row.values()))]}


def zeros_like(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Zeros, and empty strings, of the shapes of the first rows."""
    return {name: _zeros(array[:1] if array.ndim else array) for name, array in inputs.items()}


def _zeros(array: Array) -> Array:
    return np.full(array.shape, b"", STRING) if array.dtype == STRING else np.zeros_like(array)


def _nested(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": b64encode(value).decode()}
    if value.dtype == STRING:
        return [_nested(each) for each in value] if value.ndim else _nested(value.item())
    return value.tolist() if value.dtype.kind in "biuf" else value.astype(np.float32).tolist()
