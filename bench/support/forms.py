"""Bodies by name: how one row is written for a server, and how its answer is read. Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from app.codecs.protobuf.messages import message_class

Array = np.ndarray[Any, Any]

_DATATYPES = {"float32": "FP32", "int32": "INT32"}
_HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Form:
    """`write` takes the input's name and one row; `read` takes the reply's headers and content and gives one row."""

    write: Callable[[str, Array], Body]
    read: Callable[[dict[str, str], bytes], Array]


def _json(document: Any) -> Body:
    content = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Body(content, {"Content-Type": "application/json"})


def _write_instances(name: str, row: Array) -> Body:  # noqa: ARG001 - the only input needs no name
    return _json({"instances": [row]})


def _read_predictions(headers: dict[str, str], content: bytes) -> Array:  # noqa: ARG001 - one of several forms
    return np.asarray(json.loads(content)["predictions"][0], np.float32)


def _read_list(headers: dict[str, str], content: bytes) -> Array:  # noqa: ARG001 - one of several forms
    return np.asarray(json.loads(content)[0], np.float32)


def _v2_input(name: str, rows: Array, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": rows.shape, "datatype": _DATATYPES[rows.dtype.name], **more}


def _write_v2_json(name: str, row: Array) -> Body:
    return _json({"inputs": [_v2_input(name, row[np.newaxis], data=row.reshape(-1))]})


def _read_v2_json(headers: dict[str, str], content: bytes) -> Array:  # noqa: ARG001 - one of several forms
    return np.asarray(json.loads(content)["outputs"][0]["data"], np.float32).reshape(-1)


def _write_v2_binary(name: str, row: Array) -> Body:
    return _write_v2_rows(name, row[np.newaxis])


def _write_v2_rows(name: str, rows: Array) -> Body:
    tail = rows.tobytes()
    described = _v2_input(name, rows, parameters={"binary_data_size": len(tail)})
    head = orjson.dumps({"inputs": [described], "parameters": {"binary_data_output": True}})
    headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(head))}
    return Body(head + tail, headers)


def _read_v2_binary(headers: dict[str, str], content: bytes) -> Array:
    return np.frombuffer(content[int(headers[_HEADER_LENGTH.lower()]) :], np.float32)


def _write_raw(name: str, row: Array) -> Body:  # noqa: ARG001 - one of several forms
    return Body(row.tobytes(), {"Content-Type": "application/octet-stream"})


def _write_grpc(name: str, row: Array) -> Body:
    """The message of a KServe call for the MLP, framed."""
    request = message_class("inference.ModelInferRequest")(model_name="mlp", raw_input_contents=[row.tobytes()])
    request.inputs.add(name=name, datatype=_DATATYPES[row.dtype.name], shape=(1, *row.shape))
    message = request.SerializeToString()
    return Body(
        struct.pack(">?I", False, len(message)) + message, {"Content-Type": "application/grpc", "TE": "trailers"}
    )


def _read_raw(headers: dict[str, str], content: bytes) -> Array:  # noqa: ARG001 - one of several forms
    return np.frombuffer(content, np.float32)


def _read_nothing(headers: dict[str, str], content: bytes) -> Array:  # noqa: ARG001 - one of several forms
    """From servers that run no model and are measured as a limit."""
    return np.empty(0, np.float32)


FORMS = {
    "v1-json": Form(_write_instances, _read_predictions),
    "list-json": Form(_write_instances, _read_list),
    "v2-json": Form(_write_v2_json, _read_v2_json),
    "v2-binary": Form(_write_v2_binary, _read_v2_binary),
    "v2-binary-rows": Form(_write_v2_rows, _read_v2_binary),  # several at once
    "raw": Form(_write_raw, _read_raw),
    "grpc": Form(_write_grpc, _read_nothing),  # read by its length only
    "echo": Form(_write_instances, _read_nothing),
}


def agrees(answer: Array, expected: Array) -> bool:
    """An empty answer comes from who runs no model. The tolerance is that of other batch sizes and variants."""
    if answer.size == 0:
        return True
    return answer.size == expected.size and np.allclose(answer.reshape(expected.shape), expected, rtol=1e-2, atol=1e-3)
