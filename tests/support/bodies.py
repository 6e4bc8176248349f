"""Predict bodies of every form, made as a client would make them, and replies read as one would read them."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
from PIL import Image

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensor
from app.core.inference import STRING, Array, dtype_name
from tests.support.tensor_protos import encode_tensor

NPY, NPZ = "application/x-npy", "application/x-npz"
MSGPACK, PROTOBUF = "application/msgpack", "application/x-protobuf"
JSON = "application/json"

Arrays = Mapping[str, Array]


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def packed(document: Any) -> bytes:
    content: bytes = msgpack.packb(document)
    return content


def tensor_map(array: Array) -> dict[str, Any]:
    content = array.ravel().tolist() if array.dtype == STRING else array.tobytes()
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data": content}


def as_msgpack(arrays: Arrays) -> bytes:
    return packed({"inputs": {name: tensor_map(array) for name, array in arrays.items()}})


def as_protobuf(arrays: Arrays, **fields: Any) -> bytes:
    request = message_class("tensorflow.serving.PredictRequest")(**fields)
    for name, array in arrays.items():
        encode_tensor(array, request.inputs[name], as_content=True)
    content: bytes = request.SerializeToString()
    return content


def from_npz(body: bytes) -> dict[str, Array]:
    with warnings.catch_warnings(), np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def from_msgpack(body: bytes) -> dict[str, Array]:
    document = msgpack.unpackb(body)
    assert document.keys() == {"outputs"}
    return {name: _array(**tensor) for name, tensor in document["outputs"].items()}


def from_protobuf(body: bytes) -> dict[str, Array]:
    reply = message_class("tensorflow.serving.PredictResponse").FromString(body)
    return {name: decode_tensor(name, proto, 1 << 20) for name, proto in reply.outputs.items()}


#: Forms that carry every type: how a request is written, how a reply is read.
WHOLE: dict[str, tuple[Callable[[Arrays], bytes], Callable[[bytes], dict[str, Array]]]] = {
    MSGPACK: (as_msgpack, from_msgpack),
    PROTOBUF: (as_protobuf, from_protobuf),
}


def image(array: Any, format_: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(np.asarray(array))
    (picture.convert(mode) if mode else picture).save(file, format_, **options)
    return file.getvalue()


def as_json(arrays: Mapping[str, Any]) -> bytes:
    return json.dumps({"inputs": {name: np.asarray(array).tolist() for name, array in arrays.items()}}).encode()


def dtype_called(name: str) -> np.dtype[Any]:
    """numpy's type of this name, those outside numpy included."""
    return np.dtype(getattr(ml_dtypes, name, name))


def _array(dtype: str, shape: list[int], data: Any) -> Array:
    if dtype == "string":
        array = np.empty(len(data), STRING)
        array[:] = data
    else:
        array = np.frombuffer(data, dtype_called(dtype))
    return array.reshape(shape)
