"""Drivers of the Open Inference Protocol over REST."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import httpx

from app.core.inference import Array
from app.protocols.open_inference.datatypes import datatype_of
from tests.every_protocol.drivers.driver import Fault, Question
from tests.every_protocol.drivers.http_driver import HttpDriver, OverHttp2
from tests.every_protocol.tensors import DTYPES, as_bytes, as_lists, from_bytes, from_lists

_HEADER = "Inference-Header-Content-Length"


class Json(HttpDriver):
    name = "open inference rest, JSON"
    serves = ("v2", "application/json")
    content_type = "application/json"
    malformed: ClassVar = {
        "empty": b"",
        "cut off": b'{"inputs": [{"name": "features"',
        "not an object": b"[]",
        "no text": b"\xff\xfe\x00",
        "inputs that are no list": b'{"inputs": {}}',
        "an id that is no Unicode": (
            b'{"id": "\\ud800", "inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}'
        ),
        "an input without a name": b'{"inputs": [{}]}',
        "an input without a shape": b'{"inputs": [{"name": "features", "datatype": "FP32", "data": [1, 2]}]}',
        "a shape of text": b'{"inputs": [{"name": "features", "datatype": "FP32", "shape": "12", "data": [1, 2]}]}',
        "an input twice": json.dumps(
            {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}] * 2}
        ).encode(),
    }

    def path(self, question: Question) -> str:
        version = "" if question.version is None else f"/versions/{question.version}"
        return f"/v2/models/{question.model}{version}/infer"

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        entries = [{**_entry(name, array), "data": as_lists(array)} for name, array in question.inputs.items()]
        return _document(question, entries), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return {
            each["name"]: from_lists(each["data"], DTYPES[each["datatype"]]).reshape(each["shape"])
            for each in response.json()["outputs"]
        }


class Binary(Json):
    name = "open inference rest, binary tensors"
    serves = ("v2", "application/octet-stream")
    content_type = "application/octet-stream"
    malformed: ClassVar = {"too few bytes": b"\0" * 7, "no whole row": b"\0" * 12}

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        entries = [
            {**_entry(name, array), "parameters": {"binary_data_size": len(as_bytes(array))}}
            for name, array in question.inputs.items()
        ]
        head = _document(question, entries, binary_data_output=True)
        return head + b"".join(map(as_bytes, question.inputs.values())), {_HEADER: str(len(head))}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        length = int(response.headers[_HEADER])
        tail = response.content[length:]
        outputs: dict[str, Array] = {}
        for each in json.loads(response.content[:length])["outputs"]:
            size = each["parameters"]["binary_data_size"]
            outputs[each["name"]] = from_bytes(tail[:size], each["datatype"], each["shape"])
            tail = tail[size:]
        assert not tail
        return outputs


class BinaryOverHttp2(OverHttp2, Binary):
    name = "open inference rest, binary tensors, HTTP/2"


class BareTensor(Binary):
    name = "open inference rest, a bare tensor"
    chooses_outputs = False
    lacks: ClassVar = dict.fromkeys(
        (Fault.UNKNOWN_SIGNATURE, Fault.UNKNOWN_OUTPUT, Fault.WRONG_DTYPE, Fault.WRONG_NAME, Fault.MISSING_INPUT),
        "the body is nothing but bytes",
    )

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        return question.inputs["features"].tobytes(), {}


def _entry(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype_of(array.dtype)}


def _document(question: Question, entries: list[dict[str, Any]], **parameters: Any) -> bytes:
    document: dict[str, Any] = {"inputs": entries}
    if question.outputs:
        document["outputs"] = [{"name": name} for name in question.outputs]
    if question.signature:
        parameters["signature_name"] = question.signature
    return json.dumps({**document, "parameters": parameters}).encode()


DRIVERS = (Json, Binary, BinaryOverHttp2, BareTensor)
