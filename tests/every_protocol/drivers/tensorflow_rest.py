"""Drivers of TensorFlow Serving's REST API: predict, with bodies of every format."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, ClassVar
from urllib.parse import urlencode

import httpx
import msgpack
import numpy as np
from PIL import Image

from app.core.inference import Array
from tests.every_protocol.drivers.driver import Fault, Question
from tests.every_protocol.drivers.http_driver import HttpDriver, OverHttp2
from tests.every_protocol.tensors import as_lists
from tests.support.bodies import as_msgpack, as_protobuf, from_msgpack, from_protobuf

_ONE_ARRAY = "the body is one array without a name"


class _Predict(HttpDriver):
    """`signature` is what the driver asks for where the question names none."""

    signature = ""

    def path(self, question: Question) -> str:
        version = "" if question.version is None else f"/versions/{question.version}"
        path = f"/v1/models/{question.model}{version}:predict"
        signature = question.signature or self.signature
        fields = [("signature_name", signature)] * bool(signature) + [("output", name) for name in question.outputs]
        return path + ("?" + urlencode(fields) if fields else "")


class JsonRows(_Predict):
    name = "tensorflow rest, JSON rows"
    serves = ("v1", "application/json")
    content_type = "application/json"
    wrong_dtype = np.array([["a", "b"]])
    names_dtype = "element: 0 of 'instances'"  # TensorFlow Serving's words
    malformed: ClassVar = {
        "empty": b"",
        "cut off": b'{"instances": [[1, 2',
        "not an object": b"[[1, 2]]",
        "no text": b"\xff\xfe\x00",
        "both forms": b'{"instances": [[1, 2]], "inputs": [[1, 2]]}',
        "ragged": b'{"instances": [[1, 2], [3]]}',
        "too deep": b'{"instances": ' + b"[" * 5000,
        "a number too large": b'{"instances": [[1e999, 1]]}',
    }

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        columns = {name: as_lists(array) for name, array in question.inputs.items()}
        if question.inputs.keys() == {"features"}:
            return json.dumps({"instances": columns["features"]}).encode(), {}
        named = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return json.dumps({"instances": named}).encode(), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        found = response.json()["predictions"]
        if not isinstance(found[0], dict):
            return {"": np.array(found, np.float32)}
        return {name: np.array([row[name] for row in found], np.float32) for name in found[0]}


class JsonRowsOverHttp2(OverHttp2, JsonRows):
    name = "tensorflow rest, JSON rows, HTTP/2"


class JsonColumns(JsonRows):
    name = "tensorflow rest, JSON columns"
    names_dtype = "features"

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        return json.dumps({"inputs": {name: as_lists(array) for name, array in question.inputs.items()}}).encode(), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        found = response.json()["outputs"]
        if not isinstance(found, dict):
            return {"": np.array(found, np.float32)}
        return {name: np.array(column, np.float32) for name, column in found.items()}


class DefaultModel(JsonColumns):
    name = "POST /predict"
    serves = ("predict", "application/json")
    lacks: ClassVar = dict.fromkeys(
        (Fault.UNKNOWN_MODEL, Fault.UNKNOWN_VERSION, Fault.NOT_READY), "it is for the newest version of one model"
    )

    def path(self, question: Question) -> str:
        return super().path(question).replace("/v1/models/m:predict", "/predict")


class Npy(_Predict):
    name = "tensorflow rest, .npy"
    serves = ("v1", "application/x-npy")
    content_type = "application/x-npy"
    lacks: ClassVar = {Fault.WRONG_NAME: _ONE_ARRAY, Fault.MISSING_INPUT: _ONE_ARRAY}
    malformed: ClassVar = {
        "empty": b"",
        "another file": b"PK\x03\x04",
        "cut off": b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'",
        "pickled": b"\x93NUMPY\x01\x00\x3a\x00{'descr': '|O', 'fortran_order': False, 'shape': (1, 2)}   \n",
    }

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        file = BytesIO()
        np.save(file, question.inputs["features"])
        return file.getvalue(), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return {"": np.load(BytesIO(response.content))}


class Npz(_Predict):
    name = "tensorflow rest, .npz"
    serves = ("v1", "application/x-npz")
    content_type = "application/x-npz"
    malformed: ClassVar = {"empty": b"", "another file": b"\x93NUMPY", "cut off": b"PK\x03\x04\x14\x00"}

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        file = BytesIO()
        arrays: Any = dict(question.inputs)  # numpy's stub takes one for its option
        np.savez(file, **arrays)
        return file.getvalue(), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return dict(np.load(BytesIO(response.content)))


class MessagePack(_Predict):
    name = "tensorflow rest, MessagePack"
    serves = ("v1", "application/msgpack")
    content_type = "application/msgpack"
    malformed: ClassVar = {
        "empty": b"",
        "cut off": msgpack.packb({"inputs": [[1.0, 2.0]]})[:-3],
        "not a map": msgpack.packb([1]),
        "no inputs": msgpack.packb({"x": 1}),
        "too few bytes": msgpack.packb({"inputs": {"dtype": "float32", "shape": [1, 2], "data": b"\0"}}),
    }

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        return as_msgpack(question.inputs), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return from_msgpack(response.content)


class Protobuf(_Predict):
    name = "tensorflow rest, protobuf"
    serves = ("v1", "application/x-protobuf")
    content_type = "application/x-protobuf"
    malformed: ClassVar = {"cut off": b"\x12\x7f", "another wire type": b"\x0f\x0f", "empty": b""}

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        return as_protobuf(question.inputs), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return from_protobuf(response.content)


class Png(_Predict):
    """An image of one row of grey pixels is a row of the model's."""

    name = "tensorflow rest, PNG"
    serves = ("v1", "image/png")
    content_type = "image/png"
    format = "PNG"
    signature = "image"
    most_rows = 1
    chooses_outputs = False
    lacks: ClassVar = {
        Fault.WRONG_NAME: _ONE_ARRAY,
        Fault.MISSING_INPUT: _ONE_ARRAY,
        Fault.WRONG_DTYPE: "pixels are bytes",
    }
    malformed: ClassVar = {"empty": b"", "another file": b"GIF89a", "cut off": b"\x89PNG\r\n\x1a\n\x00\x00"}

    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        file = BytesIO()
        Image.fromarray(question.inputs["features"].astype(np.uint8)).save(file, self.format, quality=100)
        return file.getvalue(), {}

    def decode(self, response: httpx.Response) -> dict[str, Array]:
        return {"": np.array(response.json()["predictions"], np.float32)[:, 0]}


class Jpeg(Png):
    """Exact, since all pixels of an image are equal."""

    name = "tensorflow rest, JPEG"
    serves = ("v1", "image/jpeg")
    content_type = "image/jpeg"
    format = "JPEG"
    malformed: ClassVar = {"empty": b"", "another file": b"GIF89a", "cut off": b"\xff\xd8\xff\xe0"}


DRIVERS = (JsonRows, JsonRowsOverHttp2, JsonColumns, DefaultModel, Npy, Npz, MessagePack, Protobuf, Png, Jpeg)
