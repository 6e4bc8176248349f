"""Clients of every protocol that can carry any model's tensors, and which requests each can carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import numpy as np

from app.core.inference import STRING, Array
from tests.awkward.awkward_model import Asked, Outputs
from tests.every_protocol.drivers import grpc_drivers, open_inference_rest, tensorflow_rest
from tests.every_protocol.drivers.driver import Driver
from tests.every_protocol.tensors import DTYPES, from_lists


class Columns(tensorflow_rest.JsonColumns):
    """Its values have no type, and the only output no name: `typed` gives them both."""

    def decode(self, response: httpx.Response) -> dict[str, Any]:
        return {"": response.json()["outputs"]}


class Rows(tensorflow_rest.JsonRows):
    """As Columns, row by row."""

    def decode(self, response: httpx.Response) -> dict[str, Any]:
        rows = response.json()["predictions"]
        named = isinstance(rows[0], dict) and rows[0].keys() != {"b64"}
        return {"": {name: [row[name] for row in rows] for name in rows[0]} if named else rows}


PROTOCOLS: Sequence[type[Driver]] = (
    Columns,
    Rows,
    tensorflow_rest.Npz,
    tensorflow_rest.MessagePack,
    tensorflow_rest.Protobuf,
    open_inference_rest.Json,
    open_inference_rest.Binary,
    grpc_drivers.TensorFlowContent,
    grpc_drivers.TensorFlowFields,
    grpc_drivers.OpenInferenceRaw,
    grpc_drivers.OpenInferenceStream,
)

_OPEN_INFERENCE = (open_inference_rest.Json, grpc_drivers.OpenInferenceRaw)


def carries(protocol: type[Driver], asked: Asked, expected: Outputs) -> bool:
    """Can the protocol write this request and read this answer, whole?"""
    inputs = asked.inputs.values()
    arrays = [*inputs, *expected.values()]
    if not asked.inputs and issubclass(protocol, tensorflow_rest.JsonRows):
        return False  # no row, no column
    if issubclass(protocol, Rows):
        return _are_rows(arrays)
    if issubclass(protocol, Columns):
        return all(array.size or array.ndim == 1 for array in inputs)  # JSON's [] has no inner shape
    if issubclass(protocol, tensorflow_rest.Npz):
        return not any(array.dtype in (STRING, DTYPES["BF16"]) for array in arrays)
    if issubclass(protocol, _OPEN_INFERENCE):
        return all(array.dtype in DTYPES.values() for array in arrays)
    return True


def _are_rows(arrays: Iterable[Array]) -> bool:
    rows = {array.shape[:1] for array in arrays}
    return len(rows) == 1 and rows not in ({()}, {(0,)}) and all(array.size for array in arrays)


def typed(answer: dict[str, Any], expected: Outputs) -> Outputs:
    """The answer as arrays by name, where JSON lacks names, types and the shapes of what is empty."""
    if answer.keys() != {""}:
        return answer
    (only,) = answer.values()
    values = only if isinstance(only, dict) and only.keys() == expected.keys() else {next(iter(expected)): only}
    found = {name: from_lists(value, expected[name].dtype) for name, value in values.items()}
    return {name: _shaped(array, expected[name]) for name, array in found.items()}


def _shaped(array: Array, expected: Array) -> Array:
    return array if array.size or expected.size else np.reshape(array, expected.shape)
